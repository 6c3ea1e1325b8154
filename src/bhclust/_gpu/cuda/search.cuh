// The exact greedy search on the device, one launch for thousands of merges.
//
// Every block keeps the same small record of the search (`Board`) and does the same bookkeeping, so
// that one barrier of the grid a step is enough: after it each block reads what all blocks found,
// comes to the same decision, builds the same focus, and scans its own share of the live clusters.
// A cluster that dies leaves a hole which is filled one step later, when nobody reads it any more.

constexpr int ROWS = 4;        // clusters that look for a new partner in one step
constexpr int MOST_FOCI = 8;   // foci that a block scores at once

// Live clusters by position; region 0 holds leaves that are still alone.
struct Region {
    int *id, *partner;  // partner: -1 if it was merged away, the score is then an upper bound
    double *score, *tiebreak, *needed;
    double *rest_score, *rest_tiebreak, *rest_needed;  // a bound on all other partners
    double *mass, *evidence, *weight, *log_d, *log_1m_r, *log_1m_pi, *n_children, *child_mass, *child_log_d;
};

// What is carried from launch to launch.
struct Control {
    i64 n_positions[2], n_holes[2], holes[2][2];
    i64 n_merges, n_rescans, n_pairs, failed;
    i64 n_read[2];  // leaves and clusters whose statistics were read in all passes
};

struct Search {
    Mixing mixing;
    i64 n_leaves, n_steps, focus_apart, scratch_size;
    double leaf_log_d;
    Region regions[2];
    int* position_of;      // by id
    int* merges;           // left, right, operation of each
    double* merge_log_f;
    Entry* block_best;     // [2][blocks]
    Candidate* row_best;   // [2][ROWS][blocks]
    double* far_focus;     // foci that do not fit into shared memory, ROWS a block; or null
    double* far_scratch;   // likewise for the warps' scratch
    Control* control;
};

struct Move {
    int region, from, to;
};

struct Board {
    Control control;
    Entry entries[MOST_WARPS];
    Candidate candidates[MOST_WARPS];
    double sums[MOST_WARPS];
    Entry mine;                 // best of this block's clusters
    Entry chosen;
    Candidate rows[ROWS];       // clusters that look again, then what they found
    Node row_nodes[MOST_FOCI], merged;  // of a merge: left and right
    Place row_places[ROWS], left, right;
    i64 scanned[2], n_skipped[2];
    int skipped[2][4];
    Move moves[4];
    int n_moves, new_position, n_rows, done;
    int outdated;  // clusters came or went since this block's best was found
};

constexpr int BOARD_BYTES = 4096;  // the host reserves so much for the board
static_assert(sizeof(Board) <= BOARD_BYTES, "the board has outgrown its place");

BHCLUST_DEVICE Place place_of(const Search& s, int id) { return Place{id >= s.n_leaves ? 1 : 0, s.position_of[id]}; }

// A walk over a block's share of a region. Leaves go to the lanes of a warp, clusters to a warp as a
// whole. They are dealt to blocks first, so that few of them keep all blocks busy; clusters start
// with the last warp, because the first ones have the leaves.
template <bool BY_WARP>
struct Walk {
    static BHCLUST_DEVICE int owner(int position) { return (BY_WARP ? position : position / WARP) % gridDim.x; }
    static BHCLUST_DEVICE i64 step() { return (i64)warps_of_block() * gridDim.x * (BY_WARP ? 1 : WARP); }
    static BHCLUST_DEVICE i64 first(int region) {
        int warp = region == 0 ? warp_of_thread() : warps_of_block() - 1 - warp_of_thread();
        return ((i64)warp * gridDim.x + blockIdx.x) * (BY_WARP ? 1 : WARP);
    }
    // position of this lane in the group that starts at a position
    static BHCLUST_DEVICE int own(i64 start) { return (int)start + (BY_WARP ? 0 : lane_of_thread()); }
    // whether this lane does the bookkeeping of its position
    static BHCLUST_DEVICE bool leads() { return !BY_WARP || lane_of_thread() == 0; }
};

