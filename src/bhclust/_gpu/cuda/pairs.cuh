// Kernels that score many leaves at once: the first pairs of a search, and new items.

// log f of each leaf.
template <class M, bool NEAR>
__global__ void __launch_bounds__(BHCLUST_THREADS, 1) leaf_log_marginals(i64 n_leaves, double* out) {
    BHCLUST_SHARED(shared);
    const Search& s = *(const Search*)record;
    const M& model = *(const M*)(record + sizeof(Search) / 8);
    Memory memory = share_memory<NEAR>(shared, s, 1);
    for (i64 leaf = blockIdx.x; leaf < n_leaves; leaf += gridDim.x) {
        model.gather(memory.focus, memory.facts, Place{0, (int)leaf}, Place{NOWHERE, 0}, memory.board->sums);
        __syncthreads();
        double log_f = model.prepare(memory.focus, memory.facts, memory.board->sums);
        if (threadIdx.x == 0) out[leaf] = log_f;
        __syncthreads();
    }
}

// The best of some partners of a leaf, which are leaves after it.
template <bool ROSE>
struct Partners {
    Candidate best;
    double largest, second;  // gains
    double floor;            // what is not above it changes nothing

    BHCLUST_DEVICE explicit Partners(double least = -INFINITE) : best(no_candidate()), largest(-INFINITE), second(-INFINITE), floor(least) {}

    BHCLUST_DEVICE void consider(const Search& s, const Node& leaf, double prior, int p, double log_f, double own) {
        Candidate found = no_candidate();
        found.best.order = p;
        if (ROSE) {
            // Two leaves can only be joined, and then the ratio grows with the gain.
            double gain = log_f - (leaf.evidence + own);
            if (!(gain >= second - SLACK)) return;
            second = fmax(second, fmin(largest, gain));
            largest = fmax(largest, gain);
            RatioScore ratio = ratio_score(leaf, node_at<ROSE>(s, Place{0, p}), gain, s.mixing);
            found.best.score = ratio.score;
            found.best.tiebreak = ratio.tiebreak;
            found.needed = ratio.needed;
        } else {
            double raw = prior + log_f - (leaf.mass + own);
            if (!(raw > fmax(best.rest.score, floor) - 1.0 / ODDS_STEPS)) return;
            found.best.score = round_odds(raw);
        }
        best = better_of<ROSE>(found, best);
    }
};

// What a leaf keeps of its partners.
template <bool ROSE>
BHCLUST_DEVICE Candidate read_candidate(const Region& g, i64 at) {
    Candidate known = no_candidate();
    known.best.score = g.score[at];
    if (g.partner[at] >= 0) known.best.order = g.partner[at];
    known.rest.score = g.rest_score[at];
    if (ROSE) known.best.tiebreak = g.tiebreak[at];
    if (ROSE) known.needed = g.needed[at];
    if (ROSE) known.rest.tiebreak = g.rest_tiebreak[at];
    if (ROSE) known.rest.needed = g.rest_needed[at];
    return known;
}

template <bool ROSE>
BHCLUST_DEVICE void write_candidate(const Region& g, i64 at, const Candidate& found) {
    g.score[at] = found.best.score;
    g.partner[at] = found.best.score > -INFINITE ? found.best.order : -1;
    g.rest_score[at] = found.rest.score;
    if (ROSE) g.tiebreak[at] = found.best.tiebreak;
    if (ROSE) g.needed[at] = found.needed;
    if (ROSE) g.rest_tiebreak[at] = found.rest.tiebreak;
    if (ROSE) g.rest_needed[at] = found.rest.needed;
}

