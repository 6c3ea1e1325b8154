// Merges without a pass: a cluster that takes leaf after leaf.
//
// A pass scores the new cluster C against every live cluster, and the next merge is mostly C with the
// best leaf x. Which leaf C + x takes next needs no pass where a bound says so. A leaf y gains from x,
// beside what all leaves gain, at most the *rise* of x: what log p(y | C) can grow by. So a leaf that
// was far below the best ones cannot be the next one, and it is enough to score those on a short list
// anew. Every block does this for itself, with the same outcome, until a leaf outside the list, another
// cluster, or a pair without C might be better. Then there is a pass for the last cluster; those in
// between are gone, so that nobody needs their offers. The merges are the same as with a pass each.

BHCLUST_DEVICE double warp_largest(double value) {
    for (int mask = WARP / 2; mask > 0; mask /= 2) value = fmax(value, across_lanes(value, mask));
    return value;
}

// Put what the threads of a warp see together, for the warp that tells.
BHCLUST_DEVICE void note_outlook(const Outlook& mine, Board& board) {
    const Entry top = warp_best<false>(Entry{mine.top, 0.0, mine.position >= 0 ? mine.position : 2147483647, lane_of_thread()});
    const int winner = top.partner < 0 ? 0 : top.partner;
    Outlook all = mine;
    all.top = top.score;
    all.position = from_lane(mine.position, winner);
    all.top_mass = from_lane(mine.top_mass, winner);
    all.second = warp_largest(lane_of_thread() == winner ? mine.second : mine.top);
    all.others = warp_largest(mine.others);
    all.clusters = warp_largest(mine.clusters);
    if (lane_of_thread() == 0) board.outlooks[warp_of_thread()] = all;
}

// Tell the best leaves of this block and what bounds the others. The first warp does this.
BHCLUST_DEVICE void tell_outlook(const Search& s, const Board& board, i64 tag) {
    Told& told = s.told[(tag % 2) * gridDim.x + blockIdx.x];
    const int lane = lane_of_thread();
    Outlook own;
    if (lane < warps_of_block()) own = board.outlooks[lane];
    for (int c = 0; c < LISTED; c++) {
        const Entry top = warp_best<false>(Entry{own.top, 0.0, own.position >= 0 ? own.position : 2147483647, lane});
        const int winner = top.partner < 0 ? 0 : top.partner;
        if (lane == winner) {
            told.leaves[c] = Pair{own.top, own.top_mass};
            told.position[c] = own.top > -INFINITE ? own.position : -1;
            own.top = -INFINITE;
            own.position = -1;
        }
        __syncwarp();
    }
    const double rest = warp_largest(fmax(own.top, own.second));
    const double others = warp_largest(own.others), clusters = warp_largest(own.clusters);
    if (lane != 0) return;
    told.bounds = Pair{rest, others};
    told.clusters = clusters;
}

BHCLUST_DEVICE int place_in_hash(int id) { return (int)((unsigned)id * 2654435761u >> 22) % CONSUMED; }

BHCLUST_DEVICE void consume(Board& board, int id) {
    int at = place_in_hash(id);
    while (board.consumed[at] >= 0) at = (at + 1) % CONSUMED;
    board.consumed[at] = id;
    board.n_consumed++;
}

BHCLUST_DEVICE bool is_consumed(const Board& board, int id) {
    for (int at = place_in_hash(id); board.consumed[at] >= 0; at = (at + 1) % CONSUMED)
        if (board.consumed[at] == id) return true;
    return false;
}

// The short list of a run: a thread has a leaf of it. Bounds are known to the first thread.
template <class M>
struct Run {
    int position[1], id;
    double mass;
    bool listed;
    typename M::template Ahead<1> ahead;
    double unlisted;  // of leaves outside the list, less what all leaves have in common
    double others, clusters;

    // From what was told after the pass of the cluster that is now merged with a leaf.
    BHCLUST_DEVICE void begin(const Search& s, const M& model, Board& board, i64 tag) {
        const Told* told = s.told + (tag % 2) * gridDim.x;
        for (int t = threadIdx.x; t < CONSUMED; t += blockDim.x) board.consumed[t] = -1;
        const int n_listed = LISTED * (int)gridDim.x, t = threadIdx.x;
        listed = false;
        position[0] = 0;
        mass = 0.0;
        id = -1;
        if (t < n_listed) {
            const Told& of = told[t / LISTED];
            const int p = of.position[t % LISTED];
            listed = p >= 0 && !(board.left.region == 0 && board.left.position == p)
                && !(board.right.region == 0 && board.right.position == p);
            if (listed) {
                position[0] = p;
                mass = of.leaves[t % LISTED].y;
                id = s.regions[0].id[p];
                model.template fetch<1>(position, ahead);
            }
        }
        if (warp_of_thread() > 0) return;
        unlisted = others = clusters = -INFINITE;
        for (int b = lane_of_thread(); b < (int)gridDim.x; b += WARP) {
            const Pair bounds = told[b].bounds;
            unlisted = fmax(unlisted, bounds.x);
            others = fmax(others, bounds.y);
            clusters = fmax(clusters, told[b].clusters);
        }
        for (int r = (int)blockDim.x + lane_of_thread(); r < n_listed; r += WARP)  // no thread has these
            unlisted = fmax(unlisted, told[r / LISTED].leaves[r % LISTED].x);
        unlisted = warp_largest(unlisted) - board.common;
        others = warp_largest(others);
        clusters = warp_largest(clusters);
    }

    // Take in that the focus has grown by a leaf.
    BHCLUST_DEVICE void grow(const Search& s, double rise, double mass_before, double mass_now) {
        unlisted += rise;
        // No leaf has more than probability one given anything.
        clusters += (s.mixing.code == DIRICHLET_PROCESS ? log((double)s.n_leaves) : 0.0) - (mass_now - mass_before);
    }

    // The best leaf of the list for the cluster that has been made, if it is certain to be the next.
    // All threads take part; board.next is the thread that has it, or -1. A barrier must follow.
    BHCLUST_DEVICE void choose(
        const M& model, Board& board, const double* focus, double* scratch
    ) const {
        Entry mine = no_entry();
        double log_f[1] = {0.0};
        model.template leaves<1>(focus, position, ahead, scratch, log_f);
        if (listed) {
            mine.score = round_odds(board.single_prior + log_f[0] - (board.merged.mass + mass));
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

    // The thread that has the next leaf gives it up.
    BHCLUST_DEVICE void take(const Search& s, Board& board, bool owned) {
        listed = false;
        board.left = Place{0, position[0]};
        board.left_id = id;
        board.row_nodes[0] = Node{1.0, mass, s.leaf_log_d, 0.0, -INFINITE, -INFINITE, 0.0, 0.0, 0.0};
        consume(board, id);
        // Nobody else reads what is marked: the other blocks know the leaf from what was told.
        if (owned) mark_dead<false>(s.regions[0], position[0]);
    }
};