template <class M>
BHCLUST_DEVICE bool owns(Place at) {
    int owner = at.region == 1 || M::ONE_BY_ONE ? Walk<true>::owner(at.position) : Walk<false>::owner(at.position);
    return owner == (int)blockIdx.x;
}

template <bool ROSE>
BHCLUST_DEVICE Node node_at(const Search& s, Place at) {
    const Region& g = s.regions[at.region];
    int p = at.position;
    Node node;
    node.weight = at.region == 0 ? 1.0 : g.weight[p];
    node.mass = g.mass[p];
    node.log_d = s.leaf_log_d;
    node.evidence = 0.0;
    node.log_1m_r = node.log_1m_pi = -INFINITE;
    node.n_children = node.child_mass = node.child_log_d = 0.0;
    if (ROSE) node.evidence = g.evidence[p];
    if (ROSE && at.region == 1) {
        node.log_d = g.log_d[p];
        node.log_1m_r = g.log_1m_r[p];
        node.log_1m_pi = g.log_1m_pi[p];
        node.n_children = g.n_children[p];
        node.child_mass = g.child_mass[p];
        node.child_log_d = g.child_log_d[p];
    }
    return node;
}

template <bool ROSE>
BHCLUST_DEVICE void write_node(const Search& s, int position, const Node& node, int id) {
    const Region& g = s.regions[1];
    g.id[position] = id;
    g.partner[position] = -1;
    g.score[position] = g.rest_score[position] = -INFINITE;
    g.mass[position] = node.mass;
    g.weight[position] = node.weight;
    s.position_of[id] = position;
    if (!ROSE) return;
    g.tiebreak[position] = g.needed[position] = -INFINITE;
    g.rest_tiebreak[position] = g.rest_needed[position] = -INFINITE;
    g.evidence[position] = node.evidence;
    g.log_d[position] = node.log_d;
    g.log_1m_r[position] = node.log_1m_r;
    g.log_1m_pi[position] = node.log_1m_pi;
    g.n_children[position] = node.n_children;
    g.child_mass[position] = node.child_mass;
    g.child_log_d[position] = node.child_log_d;
}

template <bool ROSE>
BHCLUST_DEVICE void move_node(const Search& s, int region, int from, int to) {
    const Region& g = s.regions[region];
    g.id[to] = g.id[from];
    g.partner[to] = g.partner[from];
    g.score[to] = g.score[from];
    g.rest_score[to] = g.rest_score[from];
    g.mass[to] = g.mass[from];
    s.position_of[g.id[from]] = to;
    if (region == 1) g.weight[to] = g.weight[from];
    if (!ROSE) return;
    g.tiebreak[to] = g.tiebreak[from];
    g.needed[to] = g.needed[from];
    g.rest_tiebreak[to] = g.rest_tiebreak[from];
    g.rest_needed[to] = g.rest_needed[from];
    g.evidence[to] = g.evidence[from];
    if (region == 0) return;
    g.log_d[to] = g.log_d[from];
    g.log_1m_r[to] = g.log_1m_r[from];
    g.log_1m_pi[to] = g.log_1m_pi[from];
    g.n_children[to] = g.n_children[from];
    g.child_mass[to] = g.child_mass[from];
    g.child_log_d[to] = g.child_log_d[from];
}

BHCLUST_DEVICE bool is_skipped(const Board& board, int region, int position) {
    bool found = false;
    for (int h = 0; h < board.n_skipped[region]; h++) found = found || board.skipped[region][h] == position;
    return found;
}