// Find the best partner of each leaf among the leaves after it. A block takes R rows at a time.
template <bool ROSE, class M, bool NEAR, int R>
__global__ void __launch_bounds__(BHCLUST_THREADS, 1) first_pairs(i64 first_row, i64 stop_row) {
    BHCLUST_SHARED(shared);
    const Search& s = *(const Search*)record;
    const M& model = *(const M*)(record + sizeof(Search) / 8);
    Memory memory = share_memory<NEAR>(shared, s, R);
    Board& board = *memory.board;
    const Region& g = s.regions[0];
    const double prior = odds_prior(s.mixing, 2.0);
    const int n = (int)s.n_leaves;
    for (i64 row = first_row + (i64)blockIdx.x * R; row < stop_row; row += (i64)gridDim.x * R) {
        const int n_rows = (int)(stop_row - row < R ? stop_row - row : R);
        for (int r = 0; r < n_rows; r++) {
            double* focus = memory.focus + r * s.focus_apart;
            model.gather(focus, memory.facts, Place{0, (int)row + r}, Place{NOWHERE, 0}, board.sums);
            __syncthreads();
            model.prepare(focus, memory.facts, board.sums);
            model.tabulate(focus, memory.facts, threadIdx.x, blockDim.x);
            if (threadIdx.x == 0) board.row_nodes[r] = node_at<ROSE>(s, Place{0, (int)row + r});
        }
        __syncthreads();
        Partners<ROSE> partners[R];
        constexpr int WIDTH = M::ONE_BY_ONE ? 1 : WARP;
        for (i64 start = ((row + 1) / WIDTH + warp_of_thread()) * WIDTH; start < n; start += warps_of_block() * WIDTH) {
            int p = (int)start + (M::ONE_BY_ONE ? 0 : lane_of_thread());
            bool live = p < n;
            double log_f[R];
            for (int r = 0; r < R; r++) log_f[r] = 0.0;
            model.template singles<R>(memory.focus, s.focus_apart, n_rows, live ? p : start, memory.scratch, log_f);
            if (!live || (M::ONE_BY_ONE && lane_of_thread() > 0)) continue;
            double own = ROSE ? g.evidence[p] : g.mass[p];
#pragma unroll
            for (int r = 0; r < R; r++)
                if (r < n_rows && p > row + r) partners[r].consider(s, board.row_nodes[r], prior, p, log_f[r], own);
        }
#pragma unroll
        for (int r = 0; r < R; r++) {
            if (r >= n_rows) continue;
            Candidate found = block_best<ROSE>(partners[r].best, board.candidates, no_candidate());
            __syncthreads();
            if (threadIdx.x == 0) write_candidate<ROSE>(g, row + r, found);
        }
        __syncthreads();
    }
}

// The same where the gain of two leaves is an inner product: take in a tile of such products, some
// leaves against some others. A warp has a leaf. log f of a pair is its product and the terms of both.
template <bool ROSE>
__global__ void __launch_bounds__(BHCLUST_THREADS, 1) fold_products(
    i64 first_row, i64 n_rows, i64 first_column, i64 n_columns, const double* products, const double* terms
) {
    constexpr int AT_ONCE = 4;
    const Search& s = *(const Search*)record;
    const Region& g = s.regions[0];
    const double* owns = ROSE ? g.evidence : g.mass;
    const double prior = odds_prior(s.mixing, 2.0);
    const i64 n_warps = (i64)gridDim.x * warps_of_block();
    for (i64 r = (i64)warp_of_thread() * gridDim.x + blockIdx.x; r < n_rows; r += n_warps) {
        const i64 row = first_row + r, after = row + 1 - first_column;
        const Node leaf = node_at<ROSE>(s, Place{0, (int)row});
        const Candidate known = read_candidate<ROSE>(g, row);
        const double own_term = terms[row];
        const double* of_row = products + r * n_columns;
        Partners<ROSE> partners(known.rest.score);
        for (i64 start = after > 0 ? after / WARP * WARP : 0; start < n_columns; start += AT_ONCE * WARP) {
            double product[AT_ONCE], term[AT_ONCE], own[AT_ONCE];
#pragma unroll
            for (int u = 0; u < AT_ONCE; u++) {
                const i64 c = start + u * WARP + lane_of_thread(), inside = c < n_columns ? c : n_columns - 1;
                product[u] = of_row[inside];
                term[u] = terms[first_column + inside];
                own[u] = owns[first_column + inside];
            }
#pragma unroll
            for (int u = 0; u < AT_ONCE; u++) {
                const i64 c = start + u * WARP + lane_of_thread();
                if (c >= n_columns || c < after) continue;
                partners.consider(s, leaf, prior, (int)(first_column + c), product[u] + (own_term + term[u]), own[u]);
            }
        }
        const Candidate found = warp_best<ROSE>(partners.best);
        if (lane_of_thread() == 0) write_candidate<ROSE>(g, row, better_of<ROSE>(found, known));
    }
}

// Make some clusters the foci; the offsets of their densities stand in the mass of the rows.
template <class M, int R>
BHCLUST_DEVICE void take_foci(
    const Search& s, const M& model, Memory memory, i64 cluster, int n, const double* log_weight
) {
    for (int r = 0; r < n; r++) {
        double* focus = memory.focus + r * s.focus_apart;
        model.gather(focus, memory.facts, Place{1, (int)cluster + r}, Place{NOWHERE, 0}, memory.board->sums);
        __syncthreads();
        double log_f = model.prepare(focus, memory.facts, memory.board->sums);
        model.tabulate(focus, memory.facts, threadIdx.x, blockDim.x);
        if (threadIdx.x == 0) memory.board->row_nodes[r].mass = log_weight[cluster + r] - log_f;
    }
    __syncthreads();
}

