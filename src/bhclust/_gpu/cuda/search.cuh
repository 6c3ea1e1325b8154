// The exact greedy search on the device, one launch for thousands of merges.
//
// Every block keeps the same small record of the search (`Board`) and does the same bookkeeping, so
// that blocks meet once a step: each tells the others the best of its clusters, hears theirs, comes
// to the same decision, builds the same focus, and scans its own share of the live clusters. What
// dies leaves an empty position; the host moves the others together when there are many.

// Tell all blocks the best cluster of this one. One thread does this, after a barrier of the block.
BHCLUST_DEVICE void tell_best(const Search& s, const Entry& best, i64 tag) {
    Told& told = s.told[(tag % 2) * gridDim.x + blockIdx.x];
    const unsigned long long ids = (unsigned long long)(unsigned)best.order << 32 | (unsigned)best.partner;
    told.first = Pair{best.score, as_number(ids)};
    told.second = Pair{best.tiebreak, 0.0};
    arrive(s.n_told);
}

// Wait until all blocks have told their best; what they wrote before is seen then. By one warp.
BHCLUST_DEVICE void wait_for_all(const Search& s, i64 tag) {
    if (lane_of_thread() == 0) wait_until(s.n_told, tag * gridDim.x);
    __syncwarp();
}

// The best that all blocks told, of those that are wanted, known to the lanes of a warp.
template <bool ROSE, class Accept>
BHCLUST_DEVICE Entry best_told(const Search& s, i64 tag, Accept accept) {
    constexpr int AT_ONCE = 5;
    const Told* told = s.told + (tag % 2) * gridDim.x;
    Entry best = no_entry();
    for (int first = lane_of_thread(); first < (int)gridDim.x; first += AT_ONCE * WARP) {
        Pair heard[AT_ONCE];
        double tiebreaks[AT_ONCE];
#pragma unroll
        for (int u = 0; u < AT_ONCE; u++) {
            const Told& one = told[first + u * WARP < (int)gridDim.x ? first + u * WARP : first];
            heard[u] = one.first;
            tiebreaks[u] = ROSE ? one.second.x : 0.0;
        }
#pragma unroll
        for (int u = 0; u < AT_ONCE; u++) {
            const unsigned long long ids = as_word(heard[u].y);
            const Entry entry{heard[u].x, tiebreaks[u], (int)(ids >> 32), (int)(unsigned)ids};
            if (accept(entry) && better<ROSE>(entry, best)) best = entry;
        }
    }
    return warp_best<ROSE>(best);
}

