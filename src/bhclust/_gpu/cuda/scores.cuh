// Merge scores: the formulas of bhclust.frontier, one pair at a time, rounded as there.

constexpr double ODDS_STEPS = 1073741824.0;    // 2^30 a nat
constexpr double RATIO_DIGITS = 8589934592.0;  // 2^33
constexpr double SLACK = 1e-6;                 // gains closer than this are looked at in full

enum MixingCode { DIRICHLET_PROCESS = 0, CONSTANT = 1, ROSE_MIXING = 2 };
enum Operation { JOIN = 0, ABSORB_RIGHT = 1, ABSORB_LEFT = 2, COLLAPSE = 3 };

struct Mixing {
    i64 code;
    double parameter;  // log alpha, or gamma
    const double* log_gamma_of_sizes;
};

// What a score needs of a cluster besides log f (`frontier.Field`).
struct Node {
    double weight, mass, log_d, evidence, log_1m_r, log_1m_pi, n_children, child_mass, child_log_d;
};

BHCLUST_DEVICE double log_add_exp(double x, double y) {
    if (x == y) return x + 0.69314718055994530942;
    double larger = x > y ? x : y, smaller = x > y ? y : x;
    // What is added is below half of the last bit.
    if (smaller - larger < -60.0 && fabs(larger) > 1e-9) return larger;
    return larger + log1p(exp(smaller - larger));
}

BHCLUST_DEVICE double round_odds(double x) { return rint(x * ODDS_STEPS) / ODDS_STEPS; }

BHCLUST_CALLED double round_relative(double x) {
    if (x == 0.0 || isinf(x)) return x;
    int exponent;
    double mantissa = frexp(x, &exponent);
    return ldexp(rint(mantissa * RATIO_DIGITS) / RATIO_DIGITS, exponent);
}

// What the prior looks up for a cluster of a weight.
BHCLUST_DEVICE double log_gamma_of(const Mixing& mixing, double weight) {
    return mixing.code == DIRICHLET_PROCESS ? mixing.log_gamma_of_sizes[(i64)weight] : 0.0;
}

BHCLUST_DEVICE double log_one(const Mixing& mixing, double log_gamma, double n_children) {
    if (mixing.code == DIRICHLET_PROCESS) return mixing.parameter + log_gamma;
    if (mixing.code == CONSTANT) return log(mixing.parameter);
    return log(-expm1((n_children - 1) * log1p(-mixing.parameter)));
}

BHCLUST_DEVICE double log_split(const Mixing& mixing, double n_children) {
    if (mixing.code == DIRICHLET_PROCESS) return 0.0;
    if (mixing.code == CONSTANT) return log1p(-mixing.parameter);
    return (n_children - 1) * log1p(-mixing.parameter);
}

// What the prior adds to the odds of two clusters of a total weight.
BHCLUST_DEVICE double odds_prior(const Mixing& mixing, double weight) {
    if (mixing.code == DIRICHLET_PROCESS) return mixing.parameter + log_gamma_of(mixing, weight);
    return log(mixing.parameter) - log1p(-mixing.parameter);
}

// A binary tree is searched by weights and masses alone, and the rest costs logarithms. The log gamma
// of the weight is known to the caller, who can have it on its way early.
template <bool ROSE>
BHCLUST_DEVICE Node merged_node(
    const Node& i, const Node& j, int operation, double log_f, double log_gamma, const Mixing& mixing
) {
    bool open_i = operation == COLLAPSE || operation == ABSORB_RIGHT;
    bool open_j = operation == COLLAPSE || operation == ABSORB_LEFT;
    Node k;
    k.n_children = (open_i ? i.n_children : 1.0) + (open_j ? j.n_children : 1.0);
    k.child_mass = (open_i ? i.child_mass : i.mass) + (open_j ? j.child_mass : j.mass);
    k.child_log_d = (open_i ? i.child_log_d : i.log_d) + (open_j ? j.child_log_d : j.log_d);
    k.weight = i.weight + j.weight;
    double prior_one = log_one(mixing, log_gamma, k.n_children);
    double prior_split = log_split(mixing, k.n_children);
    double one = prior_one + log_f, split = prior_split + k.child_mass;
    k.log_d = k.evidence = k.log_1m_r = k.log_1m_pi = 0.0;
    if (!ROSE) {
        k.mass = log_add_exp(one, split);
        return k;
    }
    double total_d = log_add_exp(prior_one, prior_split + k.child_log_d);
    k.mass = log_add_exp(one, split);
    k.log_d = mixing.code == DIRICHLET_PROCESS ? total_d : 0.0;
    k.evidence = k.mass - k.log_d;
    k.log_1m_r = -log_add_exp(0.0, one - split);
    k.log_1m_pi = prior_split + k.child_log_d - total_d;
    return k;
}

// Parts of the likelihood ratio L = P e^G + Q (1 - rho) of an operation (`frontier._RatioTerms`).
struct RatioTerms {
    double log_p, log_1m_p, log_q, log_1m_rho;
};

