// Cluster models. A part keeps the statistics of the leaves that are alone (region 0) and of the
// merged clusters (region 1) by position, and scores a *focus* against them:
//
//   gather(focus, facts, a, b, sums)   the focus becomes the cluster at a, or the union of a and b;
//                                      a may be IN_FOCUS, which saves reading it again
//   prepare(focus, facts, sums)        log f of the focus
//   tabulate(focus, facts, first, step)
//                                      what scoring needs besides, by threads that are step many
//   store(focus, position)             write the focus among the clusters
//   singles<R>(focus, stride, n, position, scratch, out)
//                                      add log f of up to R foci with the leaf at each lane's position
//   fetch<U>(positions, ahead)         read of U leaves a lane what fits into registers: Ahead<U>
//   leaves<U>(focus, positions, ahead, scratch, out)
//                                      add log f of the focus with each of them
//   clusters<R>(focus, facts, stride, n, position, scratch, out)
//                                      the same with one cluster, by all lanes of a warp together
//
// The first four are called by all threads of a block (the third perhaps by some), with a barrier
// after each; the others by
// all lanes of a warp. Where ONE_BY_ONE, a warp takes single leaves together as well. A focus is
// `focus_size` doubles, the R foci are `stride` apart. The facts are numbers that do not change and
// that a part would read again and again: a copy in the block's memory, if it has room.
// LEAVES_AT_ONCE is how many leaves a lane should have on their way at once. Where a part RISES, its
// items have probabilities, and rise(focus) says how much log p of a leaf given the focus can have
// grown at most since it was prepared before. Such a part can take a leaf in without reading the
// device's memory, once log f of the union is known (it may stand in the first part as a whole):
//
//   grow(focus, facts, leaf, position, first, step)
//                                      the statistics of the union, by threads that are step many;
//                                      returns what this thread has of the rise
//   settle(focus, facts, leaf, position, first, step)
//                                      the rest of it, after a barrier; tabulate must follow
//   set_log_f(focus, log_f)
// All fields have eight bytes, so that the host can write them as a row of numbers.

// What a part does that has no facts, nothing to tabulate, and long rows of leaves.
template <class Part>
struct PlainPart {
    static constexpr bool ONE_BY_ONE = false, RISES = false;
    static constexpr int LEAVES_AT_ONCE = 1;
    static constexpr i64 facts_size = 0;

    template <int U>
    struct Ahead {};

    BHCLUST_DEVICE double rise(const double*) const { return INFINITE; }
    BHCLUST_DEVICE void tabulate(double*, const double*, int, int) const {}

    template <int U>
    BHCLUST_DEVICE void fetch(const int (&)[U], Ahead<U>&) const {}

    template <int U>
    BHCLUST_DEVICE void leaves(
        const double* focus, const int (&positions)[U], const Ahead<U>&, double* scratch, double (&out)[U]
    ) const {
#pragma unroll 1
        for (int u = 0; u < U; u++) {
            double log_f[1] = {0.0};
            ((const Part*)this)->template singles<1>(focus, 0, 1, positions[u], scratch, log_f);
            out[u] += log_f[0];
        }
    }
};

// --- rows of counts: Multinomial -----------------------------------------------------------------

struct Multinomial : PlainPart<Multinomial> {
    i64 focus_size, n_columns;
    double* counts[2];       // tiled; leaves, clusters
    double* totals[2];       // row totals
    double* coefficients[2]; // log multinomial coefficients
    const double *alpha, *table;
    double total_alpha, constant;

    // focus: counts, total, coefficient
    BHCLUST_DEVICE void gather(double* focus, const double* facts, Place a, Place b, double* sums) const {
        for (int j = threadIdx.x; j < n_columns + 2; j += blockDim.x) {
            double value = a.region == IN_FOCUS ? focus[j] : 0.0;
            for (int side = 0; side < 2; side++) {
                Place at = side == 0 ? a : b;
                if (at.region < 0) continue;
                if (j < n_columns) value += counts[at.region][index_of(at.region, at.position, j, n_columns)];
                if (j == n_columns) value += totals[at.region][at.position];
                if (j == n_columns + 1) value += coefficients[at.region][at.position];
            }
            focus[j] = value;
        }
    }

    BHCLUST_DEVICE double prepare(double* focus, const double* facts, double* sums) const {
        double log_f = 0.0;
        for (int j = threadIdx.x; j < n_columns; j += blockDim.x)
            log_f += log_gamma_at(table, j, alpha[j], focus[j]);
        log_f = block_sum(log_f, sums);
        return constant + log_f - log_gamma(total_alpha + focus[n_columns]) + focus[n_columns + 1];
    }

    BHCLUST_DEVICE void store(const double* focus, int position) const {
        for (int j = threadIdx.x; j < n_columns; j += blockDim.x)
            counts[1][position * n_columns + j] = focus[j];
        if (threadIdx.x == 0) {
            totals[1][position] = focus[n_columns];
            coefficients[1][position] = focus[n_columns + 1];
        }
    }

    template <int R, int REGION>
    BHCLUST_DEVICE void unions(const double* focus, i64 apart, int n, i64 position, double (&out)[R]) const {
        // One thread has a leaf; the lanes of a warp share the columns of a cluster.
        const int first = REGION == 0 ? 0 : lane_of_thread(), step = REGION == 0 ? 1 : WARP;
        double sum[R];
        for (int r = 0; r < R; r++) sum[r] = 0.0;
        for (int j = first; j < n_columns; j += step) {
            double own = counts[REGION][index_of(REGION, position, j, n_columns)], start = alpha[j];
#pragma unroll
            for (int r = 0; r < R; r++)
                if (r < n) sum[r] += log_gamma_at(table, j, start, focus[r * apart + j] + own);
        }
        double total = totals[REGION][position], coefficient = coefficients[REGION][position];
        for (int r = 0; r < R; r++) {
            if (r >= n) continue;
            const double* f = focus + r * apart + n_columns;
            if (REGION == 1) sum[r] = warp_sum(sum[r]);
            out[r] += constant + sum[r] - log_gamma(total_alpha + f[0] + total) + (f[1] + coefficient);
        }
    }