// Say which positions hold no live cluster in this step, and find the new cluster and those at the
// end of a region a place in the holes of the last merge. One thread of every block does this.
BHCLUST_DEVICE void plan_places(Board& board, bool merges) {
    Control& control = board.control;
    board.n_moves = 0;
    for (int region = 0; region < 2; region++) {
        board.scanned[region] = control.n_positions[region];
        int n_skipped = 0;
        for (int h = 0; h < control.n_holes[region]; h++)
            board.skipped[region][n_skipped++] = (int)control.holes[region][h];
        int dying[2], n_dying = 0;
        if (merges && board.left.region == region) dying[n_dying++] = board.left.position;
        if (merges && board.right.region == region) dying[n_dying++] = board.right.position;
        for (int h = 0; h < n_dying; h++) board.skipped[region][n_skipped++] = dying[h];
        board.n_skipped[region] = n_skipped;
        if (!merges) continue;
        i64 *holes = control.holes[region], &n_holes = control.n_holes[region], &n = control.n_positions[region];
        // The lowest hole is filled first: what moves into a hole must not have to move again.
        if (n_holes == 2 && holes[0] < holes[1]) {
            i64 lowest = holes[0];
            holes[0] = holes[1];
            holes[1] = lowest;
        }
        if (region == 1) board.new_position = (int)(n_holes > 0 ? holes[--n_holes] : n++);
        while (n_holes > 0) {
            i64 last = n - 1;
            int which = n_dying > 0 && dying[0] == last ? 0 : (n_dying > 1 && dying[1] == last ? 1 : -1);
            if (holes[0] == last) {
                holes[0] = holes[n_holes - 1];
                n_holes--;
            } else if (which >= 0) {
                dying[which] = dying[n_dying - 1];
                n_dying--;
            } else {
                board.moves[board.n_moves++] = Move{region, (int)last, (int)holes[--n_holes]};
            }
            n--;
        }
        for (int h = 0; h < n_dying; h++) holes[n_holes++] = dying[h];
    }
}

// Reduce what the last step found and decide on the next one: a merge (no rows) or rows to rescan.
template <bool ROSE, class M>
BHCLUST_DEVICE void decide(const Search& s, Board& board, int buffer) {
    const int lane = lane_of_thread(), n_blocks = gridDim.x, n_found = board.n_rows;
    const Entry* block_entries = s.block_best + (i64)buffer * n_blocks;
    const Candidate* row_entries = s.row_best + (i64)buffer * ROWS * n_blocks;
    // Everything is read at once: each thread has the entries of one block.
    Entry best = no_entry(), fresh = no_entry();
    for (int b = threadIdx.x; b < n_blocks; b += blockDim.x) {
        Entry other = block_entries[b];
        if (better<ROSE>(other, best)) best = other;
        if (other.partner >= 0 && better<ROSE>(other, fresh)) fresh = other;
    }
    for (int r = 0; r < n_found; r++) {
        Candidate found = no_candidate();
        for (int b = threadIdx.x; b < n_blocks; b += blockDim.x)
            found = better_of<ROSE>(row_entries[r * n_blocks + b], found);
        found = block_best<ROSE>(found, board.candidates, no_candidate());
        if (threadIdx.x == 0) {
            found.best.partner = found.best.score > -INFINITE ? found.best.id : -1;
            found.best.id = board.rows[r].best.id;
            board.rows[r] = found;
        }
    }
    best = block_best<ROSE>(best, board.entries, no_entry());
    if (threadIdx.x == 0) {
        for (int r = 0; r < n_found; r++) {
            const Candidate& found = board.rows[r];
            const Entry row = found.best;
            if (better<ROSE>(row, best)) best = row;
            if (row.partner >= 0 && better<ROSE>(row, fresh)) fresh = row;
            Place at = board.row_places[r];
            if (!owns<M>(at)) continue;
            const Region& g = s.regions[at.region];
            g.score[at.position] = row.score;
            g.partner[at.position] = row.partner;
            if (ROSE) g.tiebreak[at.position] = row.tiebreak;
            g.rest_score[at.position] = found.rest.score;
            if (ROSE) g.needed[at.position] = found.needed;
            if (ROSE) g.rest_tiebreak[at.position] = found.rest.tiebreak;
            if (ROSE) g.rest_needed[at.position] = found.rest.needed;
            if (better<ROSE>(row, board.mine)) board.mine = row;
        }
        board.chosen = best;
    }
    __syncthreads();
    best = board.chosen;
    // Only a stale choice needs the best of the fresh ones.
    if (best.partner < 0) fresh = block_best<ROSE>(fresh, board.entries, no_entry());
    if (warp_of_thread() == 0) {
        Entry rows[ROWS];
        int n_rows = 0;
        if (best.partner < 0) {
            Entry last = best;
            rows[n_rows++] = best;
            // Rows that were just scanned are fresh, so only the blocks' own bests can be stale.
            while (n_rows < ROWS) {
                Entry next = no_entry();
                for (int b = lane; b < n_blocks; b += WARP) {
                    Entry other = block_entries[b];
                    if (other.partner < 0 && other.score > -INFINITE && better<ROSE>(last, other) &&
                        better<ROSE>(other, fresh) && better<ROSE>(other, next))
                        next = other;
                }
                next = warp_best<ROSE>(next);
                if (next.score == -INFINITE) break;
                rows[n_rows++] = last = next;
            }
        }
        if (lane == 0) {
            for (int r = 0; r < n_rows; r++) board.rows[r].best = rows[r];
            board.n_rows = n_rows;
            board.done = 0;
            if (best.score == -INFINITE) {
                board.control.failed = 1;
                board.done = 1;
            } else if (n_rows == 0) {
                board.left = place_of(s, best.id);
                board.right = place_of(s, best.partner);
            } else {
                for (int r = 0; r < n_rows; r++) board.row_places[r] = place_of(s, rows[r].id);
            }
            if (!board.done) plan_places(board, n_rows == 0);
        }
    }
    __syncthreads();
}