BHCLUST_CALLED RatioTerms ratio_terms(const Node& i, const Node& j, int operation, const Mixing& mixing) {
    double log_1m_rho = 0.0, log_1m_prior = 0.0, n_children = 2.0, n_opened = 0.0;
    if (operation == ABSORB_RIGHT || operation == COLLAPSE) {
        log_1m_rho += i.log_1m_r;
        log_1m_prior += i.log_1m_pi;
        n_children += i.n_children - 1;
        n_opened += 1;
    }
    if (operation == ABSORB_LEFT || operation == COLLAPSE) {
        log_1m_rho += j.log_1m_r;
        log_1m_prior += j.log_1m_pi;
        n_children += j.n_children - 1;
        n_opened += 1;
    }
    RatioTerms out;
    out.log_1m_rho = log_1m_rho;
    if (mixing.code == DIRICHLET_PROCESS) {
        double log_kappa = mixing.parameter + log_gamma_of(mixing, i.weight + j.weight) - (i.log_d + j.log_d);
        out.log_q = -log_add_exp(log_kappa, log_1m_prior);
        out.log_p = log_kappa + out.log_q;
        out.log_1m_p = log_1m_prior + out.log_q;
        return out;
    }
    double log_1m_gamma = log1p(-mixing.parameter);
    if (mixing.code == CONSTANT) {
        out.log_p = log(mixing.parameter);
        out.log_1m_p = log_1m_gamma;
        out.log_q = (1 - n_opened) * log_1m_gamma;
        return out;
    }
    out.log_1m_p = (n_children - 1) * log_1m_gamma;
    out.log_p = log(-expm1(out.log_1m_p));
    out.log_q = log_1m_gamma;
    return out;
}

BHCLUST_DEVICE double sign_of(double x) { return x > 0 ? 1.0 : (x < 0 ? -1.0 : 0.0); }

// Log of a difference of exponentials, from the larger log and the gap.
BHCLUST_DEVICE double log_size(double larger, double gap) {
    if (gap == 0.0) return -INFINITE;
    return larger + log(-expm1(-fabs(gap)));
}

// Sign of L_a - L_b for two operations on one pair (`frontier._lead`).
BHCLUST_CALLED double lead_of(const RatioTerms& a, const RatioTerms& b, double gain) {
    double gap_p = b.log_1m_p - a.log_1m_p;
    double log_p = log_size(fmax(a.log_1m_p, b.log_1m_p), gap_p) + gain;
    double gap_b = (a.log_q - b.log_q) + (a.log_1m_rho - b.log_1m_rho);
    double log_b = log_size(fmax(a.log_q + a.log_1m_rho, b.log_q + b.log_1m_rho), gap_b);
    if (log_p == -INFINITE && log_b == -INFINITE) return 0.0;
    double excess = rint((log_p - log_b) * ODDS_STEPS);
    if (excess > 0) return sign_of(gap_p);
    if (excess < 0) return sign_of(gap_b);
    return sign_of(gap_p) + sign_of(gap_b);
}

// The best operation of a pair; its terms go to `terms` (`frontier._best_operations`).
BHCLUST_CALLED int best_operation(
    const Node& i, const Node& j, double gain, const Mixing& mixing, RatioTerms& terms
) {
    bool left_open = i.n_children >= 2, right_open = j.n_children >= 2;
    int best = JOIN;
    terms = ratio_terms(i, j, JOIN, mixing);
    for (int operation = ABSORB_RIGHT; operation <= COLLAPSE; operation++) {
        if (operation != ABSORB_LEFT && !left_open) continue;
        if (operation != ABSORB_RIGHT && !right_open) continue;
        RatioTerms challenger = ratio_terms(i, j, operation, mixing);
        double lead = lead_of(challenger, terms, gain);
        bool wins_ties = operation != ABSORB_LEFT || best == JOIN;
        if (lead > 0 || (lead == 0 && wins_ties)) {
            best = operation;
            terms = challenger;
        }
    }
    return best;
}

struct RatioScore {
    double score, tiebreak;
    double needed;  // no other partner with a smaller gain can be better
};

BHCLUST_CALLED RatioScore ratio_score(const Node& i, const Node& j, double gain, const Mixing& mixing) {
    RatioTerms terms;
    int operation = best_operation(i, j, gain, mixing, terms);
    double log_cluster = terms.log_p + gain;
    double raw = log_add_exp(log_cluster, terms.log_q + terms.log_1m_rho);
    double log_negative = -INFINITE;
    if (terms.log_1m_rho < 0) log_negative = terms.log_q + log(-expm1(terms.log_1m_rho));
    double log_delta = log_cluster;
    if (log_negative > -INFINITE) log_delta = log_size(fmax(log_cluster, log_negative), log_cluster - log_negative);
    double size = 1.0 / fmax(-log_delta, 1.0);
    RatioScore out;
    out.tiebreak = round_relative(log_cluster >= log_negative ? size : -size);
    double needed = -INFINITE;
    if (mixing.code == ROSE_MIXING) {  // every operation has L <= (1 - gamma) + e^G
        if (log_cluster > log_negative) needed = log_delta;
    } else if (mixing.code == CONSTANT) {
        // where r >= gamma on both sides only a join matters: L = (1 - gamma) + gamma e^G
        if (raw > log1p(-mixing.parameter) + 1e-9)
            needed = raw + log1p((mixing.parameter - 1) * exp(-raw)) - log(mixing.parameter);
        else if (operation == JOIN)
            needed = gain;
    } else if (raw > 0) {  // L is an average of e^G and something that is at most 1 where r >= pi
        needed = raw;
    }
    out.needed = needed - SLACK;
    double share = fmax(exp(log_cluster - raw), -expm1(terms.log_1m_rho));
    int exponent;
    frexp(share, &exponent);
    double grid = ldexp(1.0 / ODDS_STEPS, exponent);
    out.score = round_relative(grid > fabs(raw) / RATIO_DIGITS ? rint(raw / grid) * grid : raw);
    return out;
}

// Whether a gain below the needed one rules a pair with this cluster out.
BHCLUST_DEVICE bool filter_holds(double log_1m_r, double log_1m_pi, const Mixing& mixing) {
    if (mixing.code == ROSE_MIXING) return true;
    if (mixing.code == CONSTANT) return log_1m_r <= log1p(-mixing.parameter);
    return log_1m_r <= log_1m_pi;
}