    template <int R>
    BHCLUST_DEVICE void singles(
        const double* focus, i64 apart, int n, i64 position, double* scratch, double (&out)[R]
    ) const {
        unions<R, 0>(focus, apart, n, position, out);
    }

    template <int R>
    BHCLUST_DEVICE void clusters(
        const double* focus, const double* facts, i64 apart, int n, i64 position, double* scratch, double (&out)[R]
    ) const {
        unions<R, 1>(focus, apart, n, position, out);
    }
};

// --- counts: Poisson -----------------------------------------------------------------------------

template <bool COMPLETE>
struct Poisson : PlainPart<Poisson<COMPLETE>> {
    i64 focus_size, n_columns;
    double* sums_of[2];       // tiled totals of each column
    double* items[2];         // number of entries: of each column (tiled), of all if complete
    double* log_factorials[2];
    const double *shape, *rate, *log_gamma, *log_rate, *table;

    // A column's term is rising(total) - (shape + total) log(1 + entries / rate): nothing large
    // cancels, however large the rate.
    // focus: total, number of entries, log(1 + entries / rate), the same with one entry more, of
    // each column; log factorials
    BHCLUST_DEVICE double rising(int j, double total) const {
        if (total < TABLE_LENGTH) return table[(i64)j * TABLE_LENGTH + (int)total];
        return stirling(shape[j] + total) - log_gamma[j] - total * log_rate[j];
    }

    BHCLUST_DEVICE double entries(int region, i64 position, int j) const {
        if (COMPLETE) return region == 0 ? 1.0 : items[1][position];
        return items[region][index_of(region, position, j, n_columns)];
    }

    BHCLUST_DEVICE void gather(double* focus, const double* facts, Place a, Place b, double* sums) const {
        int d = n_columns;
        for (int j = threadIdx.x; j < d + 1; j += blockDim.x) {
            double total = 0.0, n_items = 0.0;
            if (a.region == IN_FOCUS) {
                total = j < d ? focus[j] : focus[4 * d];
                n_items = j < d ? focus[d + j] : 0.0;
            }
            for (int side = 0; side < 2; side++) {
                Place at = side == 0 ? a : b;
                if (at.region < 0) continue;
                if (j < d) total += sums_of[at.region][index_of(at.region, at.position, j, d)];
                if (j == d) total += log_factorials[at.region][at.position];
                n_items += entries(at.region, at.position, j < d ? j : 0);
            }
            if (j < d) {
                focus[j] = total;
                focus[d + j] = n_items;
                focus[2 * d + j] = log1p(n_items / rate[j]);
                focus[3 * d + j] = log1p((n_items + 1.0) / rate[j]);
            } else {
                focus[4 * d] = total;
            }
        }
    }

    BHCLUST_DEVICE double prepare(double* focus, const double* facts, double* sums) const {
        int d = n_columns;
        double log_f = 0.0;
        for (int j = threadIdx.x; j < d; j += blockDim.x)
            log_f += rising(j, focus[j]) - (shape[j] + focus[j]) * focus[2 * d + j];
        return block_sum(log_f, sums) - focus[4 * d];
    }

    BHCLUST_DEVICE void store(const double* focus, int position) const {
        int d = n_columns;
        for (int j = threadIdx.x; j < d; j += blockDim.x) {
            sums_of[1][(i64)position * d + j] = focus[j];
            if (!COMPLETE) items[1][(i64)position * d + j] = focus[d + j];
        }
        if (threadIdx.x == 0) {
            if (COMPLETE) items[1][position] = focus[d];
            log_factorials[1][position] = focus[4 * d];
        }
    }

    template <int R, int REGION>
    BHCLUST_DEVICE void unions(const double* focus, i64 apart, int n, i64 position, double (&out)[R]) const {
        const int d = n_columns, first = REGION == 0 ? 0 : lane_of_thread(), step = REGION == 0 ? 1 : WARP;
        double sum[R];
        for (int r = 0; r < R; r++) sum[r] = 0.0;
        for (int j = first; j < d; j += step) {
            double own = sums_of[REGION][index_of(REGION, position, j, d)];
            double n_own = entries(REGION, position, j), start = shape[j];
#pragma unroll
            for (int r = 0; r < R; r++) {
                if (r >= n) continue;
                const double* f = focus + r * apart + j;
                double total = f[0] + own;
                // A leaf adds one entry or none, and both logs are known.
                double growth = REGION == 0 ? (n_own > 0 ? f[3 * d] : f[2 * d]) : log1p((f[d] + n_own) / rate[j]);
                sum[r] += rising(j, total) - (start + total) * growth;
            }
        }
        for (int r = 0; r < R; r++) {
            if (r >= n) continue;
            if (REGION == 1) sum[r] = warp_sum(sum[r]);
            out[r] += sum[r] - (focus[r * apart + 4 * d] + log_factorials[REGION][position]);
        }
    }

    template <int R>
    BHCLUST_DEVICE void singles(
        const double* focus, i64 apart, int n, i64 position, double* scratch, double (&out)[R]
    ) const {
        unions<R, 0>(focus, apart, n, position, out);
    }

    template <int R>
    BHCLUST_DEVICE void clusters(
        const double* focus, const double* facts, i64 apart, int n, i64 position, double* scratch, double (&out)[R]
    ) const {
        unions<R, 1>(focus, apart, n, position, out);
    }
};
