// Merges without a pass: a cluster that takes leaf after leaf.
//
// A pass scores the new cluster C against every live cluster, and the next merge is mostly C with the
// best leaf x. Which leaf C + x takes next needs no pass where a bound says so. A leaf y gains from x,
// beside what all leaves gain, at most the *rise* of x: what log p(y | C) can grow by. So a leaf that
// was far below the best ones cannot be the next one, and it is enough to score those on a short list
// anew. Every block does this for itself, with the same outcome, until a leaf outside the list, another
// cluster, or a pair without C might be better. Then there is a pass for the last cluster; those in
// between are gone, so that nobody needs their offers. The merges are the same as with a pass each.
//
// A pass takes the time of several merges without one, so the list should be long. Every lane knows its
// best leaf and the score of its next one, every warp tells its best two, every block its best six:
// what is left out anywhere bounds the leaves outside, and where the bound is high the list is of no
// use. A merge without a pass is one chain of work that nothing hides, so it reads nothing from the
// device's memory: its thread has the leaf's row, and log f of the union is what the leaf was chosen by.

BHCLUST_DEVICE double warp_largest(double value) {
    for (int mask = WARP / 2; mask > 0; mask /= 2) value = fmax(value, across_lanes(value, mask));
    return value;
}

// Put what the threads of a warp see together, for the warp that tells.
BHCLUST_DEVICE void note_outlook(Outlook mine, Board& board) {
    WarpOutlook& noted = board.outlooks[warp_of_thread()];
    const int lane = lane_of_thread();
#pragma unroll
    for (int c = 0; c < OF_WARP; c++) {
        const Entry best = warp_best<false>(Entry{mine.top, 0.0, mine.position >= 0 ? mine.position : 2147483647, lane});
        if (lane == best.partner) {
            noted.leaves[c] = Pair{mine.top, mine.top_mass};
            noted.position[c] = mine.position;
            mine.top = -INFINITE;
            mine.position = -1;
        }
    }
    const double rest = warp_largest(fmax(mine.top, mine.second)), others = warp_largest(mine.others);
    const double clusters = warp_largest(mine.clusters);
    if (lane != 0) return;
    noted.rest = rest;
    noted.others = others;
    noted.clusters = clusters;
}

// Tell the best leaves of this block and what bounds the others. The first warp does this.
BHCLUST_DEVICE void tell_outlook(const Search& s, const Board& board, i64 tag) {
    Told& told = s.told[(tag % 2) * gridDim.x + blockIdx.x];
    const WarpOutlook* noted = board.outlooks;
    const int n_warps = warps_of_block(), n_leaves = OF_WARP * n_warps;
    double rest = -INFINITE, others = -INFINITE, clusters = -INFINITE;
    for (int w = lane_of_thread(); w < n_warps; w += WARP) {
        rest = fmax(rest, noted[w].rest);
        others = fmax(others, noted[w].others);
        clusters = fmax(clusters, noted[w].clusters);
    }
    // Each finds its own place among all, so that none waits for another.
    for (int i = lane_of_thread(); i < n_leaves || i < LISTED; i += WARP) {
        Pair own{-INFINITE, 0.0};
        int position = -1, rank = 0;
        if (i < n_leaves) {
            own = noted[i / OF_WARP].leaves[i % OF_WARP];
            position = noted[i / OF_WARP].position[i % OF_WARP];
        }
        for (int j = 0; j < n_leaves; j++) {
            const double score = noted[j / OF_WARP].leaves[j % OF_WARP].x;
            const int other = noted[j / OF_WARP].position[j % OF_WARP];
            rank += (score > own.x) | ((score == own.x) & ((other < position) | ((other == position) & (j < i))));
        }
        rank += i > n_leaves ? i - n_leaves : 0;  // of those that are nothing
        if (rank < LISTED) {
            told.leaves[rank] = own;
            told.position[rank] = position;
        } else {
            rest = fmax(rest, own.x);
        }
    }
    rest = warp_largest(rest);
    others = warp_largest(others);
    clusters = warp_largest(clusters);
    if (lane_of_thread() != 0) return;
    told.bounds = Pair{rest, others};
    told.clusters = clusters;
}

BHCLUST_DEVICE int place_in_hash(int id) { return (int)((unsigned)id * 2654435761u >> 22) % CONSUMED; }

BHCLUST_DEVICE void consume(RunRoom& room, int id) {
    int at = place_in_hash(id);
    while (room.consumed[at] >= 0) at = (at + 1) % CONSUMED;
    room.consumed[at] = id;
}

BHCLUST_DEVICE bool is_consumed(const RunRoom& room, int id) {
    for (int at = place_in_hash(id); room.consumed[at] >= 0; at = (at + 1) % CONSUMED)
        if (room.consumed[at] == id) return true;
    return false;
}

// The short list of a run: a thread has a leaf of it. Bounds are known to the first thread.
template <class M>
struct Run {
    int position[1], id;
    double mass, log_f;
    bool listed;
    typename M::template Ahead<1> ahead;
    double unlisted;  // of leaves outside the list, less what all leaves have in common
    double others, clusters;
    double most_gained;  // by a cluster from a leaf: no leaf has more than probability one