// Let the new cluster compete for being the best partner of the live ones in a region.
template <bool ROSE, class M, int REGION>
BHCLUST_DEVICE void offer(
    const Search& s, const M& model, const Board& board, const double* focus, double* scratch, int k, Entry& best
) {
    typedef Walk<REGION == 1 || M::ONE_BY_ONE> Steps;
    const Region& g = s.regions[REGION];
    const int i = board.chosen.id, j = board.chosen.partner;
    const Node merged = board.merged;
    const bool merged_filter = ROSE && filter_holds(merged.log_1m_r, merged.log_1m_pi, s.mixing);
    const double single_prior = odds_prior(s.mixing, merged.weight + 1.0);
    const i64 n = board.scanned[REGION];
    for (i64 start = Steps::first(REGION); start < n; start += Steps::step()) {
        const int p = Steps::own(start);
        const bool live = p < n && !is_skipped(board, REGION, p);
        const int q = live ? p : (int)start;
        // Read before the model does, so that everything is on its way at once.
        Entry entry;
        Bound rest;
        entry.score = g.score[q];
        entry.tiebreak = ROSE ? g.tiebreak[q] : 0.0;
        entry.partner = g.partner[q];
        rest.score = g.rest_score[q];
        rest.tiebreak = ROSE ? g.rest_tiebreak[q] : 0.0;
        rest.needed = ROSE ? g.rest_needed[q] : 0.0;
        const double own = ROSE ? g.evidence[q] : g.mass[q];
        double log_f[1] = {0.0};
        if (REGION == 0)
            model.template singles<1>(focus, 0, 1, q, scratch, log_f);
        else
            model.template clusters<1>(focus, 0, 1, q, scratch, log_f);
        if (!live || !Steps::leads()) continue;
        const bool lost = entry.partner == i || entry.partner == j;
        if (lost) {
            // What is left is the bound; without a partner it is the score.
            g.score[p] = entry.score = rest.score;
            g.partner[p] = entry.partner = -1;
            if (ROSE) g.tiebreak[p] = entry.tiebreak = rest.tiebreak;
            if (ROSE) g.needed[p] = rest.needed;
        }
        // Only what beats the bound changes anything, and most are far from it: they need no
        // rounding, and in a rose tree no ratio.
        double score = -INFINITE, tiebreak = 0.0, needed = 0.0;
        if (ROSE) {
            double gain = log_f[0] - (merged.evidence + own);
            bool hopeless = gain < rest.needed && merged_filter;
            if (hopeless && REGION == 1) hopeless = filter_holds(g.log_1m_r[p], g.log_1m_pi[p], s.mixing);
            if (!hopeless) {
                Node other = node_at<ROSE>(s, Place{REGION, p});
                RatioScore found = ratio_score(other, merged, gain, s.mixing);
                score = found.score;
                tiebreak = found.tiebreak;
                needed = found.needed;
            }
        } else {
            double prior = REGION == 0 ? single_prior : odds_prior(s.mixing, merged.weight + g.weight[p]);
            double raw = prior + log_f[0] - (merged.mass + own);
            if (raw > rest.score - 1.0 / ODDS_STEPS) score = round_odds(raw);
        }
        // Only a strictly better offer wins: on a tie every older partner has a lower id.
        if (above<ROSE>(score, tiebreak, entry.score, entry.tiebreak)) {
            g.rest_score[p] = entry.score;
            if (ROSE) g.rest_tiebreak[p] = entry.tiebreak;
            if (ROSE) g.rest_needed[p] = g.needed[p];
            g.score[p] = entry.score = score;
            g.partner[p] = entry.partner = k;
            if (ROSE) g.tiebreak[p] = entry.tiebreak = tiebreak;
            if (ROSE) g.needed[p] = needed;
        } else if (above<ROSE>(score, tiebreak, rest.score, rest.tiebreak)) {
            g.rest_score[p] = score;
            if (ROSE) g.rest_tiebreak[p] = tiebreak;
            if (ROSE) g.rest_needed[p] = needed;
        }
        if (entry.score >= best.score) {
            entry.id = g.id[p];
            if (better<ROSE>(entry, best)) best = entry;
        }
    }
}

