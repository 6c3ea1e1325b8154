// Parts for real numbers: independent columns, full covariances, curves at shared times.

// --- independent columns: DiagonalGaussian -------------------------------------------------------

// Columns stand in the order of their shapes: the posterior rates of columns with the same shape
// have the same exponent, so that a product of them needs one logarithm.
template <bool COMPLETE>
struct Diagonal : PlainPart<Diagonal<COMPLETE>> {
    i64 focus_size, n_columns;
    double* values;           // leaves: distance from the origin, tiled; NaN is missing
    double *count, *mean, *deviation;  // clusters, row by row; one count a cluster if complete
    const double *prior_mean, *strength, *shape, *rate;
    const double* size_terms;  // complete: what a number of items adds by itself

    // focus: for leaves {centre, factor, base, shape} of each column (complete), or {centre, factor,
    // constant, power}; then count, mean, deviation; log f
    static constexpr int SCAN = 4, COUNT = 4, MEAN = 5, DEVIATION = 6, LOG_F = 7;

    BHCLUST_DEVICE void gather(double* focus, const double* facts, Place a, Place b, double* sums) const {
        int d = n_columns;
        for (int j = threadIdx.x; j < d; j += blockDim.x) {
            double n[2], m[2], s[2];
            for (int side = 0; side < 2; side++) {
                Place at = side == 0 ? a : b;
                n[side] = m[side] = s[side] = 0.0;
                if (at.region == IN_FOCUS) {
                    n[side] = focus[COUNT * d + j];
                    m[side] = focus[MEAN * d + j];
                    s[side] = focus[DEVIATION * d + j];
                } else if (at.region == 0) {
                    double x = values[tiled(at.position, j, d)];
                    if (x == x) {
                        n[side] = 1.0;
                        m[side] = x;
                    }
                } else if (at.region == 1) {
                    i64 own = (i64)at.position * d + j;
                    n[side] = COMPLETE ? count[at.position] : count[own];
                    m[side] = mean[own];
                    s[side] = deviation[own];
                }
            }
            double total = n[0] + n[1], divisor = total > 0 ? total : 1.0, gap = m[0] - m[1];
            focus[COUNT * d + j] = total;
            focus[MEAN * d + j] = n[0] / divisor * m[0] + n[1] / divisor * m[1];
            focus[DEVIATION * d + j] = s[0] + s[1] + n[0] * n[1] / divisor * gap * gap;
        }
    }

    BHCLUST_DEVICE double prepare(double* focus, const double* facts, double* sums) const {
        int d = n_columns;
        double log_f = 0.0;
        for (int j = threadIdx.x; j < d; j += blockDim.x) {
            double n = focus[COUNT * d + j], k = strength[j] + n, distance = focus[MEAN * d + j] - prior_mean[j];
            double spread = focus[DEVIATION * d + j] + strength[j] * n / k * distance * distance;
            double posterior_rate = rate[j] + 0.5 * spread, posterior_shape = shape[j] + 0.5 * n;
            double* scan = focus + SCAN * j;
            scan[0] = prior_mean[j] + n / k * distance;
            double factor = 0.5 * k / (k + 1.0);
            if (COMPLETE) {
                scan[1] = factor / rate[j];
                scan[2] = posterior_rate / rate[j];
                scan[3] = shape[j];
                log_f -= posterior_shape * log(posterior_rate / rate[j]);
            } else {
                scan[1] = factor / posterior_rate;
                scan[2] = log_gamma(posterior_shape + 0.5) - log_gamma(posterior_shape) + 0.5 * log(k / (k + 1.0))
                    - 0.5 * log(6.28318530717958647693 * posterior_rate);
                scan[3] = posterior_shape + 0.5;
                log_f += column_term(j, n, posterior_rate);
            }
        }
        log_f = block_sum(log_f, sums);
        if (COMPLETE) log_f += size_terms[(i64)focus[COUNT * d]];
        if (threadIdx.x == 0) focus[LOG_F * d] = log_f;
        return log_f;
    }