// Take down what the rows that looked again have found, by one warp; the best of them.
template <bool ROSE, class M>
BHCLUST_CALLED Entry take_rows(const Search& s, Board& board, i64 tag) {
    Entry best = no_entry();
    const Candidate* row_entries = s.row_best + (tag % 2) * ROWS * gridDim.x;
    for (int r = 0; r < board.n_rows; r++) {
        Candidate found = no_candidate();
        for (int b = lane_of_thread(); b < (int)gridDim.x; b += WARP)
            found = better_of<ROSE>(row_entries[(i64)r * gridDim.x + b], found);
        found = warp_best<ROSE>(found);
        Entry row = found.best;
        row.partner = row.score > -INFINITE ? id_at(s, row) : -1;
        row.order = board.rows[r].best.order;
        if (better<ROSE>(row, best)) best = row;
        Place at = board.row_places[r];
        if (lane_of_thread() > 0 || !owns<M>(at)) continue;
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
    return best;
}

// The best cluster has no partner any more: it looks again, and with it others of that kind which
// are better than all that have one.
template <bool ROSE>
BHCLUST_CALLED void choose_rows(const Search& s, Board& board, i64 tag, Entry last, Entry fresh) {
    Entry told = best_told<ROSE>(s, tag, [](const Entry& e) { return e.partner >= 0; });
    if (better<ROSE>(told, fresh)) fresh = told;
    int n_rows = 0;
    // Rows that have just looked are fresh, so only the blocks' own bests can lack a partner.
    while (true) {
        if (lane_of_thread() == 0) {
            board.rows[n_rows].best = last;
            board.row_places[n_rows] = place_of(s, board, last);
        }
        if (++n_rows == ROWS) break;
        last = best_told<ROSE>(s, tag, [&](const Entry& e) {
            return e.partner < 0 && e.score > -INFINITE && better<ROSE>(last, e) && better<ROSE>(e, fresh);
        });
        if (last.score == -INFINITE) break;
    }
    if (lane_of_thread() == 0) board.n_rows = n_rows;
}

// Hear what the last step found and decide on the next one: a merge (no rows) or rows to rescan.
// The first warp does this while the others wait.
template <bool ROSE, class M>
BHCLUST_DEVICE void decide(const Search& s, Board& board, i64 tag) {
    if (warp_of_thread() == 0) {
        wait_for_all(s, tag);
        Entry best = best_told<ROSE>(s, tag, [](const Entry&) { return true; }), fresh = no_entry();
        if (board.n_rows > 0) {
            const Entry row = take_rows<ROSE, M>(s, board, tag);
            if (better<ROSE>(row, best)) best = row;
            if (row.partner >= 0) fresh = row;
        }
        const bool failed = best.score == -INFINITE;
        const bool crowded = is_crowded(s, board.control);
        const bool done = failed || crowded || board.steps_left == 0 || board.control.n_merges >= s.n_leaves - 1;
        __syncwarp();  // all lanes have read what the first one is about to change
        if (!done && best.partner < 0) {
            choose_rows<ROSE>(s, board, tag, best, fresh);
        } else if (!done && lane_of_thread() == 0) {
            board.n_rows = 0;
            board.chosen = best;
            board.left = place_of(s, board, best);
            board.right = place_of(s, board, best.partner);
            board.reuse = best.order == board.focus_id ? 1 : (best.partner == board.focus_id ? 2 : 0);
        }
        if (lane_of_thread() == 0) {
            const bool merges = !done && best.partner >= 0;
            for (int m = 0; m < 2; m++) board.dead[m] = board.dying[m];
            board.dying[0] = merges ? board.left : Place{NOWHERE, 0};
            board.dying[1] = merges ? board.right : Place{NOWHERE, 0};
            board.done = done;
            board.steps_left--;
            board.control.n_steps++;
            board.control.crowded = crowded;
            // With nothing left to merge there is no pair, and nothing is wrong.
            board.control.failed = failed && board.control.n_merges < s.n_leaves - 1;
        }
    }
    __syncthreads();
}

// What is kept of the partners of a live cluster, and its mass or evidence.
template <bool ROSE>
struct Known {
    Entry entry;
    Bound rest;
    double own;
};

template <bool ROSE>
BHCLUST_DEVICE Known<ROSE> read_known(const Region& g, int region, int q) {
    Known<ROSE> known;
    known.entry.score = g.score[q];
    known.entry.tiebreak = ROSE ? g.tiebreak[q] : 0.0;
    known.entry.partner = g.partner[q];
    known.entry.order = region == 0 ? q : g.id[q];
    known.rest.score = g.rest_score[q];
    known.rest.tiebreak = ROSE ? g.rest_tiebreak[q] : 0.0;
    known.rest.needed = ROSE ? g.rest_needed[q] : 0.0;
    known.own = ROSE ? g.evidence[q] : g.mass[q];
    return known;
}

// Positions in a region whose clusters are merged in this step, or were in the last one.
struct Gone {
    int position[4];

    BHCLUST_DEVICE Gone(const Board& board, int region) {
        for (int m = 0; m < 2; m++) {
            position[m] = board.dying[m].region == region ? board.dying[m].position : -1;
            position[2 + m] = board.dead[m].region == region ? board.dead[m].position : -1;
        }
    }

    // All are looked at, because a jump costs more.
    BHCLUST_DEVICE bool has(int p) const {
        return (p == position[0]) | (p == position[1]) | (p == position[2]) | (p == position[3]);
    }
};

// One offer of a new cluster to a live one at a position: what that one keeps of it, and the best.
template <bool ROSE, int REGION, bool RUNS>
struct Offer {
    const Search& s;
    const Node merged;
    const double single_prior;
    const int i, j, k, n_consumed;
    const RunRoom& room;
    const bool merged_filter;

    BHCLUST_DEVICE Offer(const Search& search, const Board& record, const double* focus)
        : s(search), merged(record.merged), single_prior(record.single_prior), i(record.lost[0]), j(record.lost[1]),
          k((int)search.n_leaves + record.step), n_consumed(record.n_consumed), room(run_room(search, focus)),
          merged_filter(ROSE && filter_holds(record.merged.log_1m_r, record.merged.log_1m_pi, search.mixing)) {}

    // Whether a partner was merged since the last pass.
    BHCLUST_DEVICE bool is_lost(int partner) const {
        return partner == i || partner == j || (RUNS && n_consumed > 0 && is_consumed(room, partner));
    }

    BHCLUST_DEVICE void make(int p, const Known<ROSE>& known, double log_f, Entry& best, Outlook& outlook) const {
        const Region& g = s.regions[REGION];
        Entry entry = known.entry;
        const Bound& rest = known.rest;
        double raw = 0.0;
        if (!ROSE) {
            double prior = REGION == 0 ? single_prior : odds_prior(s.mixing, merged.weight + g.weight[p]);
            raw = prior + log_f - (merged.mass + known.own);
            if (RUNS && REGION == 0) outlook.see_leaf(p, raw, known.own);
            if (RUNS && REGION == 1) outlook.clusters = fmax(outlook.clusters, raw);
        }
        const bool lost = is_lost(entry.partner);
        // Most clusters keep their partner and are far from a better one.
        if (!ROSE && !lost && !(raw > rest.score - 1.0 / ODDS_STEPS)) {
            if (RUNS) outlook.others = fmax(outlook.others, entry.score);
            if (better<ROSE>(entry, best)) best = entry;
            return;
        }
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
            double gain = log_f - (merged.evidence + known.own);
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
            if (raw > rest.score - 1.0 / ODDS_STEPS) score = round_odds(raw);
        }
        if (RUNS) outlook.others = fmax(outlook.others, entry.score);
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
        if (better<ROSE>(entry, best)) best = entry;
    }
};