// Score some clusters against the live ones of a region and keep each one's best partner.
template <bool ROSE, class M, int REGION, int R>
BHCLUST_DEVICE void look(
    const Search& s, const M& model, const Board& board, const double* focus, double* scratch, Candidate (&best)[ROWS]
) {
    typedef Walk<REGION == 1 || M::ONE_BY_ONE> Steps;
    const Region& g = s.regions[REGION];
    const i64 n = board.scanned[REGION];
    for (i64 start = Steps::first(REGION); start < n; start += Steps::step()) {
        const int p = Steps::own(start);
        const bool live = p < n && !is_skipped(board, REGION, p);
        const int q = live ? p : (int)start;
        const int id = g.id[q];
        double log_f[R];
        for (int r = 0; r < R; r++) log_f[r] = 0.0;
        if (REGION == 0)
            model.template singles<R>(focus, s.focus_apart, board.n_rows, q, scratch, log_f);
        else
            model.template clusters<R>(focus, s.focus_apart, board.n_rows, q, scratch, log_f);
        if (!live || !Steps::leads()) continue;
        Node other = node_at<ROSE>(s, Place{REGION, p});
#pragma unroll
        for (int r = 0; r < R; r++) {
            if (r >= board.n_rows || id <= board.rows[r].best.id) continue;
            const Node& row = board.row_nodes[r];
            Candidate found = no_candidate();
            found.best.id = id;
            if (ROSE) {
                double gain = log_f[r] - (row.evidence + other.evidence);
                RatioScore ratio = ratio_score(row, other, gain, s.mixing);
                found.best.score = ratio.score;
                found.best.tiebreak = ratio.tiebreak;
                found.needed = ratio.needed;
            } else {
                double raw = odds_prior(s.mixing, row.weight + other.weight) + log_f[r] - (row.mass + other.mass);
                if (raw > best[r].rest.score - 1.0 / ODDS_STEPS) found.best.score = round_odds(raw);
            }
            if (found.best.score > -INFINITE) best[r] = better_of<ROSE>(found, best[r]);
        }
    }
}

// The best of this block's clusters in a region, but for the rows that look again.
template <bool ROSE, bool BY_WARP>
BHCLUST_DEVICE void survey_region(const Search& s, const Board& board, int region, Entry& best) {
    typedef Walk<BY_WARP> Steps;
    const Region& g = s.regions[region];
    for (i64 start = Steps::first(region); start < board.scanned[region]; start += Steps::step()) {
        const int p = Steps::own(start);
        if (p >= board.scanned[region] || is_skipped(board, region, p) || !Steps::leads()) continue;
        Entry entry{g.score[p], ROSE ? g.tiebreak[p] : 0.0, g.id[p], g.partner[p]};
        bool excluded = false;
        for (int r = 0; r < board.n_rows; r++) excluded = excluded || entry.id == board.rows[r].best.id;
        if (!excluded && entry.score > -INFINITE && better<ROSE>(entry, best)) best = entry;
    }
}

