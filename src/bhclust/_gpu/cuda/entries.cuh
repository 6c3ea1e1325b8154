// Clusters with their best partners, and the best of them over lanes, warps and blocks.
//
// A cluster keeps, beside its best partner, a bound on all its other partners. When the partner is
// merged away, this bound is what is left of it, and it is mostly too low for the cluster to come up
// before a new partner is offered: so few look again. The scores of pairs never change, so only an
// offer can raise the bound.

// A cluster and its best partner, or a candidate for being one. The order decides ties: leaves come
// in the order of their positions, then clusters by id. It says where a leaf is, too.
struct Entry {
    double score, tiebreak;
    int order, partner;
};

// No partner is better than this; in a rose tree, none with a gain below the needed one is as good.
struct Bound {
    double score, tiebreak, needed;
};

// The best of some partners, the gain that a better one needs, and a bound on the rest of them.
struct Candidate {
    Entry best;
    double needed;
    Bound rest;
};

BHCLUST_DEVICE Entry no_entry() { return Entry{-INFINITE, -INFINITE, 2147483647, -1}; }
BHCLUST_DEVICE Bound no_bound() { return Bound{-INFINITE, -INFINITE, -INFINITE}; }
BHCLUST_DEVICE Candidate no_candidate() { return Candidate{no_entry(), -INFINITE, no_bound()}; }

template <bool ROSE>
BHCLUST_DEVICE bool better(const Entry& a, const Entry& b) {
    if (a.score != b.score) return a.score > b.score;
    if (ROSE && a.tiebreak != b.tiebreak) return a.tiebreak > b.tiebreak;
    return a.order < b.order;
}

// Whether a score is strictly above another one.
template <bool ROSE>
BHCLUST_DEVICE bool above(double score, double tiebreak, double other_score, double other_tiebreak) {
    return score > other_score || (ROSE && score == other_score && tiebreak > other_tiebreak);
}

template <bool ROSE>
BHCLUST_DEVICE Entry better_of(const Entry& a, const Entry& b) {
    // Copies: a choice between two places would put both into memory.
    Entry out = a;
    if (better<ROSE>(b, a)) out = b;
    return out;
}

// The better of two candidates from disjoint sets. The other one bounds the rest of its own set.
template <bool ROSE>
BHCLUST_DEVICE Candidate better_of(const Candidate& a, const Candidate& b) {
    Candidate out = a;
    Bound loser{b.best.score, b.best.tiebreak, b.needed};
    if (better<ROSE>(b.best, a.best)) {
        out = b;
        loser = Bound{a.best.score, a.best.tiebreak, a.needed};
    }
    if (above<ROSE>(loser.score, loser.tiebreak, out.rest.score, out.rest.tiebreak)) out.rest = loser;
    return out;
}

template <bool ROSE>
BHCLUST_DEVICE Entry across(const Entry& mine, int mask) {
    Entry other;
    other.score = across_lanes(mine.score, mask);
    other.tiebreak = ROSE ? across_lanes(mine.tiebreak, mask) : mine.tiebreak;
    other.order = across_lanes(mine.order, mask);
    other.partner = across_lanes(mine.partner, mask);
    return other;
}

template <bool ROSE>
BHCLUST_DEVICE Candidate across(const Candidate& mine, int mask) {
    Candidate other = mine;
    other.best = across<ROSE>(mine.best, mask);
    other.rest.score = across_lanes(mine.rest.score, mask);
    if (!ROSE) return other;
    other.needed = across_lanes(mine.needed, mask);
    other.rest.tiebreak = across_lanes(mine.rest.tiebreak, mask);
    other.rest.needed = across_lanes(mine.rest.needed, mask);
    return other;
}

template <bool ROSE, class T>
BHCLUST_DEVICE T warp_best(T mine) {
    for (int mask = WARP / 2; mask > 0; mask /= 2) mine = better_of<ROSE>(mine, across<ROSE>(mine, mask));
    return mine;
}

// The same for scores without tiebreaks, by words instead of steps: a key that grows with the score,
// its upper half first, then the lowest order of those that have it.
template <bool ROSE>
BHCLUST_DEVICE Entry warp_best(Entry mine) {
    if (ROSE) return warp_best<ROSE, Entry>(mine);
    // A zero has one sign here, so that it ties with itself.
    const unsigned long long bits = as_word(mine.score + 0.0), sign = 0x8000000000000000ULL;
    const unsigned long long key = bits & sign ? ~bits : bits | sign;
    const unsigned upper = largest_of_lanes((unsigned)(key >> 32));
    const unsigned lower = largest_of_lanes((unsigned)(key >> 32) == upper ? (unsigned)key : 0u);
    const unsigned long long best = (unsigned long long)upper << 32 | lower;
    const unsigned order = smallest_of_lanes(key == best ? (unsigned)mine.order : 0xffffffffu);
    const bool is_best = key == best && (unsigned)mine.order == order;
    mine.partner = (int)largest_of_lanes(is_best ? (unsigned)(mine.partner + 1) : 0u) - 1;
    mine.order = (int)order;
    mine.score = as_number(best & sign ? best & ~sign : ~best);
    return mine;
}

// The best over a block, known to the first warp. A barrier must follow before the next call.
template <bool ROSE, class T>
BHCLUST_DEVICE T block_best(T mine, T* by_warp, T nothing) {
    mine = warp_best<ROSE>(mine);
    if (lane_of_thread() == 0) by_warp[warp_of_thread()] = mine;
    __syncthreads();
    T found = nothing;
    if (warp_of_thread() == 0) {
        for (int w = lane_of_thread(); w < warps_of_block(); w += WARP) found = better_of<ROSE>(by_warp[w], found);
        found = warp_best<ROSE>(found);
    }
    return found;
}