// Some leaves of a lane, and what is read of them: on its way before it is needed.
template <bool ROSE, class M>
struct Batch {
    static constexpr int SIZE = M::ONE_BY_ONE ? 1 : M::LEAVES_AT_ONCE;
    typedef Walk<M::ONE_BY_ONE> Steps;
    int position[SIZE];
    Known<ROSE> known[SIZE];
    typename M::template Ahead<SIZE> ahead;

    static BHCLUST_DEVICE int step() { return SIZE * Steps::step(); }

    BHCLUST_DEVICE void fetch(const Search& s, const M& model, int start, int n) {
        if (start >= n) return;
#pragma unroll
        for (int u = 0; u < SIZE; u++) {
            const int p = Steps::own(start + u * Steps::step());
            position[u] = p < n ? p : n - 1;
            known[u] = read_known<ROSE>(s.regions[0], 0, position[u]);
            if (p >= n) known[u].own = INFINITE;
        }
        model.template fetch<SIZE>(position, ahead);
    }
};

// Let the new cluster compete for being the best partner of the leaves that are alone: every lane
// has several of them on their way at once, the first ones since before the cluster was made.
template <bool ROSE, class M>
BHCLUST_DEVICE void offer_to_leaves(
    const Search& s, const M& model, const Board& board, const double* focus, double* scratch, Batch<ROSE, M>& next,
    Entry& best, Outlook& outlook
) {
    typedef Batch<ROSE, M> Leaves;
    typedef typename Leaves::Steps Steps;
    const Offer<ROSE, 0, HAS_RUNS<ROSE, M>> offers(s, board, focus);
    const Gone gone(board, 0);
    const int n = (int)board.control.n_positions[0];
    for (int start = Steps::first(0); start < n; start += Leaves::step()) {
        Leaves leaves = next;
        next.fetch(s, model, start + Leaves::step(), n);
        double log_f[Leaves::SIZE];
#pragma unroll
        for (int u = 0; u < Leaves::SIZE; u++) {
            if (gone.has(leaves.position[u])) leaves.known[u].own = INFINITE;
            log_f[u] = 0.0;
        }
        if (M::ONE_BY_ONE && leaves.known[0].own == INFINITE) continue;
        model.template leaves<Leaves::SIZE>(focus, leaves.position, leaves.ahead, scratch, log_f);
#pragma unroll
        for (int u = 0; u < Leaves::SIZE; u++)
            if (leaves.known[u].own < INFINITE && Steps::leads())
                offers.make(leaves.position[u], leaves.known[u], log_f[u], best, outlook);
    }
}