template <bool ROSE, class M>
BHCLUST_DEVICE Entry survey(const Search& s, Board& board) {
    Entry best = no_entry();
    survey_region<ROSE, M::ONE_BY_ONE>(s, board, 0, best);
    survey_region<ROSE, true>(s, board, 1, best);
    return block_best<ROSE>(best, board.entries, no_entry());
}

BHCLUST_DEVICE void count_pass(Board& board, int n_foci) {
    for (int region = 0; region < 2; region++) {
        i64 n_live = board.scanned[region] - board.n_skipped[region];
        board.control.n_pairs += n_foci * n_live;
        board.control.n_read[region] += n_live;
    }
}

template <bool ROSE, class M>
BHCLUST_DEVICE void merge_step(
    const Search& s, const M& model, Board& board, double* focus, double* scratch, int next_buffer
) {
    // Two threads of the last warp read the nodes while the others gather.
    if (threadIdx.x + 1 == blockDim.x) board.row_nodes[0] = node_at<ROSE>(s, board.left);
    if (threadIdx.x + 2 == blockDim.x) board.row_nodes[1] = node_at<ROSE>(s, board.right);
    model.gather(focus, board.left, board.right, board.sums);
    __syncthreads();
    const Node &left = board.row_nodes[0], &right = board.row_nodes[1];
    // On its way while the focus is prepared.
    const double log_gamma = threadIdx.x == 0 ? log_gamma_of(s.mixing, left.weight + right.weight) : 0.0;
    double log_f = model.prepare(focus, board.sums);
    const int step = (int)board.control.n_merges, k = (int)s.n_leaves + step;
    if (threadIdx.x == 0) {
        int operation = JOIN;
        if (ROSE) {
            RatioTerms terms;
            operation = best_operation(left, right, log_f - (left.evidence + right.evidence), s.mixing, terms);
        }
        board.merged = merged_node<ROSE>(left, right, operation, log_f, log_gamma, s.mixing);
        if (blockIdx.x == 0) {
            s.merges[3 * (i64)step] = board.chosen.id;
            s.merges[3 * (i64)step + 1] = board.chosen.partner;
            s.merges[3 * (i64)step + 2] = operation;
            s.merge_log_f[step] = log_f;
        }
    }
    __syncthreads();
    Entry best = no_entry();
    offer<ROSE, M, 0>(s, model, board, focus, scratch, k, best);
    offer<ROSE, M, 1>(s, model, board, focus, scratch, k, best);
    best = block_best<ROSE>(best, board.entries, no_entry());
    if (threadIdx.x == 0) {
        board.mine = best;
        s.block_best[(i64)next_buffer * gridDim.x + blockIdx.x] = best;
        board.control.n_merges++;
        count_pass(board, 1);
    }
    // The statistics of a live cluster are written only where nobody reads in this step.
    if (blockIdx.x == step % gridDim.x) {
        model.store(focus, board.new_position);
        if (threadIdx.x == 0) write_node<ROSE>(s, board.new_position, board.merged, k);
    }
    if (threadIdx.x == 0) board.outdated = 0;
    for (int m = 0; m < board.n_moves; m++) {
        Move move = board.moves[m];
        bool is_giver = owns<M>(Place{move.region, move.from});
        if (threadIdx.x == 0 && (is_giver || owns<M>(Place{move.region, move.to}))) board.outdated = 1;
        if (!is_giver) continue;
        model.move(move.region, move.from, move.to);
        if (threadIdx.x == 0) move_node<ROSE>(s, move.region, move.from, move.to);
    }
}