    // log f of one column with n entries, given the posterior rate
    BHCLUST_DEVICE double column_term(int j, double n, double posterior_rate) const {
        double a = shape[j], k = strength[j];
        return log_gamma(a + 0.5 * n) - log_gamma(a) + a * log(rate[j]) - (a + 0.5 * n) * log(posterior_rate)
            + 0.5 * log(k / (k + n)) - 0.91893853320467274178 * n;
    }

    BHCLUST_DEVICE void store(const double* focus, int position) const {
        int d = n_columns;
        for (int j = threadIdx.x; j < d; j += blockDim.x) {
            i64 own = (i64)position * d + j;
            if (!COMPLETE) count[own] = focus[COUNT * d + j];
            mean[own] = focus[MEAN * d + j];
            deviation[own] = focus[DEVIATION * d + j];
        }
        if (COMPLETE && threadIdx.x == 0) count[position] = focus[COUNT * d];
    }

    // The rates of some columns multiply up to numbers that float64 does not hold: add their logs.
    BHCLUST_DEVICE double sum_of_logs(const double* focus, const double* own) const {
        double sum = 0.0, items = focus[COUNT * n_columns] + 1.0;
        for (int j = 0; j < n_columns; j++) {
            const double* column = focus + SCAN * j;
            double gap = own[(i64)j * WARP] - column[0];
            sum += (column[3] + 0.5 * items) * log(column[2] + column[1] * (gap * gap));
        }
        return sum;
    }

    template <int R>
    BHCLUST_DEVICE void singles(
        const double* focus, i64 apart, int n, i64 position, double* scratch, double (&out)[R]
    ) const {
        constexpr int AHEAD = R == 1 ? 16 : (R <= 4 ? 8 : 4);  // loads in flight, and as many in use
        const int d = n_columns;
        const double* own = values + tiled(position, 0, d);
        double product[R], sum[R], exponent = focus[3], next[AHEAD];
        for (int r = 0; r < R; r++) {
            product[r] = 1.0;
            sum[r] = 0.0;
        }
#pragma unroll
        for (int u = 0; u < AHEAD; u++) next[u] = u < d ? own[(i64)u * WARP] : 0.0;
        for (int first = 0; first < d; first += AHEAD) {
            // The next columns are on their way while these are scored.
            double x[AHEAD];
#pragma unroll
            for (int u = 0; u < AHEAD; u++) {
                x[u] = next[u];
                int later = first + AHEAD + u;
                next[u] = later < d ? own[(i64)later * WARP] : 0.0;
            }
#pragma unroll
            for (int u = 0; u < AHEAD; u++) {
                if (first + u >= d) continue;
                const double* column = focus + SCAN * (first + u);
                if (COMPLETE) {
                    if (column[3] != exponent) {
#pragma unroll
                        for (int r = 0; r < R; r++) {
                            if (r >= n) continue;
                            sum[r] += (exponent + 0.5 * (focus[r * apart + COUNT * d] + 1.0)) * log(product[r]);
                            product[r] = 1.0;
                        }
                        exponent = column[3];
                    }
#pragma unroll
                    for (int r = 0; r < R; r++) {
                        if (r >= n) continue;
                        const Pair* c = (const Pair*)(column + r * apart);
                        const Pair place = c[0];
                        double gap = x[u] - place.x;
                        product[r] *= c[1].x + place.y * (gap * gap);
                    }
                } else if (x[u] == x[u]) {
#pragma unroll
                    for (int r = 0; r < R; r++) {
                        if (r >= n) continue;
                        const double* c = column + r * apart;
                        double gap = x[u] - c[0];
                        sum[r] += c[3] * log(1.0 + c[1] * (gap * gap)) - c[2];
                    }
                }
            }
            if (COMPLETE && (first + AHEAD) % 16 == 0) {
#pragma unroll
                for (int r = 0; r < R; r++) {
                    if (r >= n || !(product[r] > 1e100)) continue;
                    sum[r] += (exponent + 0.5 * (focus[r * apart + COUNT * d] + 1.0)) * log(product[r]);
                    product[r] = 1.0;
                }
            }
        }
        for (int r = 0; r < R; r++) {
            if (r >= n) continue;
            const double* f = focus + r * apart;
            if (COMPLETE) {
                sum[r] += (exponent + 0.5 * (f[COUNT * d] + 1.0)) * log(product[r]);
                if (sum[r] == INFINITE) sum[r] = sum_of_logs(f, own);
                out[r] += size_terms[(i64)f[COUNT * d] + 1] - sum[r];
            } else {
                out[r] += f[LOG_F * d] - sum[r];
            }
        }
    }