// The same for the live clusters, each of which a warp has for itself.
template <bool ROSE, class M>
BHCLUST_DEVICE void offer_to_clusters(
    const Search& s, const M& model, const Board& board, const double* focus, const double* facts, double* scratch,
    Entry& best, Outlook& outlook
) {
    typedef Walk<true> Steps;
    const Offer<ROSE, 1, HAS_RUNS<ROSE, M>> offers(s, board, focus);
    const Gone gone(board, 1);
    const int n = (int)board.control.n_positions[1];
    for (int p = Steps::first(1); p < n; p += Steps::step()) {
        if (p == board.new_position || gone.has(p)) continue;
        const Known<ROSE> known = read_known<ROSE>(s.regions[1], 1, p);
        if (known.own == INFINITE) continue;
        double log_f[1] = {0.0};
        model.template clusters<1>(focus, facts, 0, 1, p, scratch, log_f);
        if (Steps::leads()) offers.make(p, known, log_f[0], best, outlook);
    }
}

// Score some clusters against the live ones of a region and keep each one's best partner.
template <bool ROSE, class M, int REGION, int R>
BHCLUST_DEVICE void look(
    const Search& s, const M& model, const Board& board, const double* focus, const double* facts, double* scratch,
    Candidate (&best)[ROWS]
) {
    typedef Walk<REGION == 1 || M::ONE_BY_ONE> Steps;
    const Region& g = s.regions[REGION];
    const int n = (int)board.control.n_positions[REGION], n_rows = board.n_rows;
    for (int start = Steps::first(REGION); start < n; start += Steps::step()) {
        const int p = Steps::own(start) < n ? Steps::own(start) : n - 1;
        const bool live = Steps::own(start) < n && (ROSE ? g.evidence[p] : g.mass[p]) < INFINITE;
        if ((REGION == 1 || M::ONE_BY_ONE) && !live) continue;
        const int order = REGION == 0 ? p : g.id[p];
        double log_f[R];
        for (int r = 0; r < R; r++) log_f[r] = 0.0;
        if (REGION == 0)
            model.template singles<R>(focus, s.focus_apart, n_rows, p, scratch, log_f);
        else
            model.template clusters<R>(focus, facts, s.focus_apart, n_rows, p, scratch, log_f);
        if (!live || !Steps::leads()) continue;
        Node other = node_at<ROSE>(s, Place{REGION, p});
#pragma unroll
        for (int r = 0; r < R; r++) {
            if (r >= n_rows || order <= board.rows[r].best.order) continue;
            const Node& row = board.row_nodes[r];
            Candidate found = no_candidate();
            found.best.order = order;
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
    const int n = (int)board.control.n_positions[region], n_rows = board.n_rows;
    for (int start = Steps::first(region); start < n; start += Steps::step()) {
        const int p = Steps::own(start);
        if (p >= n || !Steps::leads() || !(g.score[p] > -INFINITE)) continue;
        Entry entry{g.score[p], ROSE ? g.tiebreak[p] : 0.0, region == 0 ? p : g.id[p], g.partner[p]};
        bool excluded = false;
        for (int r = 0; r < n_rows; r++) excluded = excluded || entry.order == board.rows[r].best.order;
        if (!excluded && better<ROSE>(entry, best)) best = entry;
    }
}

template <bool ROSE, class M>
BHCLUST_DEVICE Entry survey(const Search& s, Board& board) {
    Entry best = no_entry();
    survey_region<ROSE, M::ONE_BY_ONE>(s, board, 0, best);
    survey_region<ROSE, true>(s, board, 1, best);
    return block_best<ROSE>(best, board.entries, no_entry());
}

// Make the focus the union of the chosen pair. The statistics of one of the two may be there already.
template <bool ROSE, class M>
BHCLUST_DEVICE void make_cluster(
    const Search& s, const M& model, Board& board, double* focus, const double* facts
) {
    const int reuse = board.reuse;
    model.gather(
        focus, facts, reuse ? Place{IN_FOCUS, 0} : board.left, reuse == 2 ? board.left : board.right, board.sums
    );
    __syncthreads();
    const Node &left = board.row_nodes[0], &right = board.row_nodes[1];
    if (is_helper(2)) keep_books<ROSE, M>(s, board);  // while the others prepare the focus
    double log_gamma = 0.0, single_prior = 0.0;
    if (threadIdx.x == 0) {
        log_gamma = log_gamma_of(s.mixing, left.weight + right.weight);
        single_prior = odds_prior(s.mixing, left.weight + right.weight + 1.0);
    }
    const double log_f = model.prepare(focus, facts, board.sums);
    __syncthreads();
    if (threadIdx.x == 0) {
        int operation = JOIN;
        if (ROSE) {
            RatioTerms terms;
            operation = best_operation(left, right, log_f - (left.evidence + right.evidence), s.mixing, terms);
        }
        take_down<ROSE>(s, board, operation, log_f, log_gamma, single_prior);
        board.n_grown = 0;
    }
    // The first warp has the node to make.
    if (warp_of_thread() > 0) model.tabulate(focus, facts, threadIdx.x - WARP, blockDim.x - WARP);
    __syncthreads();
}

template <bool ROSE, class M>
BHCLUST_DEVICE void merge_step(
    const Search& s, const M& model, Board& board, double* focus, const double* facts, double* scratch, i64 tag
) {
    constexpr bool RUNS = HAS_RUNS<ROSE, M>;
    // Leaves that are on their way while the focus is prepared. Who died in the last step is not
    // marked before the others have gone on, so what is read here may be out of date for it alone.
    Batch<ROSE, M> leaves;
    const int first_leaf = Batch<ROSE, M>::Steps::first(0), n_leaves = (int)board.control.n_positions[0];
    // Where the cluster of the last pass takes a leaf, what the pass has seen is good for more.
    const bool runs = RUNS && board.reuse == 2 && board.left.region == 0 && board.n_grown < MOST_GROWN;
    if (RUNS && runs) {
        if constexpr (RUNS) run_on<M>(s, model, board, focus, facts, scratch, tag - 1);
    } else {
        if (!RUNS) leaves.fetch(s, model, first_leaf, n_leaves);
        if (is_helper(0)) {
            board.row_nodes[0] = node_at<ROSE>(s, board.left);
            board.left_id = board.lost[0] = id_at(s, board.chosen);
            board.lost[1] = board.chosen.partner;
            board.n_consumed = 0;
        }
        if (is_helper(1)) board.row_nodes[1] = node_at<ROSE>(s, board.right);
        make_cluster<ROSE>(s, model, board, focus, facts);
    }
    if (RUNS) leaves.fetch(s, model, first_leaf, n_leaves);
    // Nobody reads this place in this step.
    if ((int)blockIdx.x == board.step % (int)gridDim.x) {
        model.store(focus, board.new_position);
        if (threadIdx.x == 0) write_node<ROSE>(s, board.new_position, board.merged, board.newest);
    }
    if (is_helper(2)) count_pass(board.control);
    Entry best = no_entry();
    Outlook outlook;
    offer_to_leaves<ROSE, M>(s, model, board, focus, scratch, leaves, best, outlook);
    offer_to_clusters<ROSE, M>(s, model, board, focus, facts, scratch, best, outlook);
    if (RUNS) note_outlook(outlook, board);
    best = block_best<ROSE>(best, board.entries, no_entry());
    if (RUNS && warp_of_thread() == 0) {
        tell_outlook(s, board, tag);
        __syncwarp();
    }
    if (threadIdx.x == 0) {
        tell_best(s, best, tag);
        board.mine = best;
    }
}

template <bool ROSE, class M>
BHCLUST_CALLED void rescan_step(
    const Search& s, const M& model, Board& board, double* focus, const double* facts, double* scratch, i64 tag
) {
    const int n_rows = board.n_rows;
    bool must_survey = false, leaves_wanted = false;
    if (is_helper(2)) bury<ROSE, M>(s, board, -1);
    for (int r = 0; r < n_rows; r++) {
        double* own = focus + r * s.focus_apart;
        model.gather(own, facts, board.row_places[r], Place{NOWHERE, 0}, board.sums);
        __syncthreads();
        model.prepare(own, facts, board.sums);
        model.tabulate(own, facts, threadIdx.x, blockDim.x);
        if (threadIdx.x == 0) board.row_nodes[r] = node_at<ROSE>(s, board.row_places[r]);
        must_survey = must_survey || owns<M>(board.row_places[r]);
        // A cluster's partners come after it: the leaves are not among those of a merged one.
        leaves_wanted = leaves_wanted || board.row_places[r].region == 0;
    }
    __syncthreads();
    Candidate best[ROWS];
    for (int r = 0; r < ROWS; r++) best[r] = no_candidate();
    if (n_rows == 1) {
        if (leaves_wanted) look<ROSE, M, 0, 1>(s, model, board, focus, facts, scratch, best);
        look<ROSE, M, 1, 1>(s, model, board, focus, facts, scratch, best);
    } else {
        if (leaves_wanted) look<ROSE, M, 0, ROWS>(s, model, board, focus, facts, scratch, best);
        look<ROSE, M, 1, ROWS>(s, model, board, focus, facts, scratch, best);
    }
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        if (r >= n_rows) continue;
        Candidate found = block_best<ROSE>(best[r], board.candidates, no_candidate());
        if (threadIdx.x == 0) s.row_best[((tag % 2) * ROWS + r) * gridDim.x + blockIdx.x] = found;
        __syncthreads();
    }
    Entry mine = board.mine;
    if (must_survey) mine = survey<ROSE, M>(s, board);
    if (threadIdx.x == 0) {
        Control& control = board.control;
        board.mine = mine;
        board.focus_id = -1;
        control.n_rescans += n_rows;
        for (int region = leaves_wanted ? 0 : 1; region < 2; region++) {
            control.n_pairs += n_rows * control.n_live[region];
            control.n_read[region] += control.n_live[region];
        }
        tell_best(s, mine, tag);
    }
}

// Board, facts, foci and the warps' scratch share the block's memory; what is too large is far away.
// Where all is NEAR the compiler knows it, and a look-up costs half.
struct Memory {
    Board* board;
    double* focus;
    const double* facts;
    double* scratch;
};

template <bool NEAR>
BHCLUST_DEVICE Memory share_memory(double* shared, const Search& s, int n_foci) {
    double* facts = shared + BOARD_BYTES / 8;
    double* focus = facts + s.facts_size;
    if (NEAR) {
        for (int t = threadIdx.x; t < s.facts_size; t += blockDim.x) facts[t] = s.all_facts[t];
        __syncthreads();
        double* scratch = focus + n_foci * s.focus_apart + warp_of_thread() * s.scratch_size;
        return Memory{(Board*)shared, focus, facts, scratch};
    }
    double* near_scratch = s.far_focus ? focus : focus + n_foci * s.focus_apart;
    double* scratch = s.far_scratch ? s.far_scratch + (i64)blockIdx.x * warps_of_block() * s.scratch_size : near_scratch;
    if (s.far_focus) focus = s.far_focus + (i64)blockIdx.x * n_foci * s.focus_apart;
    for (int t = threadIdx.x; t < s.facts_size; t += blockDim.x) facts[t] = s.all_facts[t];
    __syncthreads();
    return Memory{
        (Board*)shared, focus, s.facts_size ? facts : s.all_facts, scratch + warp_of_thread() * s.scratch_size
    };
}

// The record of a launch stands in constant memory: first the search, then the model.
BHCLUST_CONSTANT(record, 4096)

template <bool ROSE, class M, bool NEAR>
__global__ void __launch_bounds__(BHCLUST_THREADS, 1) search() {
    BHCLUST_SHARED(shared);
    const Search& s = *(const Search*)record;
    const M& model = *(const M*)(record + sizeof(Search) / 8);
    Memory memory = share_memory<NEAR>(shared, s, ROWS);
    Board& board = *memory.board;
    if (threadIdx.x == 0) {
        board.control = *s.control;
        board.n_rows = 0;
        board.dying[0].region = board.dying[1].region = NOWHERE;
        board.newest = board.focus_id = -1;
        board.steps_left = (int)s.n_steps;
    }
    __syncthreads();
    i64 tag = board.control.n_steps + 1;
    Entry mine = survey<ROSE, M>(s, board);
    if (threadIdx.x == 0) {
        board.mine = mine;
        tell_best(s, mine, tag);
    }
    while (true) {
        decide<ROSE, M>(s, board, tag);
        if (board.done) break;
        tag++;
        if (board.n_rows == 0)
            merge_step<ROSE, M>(s, model, board, memory.focus, memory.facts, memory.scratch, tag);
        else
            rescan_step<ROSE, M>(s, model, board, memory.focus, memory.facts, memory.scratch, tag);
    }
    if (threadIdx.x == 0) bury<ROSE, M>(s, board, -1);
    grid_barrier();
    if (blockIdx.x == 0 && threadIdx.x == 0) *s.control = board.control;
}