// Write log weight + log f(item | cluster) of every item (region 0) and cluster (region 1);
// the matrix has a row a cluster. Items are dealt to blocks in chunks.
template <class M, bool NEAR, int R>
__global__ void __launch_bounds__(BHCLUST_THREADS, 1) joint_densities(
    i64 n_items, i64 n_clusters, i64 chunk, const double* log_weight, double* out
) {
    BHCLUST_SHARED(shared);
    const Search& s = *(const Search*)record;
    const M& model = *(const M*)(record + sizeof(Search) / 8);
    Memory memory = share_memory<NEAR>(shared, s, R);
    Board& board = *memory.board;
    for (i64 first_item = (i64)blockIdx.x * chunk; first_item < n_items; first_item += (i64)gridDim.x * chunk) {
        const i64 stop_item = first_item + chunk < n_items ? first_item + chunk : n_items;
        for (i64 cluster = 0; cluster < n_clusters; cluster += R) {
            const int n = (int)(n_clusters - cluster < R ? n_clusters - cluster : R);
            take_foci<M, R>(s, model, memory, cluster, n, log_weight);
            constexpr int WIDTH = M::ONE_BY_ONE ? 1 : WARP;
            for (i64 start = first_item + warp_of_thread() * WIDTH; start < stop_item; start += warps_of_block() * WIDTH) {
                i64 item = start + (M::ONE_BY_ONE ? 0 : lane_of_thread());
                bool live = item < stop_item;
                double log_f[R];
                for (int r = 0; r < R; r++) log_f[r] = 0.0;
                model.template singles<R>(
                    memory.focus, s.focus_apart, n, live ? item : start, memory.scratch, log_f
                );
#pragma unroll
                for (int r = 0; r < R; r++)
                    if (live && r < n) out[(cluster + r) * n_items + item] = log_f[r] + board.row_nodes[r].mass;
            }
            __syncthreads();
        }
    }
}

// Write log Σ exp(log weight + log f(item | cluster)) over all clusters (region 1) for each item
// (region 0). A block has several items a thread, so that a focus is worth its while.
template <class M, bool NEAR, int R>
__global__ void __launch_bounds__(BHCLUST_THREADS, 1) mixture_densities(
    i64 n_items, i64 n_clusters, const double* log_weight, double* out
) {
    constexpr int ITEMS = 4, WIDTH = M::ONE_BY_ONE ? 1 : WARP;
    BHCLUST_SHARED(shared);
    const Search& s = *(const Search*)record;
    const M& model = *(const M*)(record + sizeof(Search) / 8);
    Memory memory = share_memory<NEAR>(shared, s, R);
    Board& board = *memory.board;
    const i64 apart = (i64)warps_of_block() * WIDTH, chunk = ITEMS * apart;
    for (i64 first = (i64)blockIdx.x * chunk; first < n_items; first += (i64)gridDim.x * chunk) {
        double largest[ITEMS], sum[ITEMS];
        for (int u = 0; u < ITEMS; u++) {
            largest[u] = -INFINITE;
            sum[u] = 0.0;
        }
        for (i64 cluster = 0; cluster < n_clusters; cluster += R) {
            const int n = (int)(n_clusters - cluster < R ? n_clusters - cluster : R);
            take_foci<M, R>(s, model, memory, cluster, n, log_weight);
#pragma unroll
            for (int u = 0; u < ITEMS; u++) {
                const i64 start = first + u * apart + warp_of_thread() * WIDTH;
                if (start >= n_items) continue;
                const i64 item = start + (M::ONE_BY_ONE ? 0 : lane_of_thread());
                double log_f[R];
                for (int r = 0; r < R; r++) log_f[r] = 0.0;
                model.template singles<R>(
                    memory.focus, s.focus_apart, n, item < n_items ? item : start, memory.scratch, log_f
                );
#pragma unroll
                for (int r = 0; r < R; r++) {
                    if (r >= n) continue;
                    double value = log_f[r] + board.row_nodes[r].mass;
                    if (value > largest[u]) {
                        sum[u] = sum[u] * exp(largest[u] - value) + 1.0;
                        largest[u] = value;
                    } else if (value > -INFINITE) {
                        sum[u] += exp(value - largest[u]);
                    }
                }
            }
            __syncthreads();
        }
        for (int u = 0; u < ITEMS; u++) {
            const i64 item = first + u * apart + warp_of_thread() * WIDTH + (M::ONE_BY_ONE ? 0 : lane_of_thread());
            if (item < n_items) out[item] = largest[u] + log(sum[u]);
        }
    }
}