    BHCLUST_DEVICE double with_cluster(const double* focus, i64 position) const {
        int d = n_columns;
        double n = COMPLETE ? focus[COUNT * d] + count[position] : 0.0, sum = 0.0;
        for (int j = lane_of_thread(); j < d; j += WARP) {
            i64 own = position * d + j;
            double n_focus = focus[COUNT * d + j], m_focus = focus[MEAN * d + j];
            double n_other = COMPLETE ? count[position] : count[own];
            double total = n_focus + n_other, divisor = total > 0 ? total : 1.0, k = strength[j];
            double m = mean[own], gap = m_focus - m;
            double distance = (n_focus / divisor) * m_focus + (n_other / divisor) * m - prior_mean[j];
            double spread = focus[DEVIATION * d + j] + deviation[own] + n_focus * n_other / divisor * gap * gap
                + k * total / (k + total) * distance * distance;
            if (COMPLETE)
                sum += (shape[j] + 0.5 * n) * log(1.0 + 0.5 * spread / rate[j]);
            else
                sum -= column_term(j, total, rate[j] + 0.5 * spread);
        }
        sum = warp_sum(sum);
        return COMPLETE ? size_terms[(i64)n] - sum : -sum;
    }

    template <int R>
    BHCLUST_DEVICE void clusters(
        const double* focus, const double* facts, i64 apart, int n, i64 position, double* scratch, double (&out)[R]
    ) const {
        for (int r = 0; r < R; r++)
            if (r < n) out[r] += with_cluster(focus + r * apart, position);
    }
};

// --- full covariances: Gaussian ------------------------------------------------------------------

// In whitened coordinates, where the prior has mean 0 and scale 1:
// log f = size_terms[n] - (dof + n) / 2 · log |1 + scatter + k n / (k + n) mean mean'|.
template <int D>
struct Full : PlainPart<Full<D>> {
    i64 focus_size;
    double* values;                    // leaves, tiled
    double *count, *mean, *scatter;    // clusters; scatter is a packed lower triangle
    double strength, dof;
    const double* size_terms;

    static constexpr int TRIANGLE = D * (D + 1) / 2;
    // focus: count, mean, scatter; then posterior centre, factor (L D), reciprocals of D, log
    // determinant
    static constexpr int MEAN = 1, SCATTER = MEAN + D, CENTRE = SCATTER + TRIANGLE, FACTOR = CENTRE + D,
                         RECIPROCAL = FACTOR + TRIANGLE, LOG_DETERMINANT = RECIPROCAL + D;

    BHCLUST_DEVICE double number(const double* focus, Place at, int j) const {
        if (at.region == IN_FOCUS) return focus[MEAN + j];
        if (at.region == NOWHERE) return 0.0;
        return at.region == 0 ? values[tiled(at.position, j, D)] : mean[(i64)at.position * D + j];
    }

    BHCLUST_DEVICE double size(const double* focus, Place at) const {
        if (at.region == IN_FOCUS) return focus[0];
        return at.region == NOWHERE ? 0.0 : (at.region == 0 ? 1.0 : count[at.position]);
    }