    // From what was told after the pass of the cluster that is now merged with a leaf (the left one):
    // first the bounds, by the first warp ...
    BHCLUST_DEVICE void hear_bounds(const Search& s, Board& board, RunRoom& room, i64 tag) {
        const Told* told = s.told + (tag % 2) * gridDim.x;
        for (int t = threadIdx.x; t < CONSUMED; t += blockDim.x) room.consumed[t] = -1;
        if (warp_of_thread() > 0) return;
        double limit = -INFINITE;
        others = clusters = -INFINITE;
        for (int b = lane_of_thread(); b < (int)gridDim.x; b += WARP) {
            const Pair bounds = told[b].bounds;
            limit = fmax(limit, bounds.x);
            others = fmax(others, bounds.y);
            clusters = fmax(clusters, told[b].clusters);
        }
        limit = warp_largest(limit);
        others = warp_largest(others);
        clusters = warp_largest(clusters);
        unlisted = limit - board.common;
        most_gained = s.mixing.code == DIRICHLET_PROCESS ? log((double)s.n_leaves) : 0.0;
        if (threadIdx.x > 0) return;
        board.limit = limit;
        board.n_listed = 0;
    }

    // ... then the leaves that are above them, after a barrier ...
    BHCLUST_DEVICE void list(const Search& s, Board& board, RunRoom& room, i64 tag) const {
        const Told* told = s.told + (tag % 2) * gridDim.x;
        for (int t = threadIdx.x; t < LISTED * (int)gridDim.x; t += blockDim.x) {
            const Told& of = told[t / LISTED];
            const Pair leaf = of.leaves[t % LISTED];
            const int p = of.position[t % LISTED];
            if (p < 0 || p == board.left.position || !(leaf.x > board.limit)) continue;
            // In no order: the places of leaves decide between equals.
            const int place = atomicAdd(&board.n_listed, 1);
            if (place >= MOST_LISTED) continue;
            room.position[place] = p;
            room.mass[place] = leaf.y;
        }
    }

    // ... and what is known of them, after another one.
    BHCLUST_DEVICE void look_ahead(const Search& s, const M& model, const Board& board, const RunRoom& room) {
        const int n_listed = board.n_listed;
        // Otherwise some would be in no list, and no run can be.
        const bool fits = n_listed <= MOST_LISTED && n_listed <= (int)blockDim.x;
        listed = fits && (int)threadIdx.x < n_listed;
        position[0] = listed ? room.position[threadIdx.x] : 0;
        mass = listed ? room.mass[threadIdx.x] : 0.0;
        id = s.regions[0].id[position[0]];
        model.template fetch<1>(position, ahead);
    }

    // Take in that the focus has grown by a leaf.
    BHCLUST_DEVICE void raise_bounds(double rise, double mass_before, double mass_now) {
        unlisted += rise;
        clusters += most_gained - (mass_now - mass_before);
    }

    // The best leaf of the list for the cluster that has been made, if it is certain to be the next.
    // All threads take part; board.next is the thread that has it, or -1. A barrier must follow.
    BHCLUST_DEVICE void choose(const M& model, Board& board, const double* focus, double* scratch) {
        Entry mine = no_entry();
        if ((int)threadIdx.x - lane_of_thread() < board.n_listed) {  // a warp that has some
            double found[1] = {0.0};
            model.template leaves<1>(focus, position, ahead, scratch, found);
            log_f = found[0];
        }
        if (listed) {
            mine.score = round_odds(board.single_prior + log_f - (board.merged.mass + mass));
            mine.order = position[0];
            mine.partner = threadIdx.x;
        }
        const Entry best = block_best<false>(mine, board.entries, no_entry());
        if (threadIdx.x != 0) return;
        // Rounding of sums as large as these is far below this margin.
        const double margin = 1e-6 + 1e-12 * fabs(board.log_f);
        const double limit = fmax(fmax(unlisted + board.common, clusters), others) + margin;
        board.next = best.score > limit ? best.partner : -1;
    }

    // The thread that has the next leaf gives it up: what all need to merge it.
    BHCLUST_DEVICE void give(const Search& s, Board& board) {
        listed = false;
        board.left = Place{0, position[0]};
        board.left_id = id;
        board.row_nodes[0] = Node{1.0, mass, s.leaf_log_d, 0.0, -INFINITE, -INFINITE, 0.0, 0.0, 0.0};
        board.log_f = log_f;
        *(typename M::template Ahead<1>*)board.leaf = ahead;
    }
};

// What comes of a merge, by one thread. The prior of a cluster one larger is known to the caller.
template <bool ROSE>
BHCLUST_DEVICE void take_down(
    const Search& s, Board& board, int operation, double log_f, double log_gamma, double single_prior
) {
    const i64 step = board.step;
    board.merged = merged_node<ROSE>(board.row_nodes[0], board.row_nodes[1], operation, log_f, log_gamma, s.mixing);
    board.single_prior = single_prior;
    board.log_f = log_f;
    board.common = single_prior + log_f - board.merged.mass;
    if ((int)blockIdx.x != step % gridDim.x) return;
    s.merges[3 * step] = board.left_id;
    s.merges[3 * step + 1] = board.chosen.partner;
    s.merges[3 * step + 2] = operation;
    s.merge_log_f[step] = log_f;
}