template <bool ROSE, class M>
BHCLUST_DEVICE void rescan_step(
    const Search& s, const M& model, Board& board, double* focus, double* scratch, int next_buffer
) {
    bool must_survey = board.outdated;
    for (int r = 0; r < board.n_rows; r++) {
        model.gather(focus + r * s.focus_apart, board.row_places[r], Place{-1, 0}, board.sums);
        __syncthreads();
        model.prepare(focus + r * s.focus_apart, board.sums);
        if (threadIdx.x == 0) board.row_nodes[r] = node_at<ROSE>(s, board.row_places[r]);
        must_survey = must_survey || owns<M>(board.row_places[r]);
    }
    __syncthreads();
    Candidate best[ROWS];
    for (int r = 0; r < ROWS; r++) best[r] = no_candidate();
    if (board.n_rows == 1) {
        look<ROSE, M, 0, 1>(s, model, board, focus, scratch, best);
        look<ROSE, M, 1, 1>(s, model, board, focus, scratch, best);
    } else {
        look<ROSE, M, 0, ROWS>(s, model, board, focus, scratch, best);
        look<ROSE, M, 1, ROWS>(s, model, board, focus, scratch, best);
    }
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        if (r >= board.n_rows) continue;
        Candidate found = block_best<ROSE>(best[r], board.candidates, no_candidate());
        if (threadIdx.x == 0) s.row_best[((i64)next_buffer * ROWS + r) * gridDim.x + blockIdx.x] = found;
    }
    Entry mine = board.mine;
    if (must_survey) mine = survey<ROSE, M>(s, board);
    if (threadIdx.x == 0) {
        board.mine = mine;
        board.outdated = 0;
        s.block_best[(i64)next_buffer * gridDim.x + blockIdx.x] = mine;
        board.control.n_rescans += board.n_rows;
        count_pass(board, board.n_rows);
    }
}

// Board, foci and the warps' scratch share the block's memory; what is too large is far away.
struct Memory {
    Board* board;
    double *focus, *scratch;
};

BHCLUST_DEVICE Memory share_memory(double* shared, const Search& s, int n_foci) {
    double* focus = shared + BOARD_BYTES / 8;
    double* near_scratch = s.far_focus ? focus : focus + n_foci * s.focus_apart;
    double* scratch = s.far_scratch ? s.far_scratch + (i64)blockIdx.x * warps_of_block() * s.scratch_size : near_scratch;
    if (s.far_focus) focus = s.far_focus + (i64)blockIdx.x * n_foci * s.focus_apart;
    return Memory{(Board*)shared, focus, scratch + warp_of_thread() * s.scratch_size};
}

// The record of a launch stands in constant memory: first the search, then the model.
BHCLUST_CONSTANT(record, 4096)

template <bool ROSE, class M>
__global__ void __launch_bounds__(BHCLUST_THREADS, 1) search() {
    BHCLUST_SHARED(shared);
    const Search& s = *(const Search*)record;
    const M& model = *(const M*)(record + sizeof(Search) / 8);
    Memory memory = share_memory(shared, s, ROWS);
    Board& board = *memory.board;
    if (threadIdx.x == 0) {
        board.control = *s.control;
        board.n_rows = board.outdated = 0;
        plan_places(board, false);
    }
    __syncthreads();
    Entry mine = survey<ROSE, M>(s, board);
    if (threadIdx.x == 0) {
        board.mine = mine;
        s.block_best[blockIdx.x] = mine;
    }
    for (i64 step = 0; step < s.n_steps && board.control.n_merges < s.n_leaves - 1; step++) {
        grid_barrier();
        decide<ROSE, M>(s, board, (int)(step % 2));
        if (board.done) break;
        int next_buffer = (int)((step + 1) % 2);
        if (board.n_rows == 0)
            merge_step<ROSE, M>(s, model, board, memory.focus, memory.scratch, next_buffer);
        else
            rescan_step<ROSE, M>(s, model, board, memory.focus, memory.scratch, next_buffer);
        __syncthreads();
    }
    grid_barrier();
    if (blockIdx.x == 0 && threadIdx.x == 0) *s.control = board.control;
}