    BHCLUST_DEVICE void gather(double* focus, const double* facts, Place a, Place b, double* sums) const {
        double n_a = size(focus, a), n_b = size(focus, b), n = n_a + n_b, coupling = n > 0 ? n_a * n_b / n : 0.0;
        double divisor = n > 0 ? n : 1.0;
        // The mean is put aside until nobody needs that of a focus any more.
        for (int j = threadIdx.x; j < D; j += blockDim.x)
            focus[CENTRE + j] = n_a / divisor * number(focus, a, j) + n_b / divisor * number(focus, b, j);
        for (int t = threadIdx.x; t < D * D; t += blockDim.x) {
            int r = t / D, c = t % D;
            if (c > r) continue;
            int at = r * (r + 1) / 2 + c;
            double own = coupling == 0.0 ? 0.0
                : coupling * (number(focus, a, r) - number(focus, b, r)) * (number(focus, a, c) - number(focus, b, c));
            if (a.region == IN_FOCUS) own += focus[SCATTER + at];
            if (a.region == 1) own += scatter[(i64)a.position * TRIANGLE + at];
            if (b.region == 1) own += scatter[(i64)b.position * TRIANGLE + at];
            focus[SCATTER + at] = own;
        }
        __syncthreads();
        if (threadIdx.x == 0) focus[0] = n;
        for (int j = threadIdx.x; j < D; j += blockDim.x) focus[MEAN + j] = focus[CENTRE + j];
    }

    BHCLUST_DEVICE double prepare(double* focus, const double* facts, double* sums) const {
        double n = focus[0], pull = strength * n / (strength + n);
        for (int t = threadIdx.x; t < D * D; t += blockDim.x) {
            int r = t / D, c = t % D;
            if (c > r) continue;
            int at = r * (r + 1) / 2 + c;
            focus[FACTOR + at] = (r == c ? 1.0 : 0.0) + focus[SCATTER + at] + pull * focus[MEAN + r] * focus[MEAN + c];
        }
        for (int j = threadIdx.x; j < D; j += blockDim.x) focus[CENTRE + j] = n / (strength + n) * focus[MEAN + j];
        __syncthreads();
        if (warp_of_thread() == 0) {
            double log_determinant = warp_factor(focus + FACTOR, D, D);
            if (lane_of_thread() == 0) focus[LOG_DETERMINANT] = log_determinant;
            for (int j = lane_of_thread(); j < D; j += WARP)
                focus[RECIPROCAL + j] = 1.0 / focus[FACTOR + j * (j + 1) / 2 + j];
        }
        __syncthreads();
        return size_terms[(i64)n] - 0.5 * (dof + n) * focus[LOG_DETERMINANT];
    }

    BHCLUST_DEVICE void store(const double* focus, int position) const {
        if (threadIdx.x == 0) count[position] = focus[0];
        for (int j = threadIdx.x; j < D; j += blockDim.x) mean[(i64)position * D + j] = focus[MEAN + j];
        for (int t = threadIdx.x; t < TRIANGLE; t += blockDim.x)
            scatter[(i64)position * TRIANGLE + t] = focus[SCATTER + t];
    }

    template <int R>
    BHCLUST_DEVICE void singles(
        const double* focus, i64 apart, int n, i64 position, double* scratch, double (&out)[R]
    ) const {
        // Short rows stay in registers; unrolling long ones would only make a long program.
        constexpr int UNROLLED = D <= 24 ? D : 1;
        double x[D], scaled[D];
#pragma unroll UNROLLED
        for (int j = 0; j < D; j++) x[j] = values[tiled(position, j, D)];
#pragma unroll 1
        for (int r = 0; r < R; r++) {
            if (r >= n) continue;
            const double* f = focus + r * apart;
            double stretch = 0.0;
#pragma unroll UNROLLED
            for (int i = 0; i < D; i++) {
                const double* row = f + FACTOR + i * (i + 1) / 2;
                double value = x[i] - f[CENTRE + i];
#pragma unroll UNROLLED
                for (int j = 0; j < i; j++) value -= row[j] * scaled[j];
                scaled[i] = value * f[RECIPROCAL + i];
                stretch += value * scaled[i];
            }
            double k = strength + f[0], items = f[0] + 1.0;
            double log_determinant = f[LOG_DETERMINANT] + log1p(k / (k + 1.0) * stretch);
            out[r] += size_terms[(i64)items] - 0.5 * (dof + items) * log_determinant;
        }
    }