// The leaf of the pair that a pass has led to, found in the first region: what all need to merge it
// with the focus, by the last warp.
template <class M>
BHCLUST_DEVICE void give_first(
    const Search& s, const M& model, Board& board, const double* focus, double* scratch
) {
    const int position[1] = {board.left.position};
    typename M::template Ahead<1> ahead;
    double log_f[1] = {0.0};
    model.template fetch<1>(position, ahead);
    model.template leaves<1>(focus, position, ahead, scratch, log_f);
    if (!is_helper(0)) return;
    board.left_id = board.lost[0] = s.regions[0].id[position[0]];
    board.lost[1] = board.chosen.partner;
    board.n_consumed = 0;
    board.row_nodes[0] = node_at<false>(s, board.left);
    board.row_nodes[1] = board.merged;
    board.log_f = log_f[0];
    *(typename M::template Ahead<1>*)board.leaf = ahead;
}

// The focus takes the leaf that was given. Its log f is known from the look-ups that chose it, so that
// the first warp makes the node while the others find what the next look-ups need. Returns the rise,
// known to the first thread.
template <class M>
BHCLUST_DEVICE double take_leaf(
    const Search& s, const M& model, Board& board, double* focus, const double* facts, double log_gamma,
    double next_log_gamma
) {
    typedef typename M::template Ahead<1> Leaf;
    const Leaf& leaf = *(const Leaf*)board.leaf;
    const int position = board.left.position, first = (int)threadIdx.x - WARP, step = (int)blockDim.x - WARP;
    double rise = 0.0;
    if (threadIdx.x == 0) {
        const bool by_size = s.mixing.code == DIRICHLET_PROCESS;
        const double single_prior = by_size ? s.mixing.parameter + next_log_gamma : board.single_prior;
        model.set_log_f(focus, board.log_f);
        take_down<false>(s, board, JOIN, board.log_f, log_gamma, single_prior);
        board.n_grown++;
    } else if (warp_of_thread() > 0) {
        rise = warp_sum(model.grow(focus, facts, leaf, position, first, step));
        if (lane_of_thread() == 0) board.sums[warp_of_thread()] = rise;
    }
    __syncthreads();
    rise = 0.0;
    if (threadIdx.x == 0) {
        for (int w = 1; w < warps_of_block(); w++) rise += board.sums[w];
    } else if (warp_of_thread() > 0) {
        model.settle(focus, facts, leaf, position, first, step);
        model.tabulate(focus, facts, first, step);
    }
    __syncthreads();
    return rise;
}

// Merge the cluster of the last pass with its leaf, and the new cluster with leaf after leaf as long as
// it is certain that these are the next merges.
template <class M>
BHCLUST_DEVICE void run_on(
    const Search& s, const M& model, Board& board, double* focus, const double* facts, double* scratch, i64 tag
) {
    RunRoom& room = run_room(s, focus);
    Run<M> run;
    double mass_before = board.merged.mass, log_gamma = 0.0, next_log_gamma = 0.0;
    int next = -1;
    run.hear_bounds(s, board, room, tag);
    if (warp_of_thread() == warps_of_block() - 1) give_first(s, model, board, focus, scratch);
    if (is_helper(2)) keep_books<false, M>(s, board);
    if (threadIdx.x == 0) {
        log_gamma = log_gamma_of(s.mixing, board.merged.weight + 1.0);
        next_log_gamma = log_gamma_of(s.mixing, board.merged.weight + 2.0);
    }
    __syncthreads();
    run.list(s, board, room, tag);
    __syncthreads();
    run.look_ahead(s, model, board, room);
    while (true) {
        const double rise = take_leaf(s, model, board, focus, facts, log_gamma, next_log_gamma);
        if ((int)threadIdx.x == next) {
            consume(room, run.id);
            board.n_consumed++;
            // Nobody else reads what is marked: the other blocks know the leaf from what was told.
            if (owns<M>(Place{0, run.position[0]})) mark_dead<false>(s.regions[0], run.position[0]);
        }
        if (threadIdx.x == 0) {
            run.raise_bounds(rise, mass_before, board.merged.mass);
            // On its way while the next leaf is chosen.
            log_gamma = next_log_gamma;
            next_log_gamma = log_gamma_of(s.mixing, fmin(board.merged.weight + 2.0, s.n_leaves + 1.0));
        }
        mass_before = board.merged.mass;
        run.choose(model, board, focus, scratch);
        __syncthreads();
        next = board.next;
        if (next < 0) break;
        if ((int)threadIdx.x == next) run.give(s, board);
        if (threadIdx.x == 0) {
            Control& control = board.control;
            control.n_live[0]--;
            board.chosen.partner = board.newest;
            board.step = (int)control.n_merges++;
            board.newest = board.focus_id = (int)s.n_leaves + board.step;
            board.row_nodes[1] = board.merged;
        }
        __syncthreads();
    }
}