    // entry (r, c) of the posterior scale matrix of the focus and the cluster at a position
    struct Union {
        double coupling, pull, part_focus, part_other;
    };

    BHCLUST_DEVICE Union union_of(double n_focus, double n_other) const {
        double n = n_focus + n_other;
        return Union{n_focus * n_other / n, strength * n / (strength + n), n_focus / n, n_other / n};
    }

    BHCLUST_DEVICE double entry(const double* focus, i64 position, const Union& u, int r, int c) const {
        double mean_r = mean[position * D + r], mean_c = mean[position * D + c];
        double focus_r = focus[MEAN + r], focus_c = focus[MEAN + c];
        int at = r * (r + 1) / 2 + c;
        double own = (r == c ? 1.0 : 0.0) + (focus[SCATTER + at] + scatter[position * TRIANGLE + at]);
        own += u.coupling * (focus_r - mean_r) * (focus_c - mean_c);
        return own + u.pull * (u.part_focus * focus_r + u.part_other * mean_r) * (u.part_focus * focus_c + u.part_other * mean_c);
    }

    template <int R>
    BHCLUST_DEVICE void clusters(
        const double* focus, const double* facts, i64 apart, int n, i64 position, double* scratch, double (&out)[R]
    ) const {
#pragma unroll 1
        for (int r = 0; r < R; r++) {
            if (r >= n) continue;
            const double* f = focus + r * apart;
            double n_other = count[position], items = f[0] + n_other;
            Union u = union_of(f[0], n_other);
            int row = 0, column = lane_of_thread();
            for (int t = lane_of_thread(); t < TRIANGLE; t += WARP, column += WARP) {
                while (column > row) column -= ++row;
                scratch[t] = entry(f, position, u, row, column);
            }
            __syncwarp();
            double log_determinant = warp_factor(scratch, D, D);
            out[r] += size_terms[(i64)items] - 0.5 * (dof + items) * log_determinant;
        }
    }
};

// --- curves at shared times: TimeSeries ----------------------------------------------------------

// Complete items in the coordinates where the times are independent (`TimeSeries.turned`):
// log f = size_terms[n] - (Σ n z² / (1 + n λ) + deviation) / 2.
struct Series : PlainPart<Series> {
    i64 focus_size, n_times;
    double* turned[2];      // tiled; leaves, clusters
    double* deviation[2];
    double* count;          // clusters
    const double* variance; // λ
    const double* size_terms;

    // focus: turned mean, posterior centre and variance, weight of a leaf's distance of each time;
    // count, deviation, fit
    BHCLUST_DEVICE void gather(double* focus, const double* facts, Place a, Place b, double* sums) const {
        int d = n_times;
        const bool in_focus = a.region == IN_FOCUS;
        double n_a = in_focus ? focus[4 * d] : (a.region == 0 ? 1.0 : count[a.position]);
        double n_b = b.region < 0 ? 0.0 : (b.region == 0 ? 1.0 : count[b.position]);
        double n = n_a + n_b, between = 0.0;
        double divisor = n > 0 ? n : 1.0;
        for (int t = threadIdx.x; t < d; t += blockDim.x) {
            double z_a = in_focus ? focus[t] : turned[a.region][index_of(a.region, a.position, t, d)];
            double z_b = b.region < 0 ? z_a : turned[b.region][index_of(b.region, b.position, t, d)];
            focus[t] = n_a / divisor * z_a + n_b / divisor * z_b;
            between += (z_a - z_b) * (z_a - z_b);
        }
        between = block_sum(between, sums);
        if (threadIdx.x == 0) {
            focus[4 * d] = n;
            double own = in_focus ? focus[4 * d + 1] : deviation[a.region][a.position];
            own += b.region < 0 ? 0.0 : deviation[b.region][b.position];
            focus[4 * d + 1] = own + n_a * n_b / divisor * between;
        }
    }

    BHCLUST_DEVICE double prepare(double* focus, const double* facts, double* sums) const {
        int d = n_times;
        double n = focus[4 * d], fit = 0.0;
        for (int t = threadIdx.x; t < d; t += blockDim.x) {
            double shrink = 1.0 / (1.0 + n * variance[t]), posterior = variance[t] * shrink;
            focus[d + t] = n * posterior * focus[t];
            focus[2 * d + t] = posterior;
            focus[3 * d + t] = 1.0 / (1.0 + posterior);
            fit += n * shrink * focus[t] * focus[t];
        }
        fit = block_sum(fit, sums);
        if (threadIdx.x == 0) focus[4 * d + 2] = fit;
        return size_terms[(i64)n] - 0.5 * (fit + focus[4 * d + 1]);
    }

    BHCLUST_DEVICE void store(const double* focus, int position) const {
        int d = n_times;
        for (int t = threadIdx.x; t < d; t += blockDim.x) turned[1][(i64)position * d + t] = focus[t];
        if (threadIdx.x == 0) {
            count[position] = focus[4 * d];
            deviation[1][position] = focus[4 * d + 1];
        }
    }

    // An item, or n of them, meets the focus through its distance from the posterior centre.
    template <int R, int REGION>
    BHCLUST_DEVICE void unions(const double* focus, i64 apart, int n, i64 position, double (&out)[R]) const {
        const int d = n_times, first = REGION == 0 ? 0 : lane_of_thread(), step = REGION == 0 ? 1 : WARP;
        double n_other = REGION == 0 ? 1.0 : count[position], distance[R];
        for (int r = 0; r < R; r++) distance[r] = 0.0;
        for (int t = first; t < d; t += step) {
            double z = turned[REGION][index_of(REGION, position, t, d)];
#pragma unroll
            for (int r = 0; r < R; r++) {
                if (r >= n) continue;
                const double* f = focus + r * apart + d + t;
                double gap = z - f[0];
                if (REGION == 0)
                    distance[r] += f[2 * d] * (gap * gap);
                else
                    distance[r] += n_other * (gap * gap) / (1.0 + n_other * f[d]);
            }
        }
        for (int r = 0; r < R; r++) {
            if (r >= n) continue;
            const double* f = focus + r * apart + 4 * d;
            if (REGION == 1) distance[r] = warp_sum(distance[r]);
            double total = f[2] + f[1] + deviation[REGION][position] + distance[r];
            out[r] += size_terms[(i64)(f[0] + n_other)] - 0.5 * total;
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

// Items with missing entries share no coordinates: each union is factorised by a warp. Everything is
// in units of the noise. With W = diag(√count), 1 + W K W is the covariance of W mean.
struct SparseSeries : PlainPart<SparseSeries> {
    static constexpr bool ONE_BY_ONE = true;
    i64 focus_size, n_times;
    double* count[2];      // row by row; leaves, clusters
    double* mean[2];
    double* deviation[2];
    const double* covariance;
    double log_noise;

    // focus: count, mean, deviation, then room for one factorisation
    BHCLUST_DEVICE void gather(double* focus, const double* facts, Place a, Place b, double* sums) const {
        const bool in_focus = a.region == IN_FOCUS;
        int d = n_times;
        double between = 0.0;
        for (int t = threadIdx.x; t < d; t += blockDim.x) {
            i64 at_a = (i64)a.position * d + t, at_b = (i64)b.position * d + t;
            double n_a = in_focus ? focus[t] : count[a.region][at_a], m_a = in_focus ? focus[d + t] : mean[a.region][at_a];
            double n_b = b.region < 0 ? 0.0 : count[b.region][at_b];
            double m_b = b.region < 0 ? 0.0 : mean[b.region][at_b];
            double n = n_a + n_b, divisor = n > 0 ? n : 1.0;
            focus[t] = n;
            focus[d + t] = n_a / divisor * m_a + n_b / divisor * m_b;
            between += n_a * n_b / divisor * (m_a - m_b) * (m_a - m_b);
        }
        between = block_sum(between, sums);
        if (threadIdx.x == 0) {
            double own = in_focus ? focus[2 * d] : deviation[a.region][a.position];
            focus[2 * d] = own + (b.region < 0 ? 0.0 : deviation[b.region][b.position]) + between;
        }
    }

    // log f of entries of which the counts and means are given by a function of the time
    template <class Counts, class Means>
    BHCLUST_DEVICE double factorised(double* scratch, double spread, Counts counts, Means means) const {
        const int d = n_times, n_entries = d * (d + 1) / 2;
        double* last = scratch + n_entries;
        int row = 0, column = lane_of_thread();
        for (int t = lane_of_thread(); t < n_entries; t += WARP, column += WARP) {
            while (column > row) column -= ++row;
            double covered = covariance[row * d + column] * sqrt(counts(row) * counts(column));
            scratch[t] = (row == column ? 1.0 : 0.0) + covered;
        }
        double entries = 0.0, fit = 0.0;
        for (int t = lane_of_thread(); t < d; t += WARP) {
            entries += counts(t);
            last[t] = sqrt(counts(t)) * means(t);
        }
        __syncwarp();
        double log_determinant = warp_factor(scratch, d, d + 1);
        for (int t = lane_of_thread(); t < d; t += WARP) fit += last[t] * last[t] / scratch[t * (t + 1) / 2 + t];
        fit = warp_sum(fit + entries * log_noise);
        return -0.5 * (spread + log_determinant + fit);
    }

    BHCLUST_DEVICE double prepare(double* focus, const double* facts, double* sums) const {
        int d = n_times;
        if (warp_of_thread() == 0) {
            double log_f = factorised(
                focus + 2 * d + 2, focus[2 * d], [=](int t) { return focus[t]; }, [=](int t) { return focus[d + t]; }
            );
            if (lane_of_thread() == 0) focus[2 * d + 1] = log_f;
        }
        __syncthreads();
        return focus[2 * d + 1];
    }

    BHCLUST_DEVICE void store(const double* focus, int position) const {
        int d = n_times;
        for (int t = threadIdx.x; t < d; t += blockDim.x) {
            count[1][(i64)position * d + t] = focus[t];
            mean[1][(i64)position * d + t] = focus[d + t];
        }
        if (threadIdx.x == 0) deviation[1][position] = focus[2 * d];
    }

    BHCLUST_DEVICE double with(int region, const double* focus, i64 position, double* scratch) const {
        const int d = n_times;
        const double *n_other = count[region] + position * d, *m_other = mean[region] + position * d;
        double spread = 0.0;
        for (int t = lane_of_thread(); t < d; t += WARP) {
            double gap = focus[d + t] - m_other[t], n = focus[t] + n_other[t];
            spread += focus[t] * n_other[t] / (n > 0 ? n : 1.0) * gap * gap;
        }
        spread = warp_sum(spread) + focus[2 * d] + deviation[region][position];
        auto counts = [=](int t) { return focus[t] + n_other[t]; };
        auto means = [=](int t) {
            double n = focus[t] + n_other[t], divisor = n > 0 ? n : 1.0;
            return focus[t] / divisor * focus[d + t] + n_other[t] / divisor * m_other[t];
        };
        return factorised(scratch, spread, counts, means);
    }

    template <int R>
    BHCLUST_DEVICE void singles(
        const double* focus, i64 apart, int n, i64 position, double* scratch, double (&out)[R]
    ) const {
#pragma unroll 1
        for (int r = 0; r < R; r++)
            if (r < n) out[r] += with(0, focus + r * apart, position, scratch);
    }

    template <int R>
    BHCLUST_DEVICE void clusters(
        const double* focus, const double* facts, i64 apart, int n, i64 position, double* scratch, double (&out)[R]
    ) const {
#pragma unroll 1
        for (int r = 0; r < R; r++)
            if (r < n) out[r] += with(1, focus + r * apart, position, scratch);
    }
};
