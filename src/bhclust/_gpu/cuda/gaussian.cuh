// Parts for real numbers: independent columns, full covariances, curves at shared times.

// --- independent columns: DiagonalGaussian -------------------------------------------------------

// Columns stand in the order of their shapes: the posterior rates of columns with the same shape
// have the same exponent, so that a product of them needs one logarithm.
template <bool COMPLETE>
struct Diagonal {
    i64 focus_size, n_columns;
    double* values;           // leaves: distance from the origin, tiled; NaN is missing
    double *count, *mean, *deviation;  // clusters, tiled; one count a cluster if complete
    const double *prior_mean, *strength, *shape, *rate;
    const double* size_terms;  // complete: what a number of items adds by itself

    // focus: count, mean, deviation; then for leaves {centre, factor, base, shape} of each column
    // (complete), or {centre, factor, constant, power} and log f behind them
    static constexpr int STATS = 3, SCAN = 4;

    BHCLUST_DEVICE void gather(double* focus, Place a, Place b, double* sums) const {
        int d = n_columns;
        for (int j = threadIdx.x; j < d; j += blockDim.x) {
            double n[2], m[2], s[2];
            for (int side = 0; side < 2; side++) {
                Place at = side == 0 ? a : b;
                n[side] = m[side] = s[side] = 0.0;
                if (at.region == 0) {
                    double x = values[tiled(at.position, j, d)];
                    if (x == x) {
                        n[side] = 1.0;
                        m[side] = x;
                    }
                } else if (at.region == 1) {
                    n[side] = COMPLETE ? count[at.position] : count[tiled(at.position, j, d)];
                    m[side] = mean[tiled(at.position, j, d)];
                    s[side] = deviation[tiled(at.position, j, d)];
                }
            }
            double total = n[0] + n[1], divisor = total > 0 ? total : 1.0, gap = m[0] - m[1];
            focus[j] = total;
            focus[d + j] = n[0] / divisor * m[0] + n[1] / divisor * m[1];
            focus[2 * d + j] = s[0] + s[1] + n[0] * n[1] / divisor * gap * gap;
        }
    }

    BHCLUST_DEVICE double prepare(double* focus, double* sums) const {
        int d = n_columns;
        double log_f = 0.0;
        for (int j = threadIdx.x; j < d; j += blockDim.x) {
            double n = focus[j], k = strength[j] + n, distance = focus[d + j] - prior_mean[j];
            double posterior_rate = rate[j] + 0.5 * (focus[2 * d + j] + strength[j] * n / k * distance * distance);
            double posterior_shape = shape[j] + 0.5 * n;
            double* scan = focus + STATS * d + SCAN * j;
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
        if (COMPLETE) log_f += size_terms[(i64)focus[0]];
        if (threadIdx.x == 0) focus[(STATS + SCAN) * d] = log_f;
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
            if (!COMPLETE) count[tiled(position, j, d)] = focus[j];
            mean[tiled(position, j, d)] = focus[d + j];
            deviation[tiled(position, j, d)] = focus[2 * d + j];
        }
        if (COMPLETE && threadIdx.x == 0) count[position] = focus[0];
    }

    BHCLUST_DEVICE void move(int region, int from, int to) const {
        int d = n_columns;
        for (int j = threadIdx.x; j < d; j += blockDim.x) {
            i64 source = tiled(from, j, d), target = tiled(to, j, d);
            if (region == 0) {
                values[target] = values[source];
            } else {
                if (!COMPLETE) count[target] = count[source];
                mean[target] = mean[source];
                deviation[target] = deviation[source];
            }
        }
        if (COMPLETE && region == 1 && threadIdx.x == 0) count[to] = count[from];
    }

    template <int R>
    BHCLUST_DEVICE void singles(
        const double* focus, i64 apart, int n, i64 position, double* scratch, double (&out)[R]
    ) const {
        constexpr int AHEAD = R > 1 ? 4 : 8;  // loads in flight
        int d = n_columns;
        const double* scan = focus + STATS * d;
        const double* own = values + tiled(position, 0, d);
        double product[R], sum[R], exponent = scan[3];
        for (int r = 0; r < R; r++) {
            product[r] = 1.0;
            sum[r] = 0.0;
        }
        for (int first = 0; first < d; first += AHEAD) {
            double x[AHEAD];
#pragma unroll
            for (int u = 0; u < AHEAD; u++) x[u] = first + u < d ? own[(i64)(first + u) * WARP] : 0.0;
#pragma unroll
            for (int u = 0; u < AHEAD; u++) {
                if (first + u >= d) continue;
                const double* column = scan + SCAN * (first + u);
                if (COMPLETE) {
                    bool other_shape = column[3] != exponent;
#pragma unroll
                    for (int r = 0; r < R; r++) {
                        if (r >= n) continue;
                        if (other_shape || product[r] > 1e100) {
                            sum[r] += (exponent + 0.5 * (focus[r * apart] + 1.0)) * log(product[r]);
                            product[r] = 1.0;
                        }
                        const double* c = column + r * apart;
                        double gap = x[u] - c[0];
                        product[r] *= c[2] + c[1] * (gap * gap);
                    }
                    exponent = column[3];
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
        }
        for (int r = 0; r < R; r++) {
            if (r >= n) continue;
            const double* f = focus + r * apart;
            if (COMPLETE) {
                sum[r] += (exponent + 0.5 * (f[0] + 1.0)) * log(product[r]);
                out[r] += size_terms[(i64)f[0] + 1] - sum[r];
            } else {
                out[r] += f[(STATS + SCAN) * d] - sum[r];
            }
        }
    }

    BHCLUST_DEVICE double with_cluster(const double* focus, i64 position) const {
        int d = n_columns;
        double n = COMPLETE ? focus[0] + count[position] : 0.0;
        double product = 1.0, sum = 0.0, exponent = shape[0];
        for (int j = 0; j < d; j++) {
            double n_other = COMPLETE ? count[position] : count[tiled(position, j, d)];
            double total = focus[j] + n_other, divisor = total > 0 ? total : 1.0;
            double m = mean[tiled(position, j, d)], gap = focus[d + j] - m;
            double centre = (focus[j] / divisor) * focus[d + j] + (n_other / divisor) * m;
            double distance = centre - prior_mean[j], k = strength[j];
            double spread = focus[2 * d + j] + deviation[tiled(position, j, d)]
                + focus[j] * n_other / divisor * gap * gap + k * total / (k + total) * distance * distance;
            if (COMPLETE) {
                if (shape[j] != exponent || product > 1e100) {
                    sum += (exponent + 0.5 * n) * log(product);
                    product = 1.0;
                    exponent = shape[j];
                }
                product *= 1.0 + 0.5 * spread / rate[j];
            } else {
                sum -= column_term(j, total, rate[j] + 0.5 * spread);
            }
        }
        if (!COMPLETE) return -sum;
        return size_terms[(i64)n] - sum - (exponent + 0.5 * n) * log(product);
    }

    template <int R>
    BHCLUST_DEVICE void clusters(
        const double* focus, i64 apart, int n, i64 position, double* scratch, double (&out)[R]
    ) const {
        for (int r = 0; r < R; r++)
            if (r < n) out[r] += with_cluster(focus + r * apart, position);
    }
};

// --- full covariances: Gaussian ------------------------------------------------------------------

// In whitened coordinates, where the prior has mean 0 and scale 1:
// log f = size_terms[n] - (dof + n) / 2 · log |1 + scatter + k n / (k + n) mean mean'|.
template <int D>
struct Full {
    i64 focus_size;
    double* values;                    // leaves, tiled
    double *count, *mean, *scatter;    // clusters; scatter is a packed lower triangle
    double strength, dof;
    const double* size_terms;

    static constexpr int TRIANGLE = D * (D + 1) / 2;
    static constexpr bool BY_THREAD = D <= 6;  // larger unions are factorised by a warp
    // focus: count, mean, scatter; then posterior centre, factor, reciprocals of its diagonal,
    // log determinant
    static constexpr int MEAN = 1, SCATTER = MEAN + D, CENTRE = SCATTER + TRIANGLE, FACTOR = CENTRE + D,
                         RECIPROCAL = FACTOR + TRIANGLE, LOG_DETERMINANT = RECIPROCAL + D;

    BHCLUST_DEVICE double number(Place at, int j) const {
        if (at.region < 0) return 0.0;
        return at.region == 0 ? values[tiled(at.position, j, D)] : mean[tiled(at.position, j, D)];
    }

    BHCLUST_DEVICE double size(Place at) const {
        return at.region < 0 ? 0.0 : (at.region == 0 ? 1.0 : count[at.position]);
    }

    BHCLUST_DEVICE void gather(double* focus, Place a, Place b, double* sums) const {
        double n_a = size(a), n_b = size(b), n = n_a + n_b, coupling = n > 0 ? n_a * n_b / n : 0.0;
        double divisor = n > 0 ? n : 1.0;
        if (threadIdx.x == 0) focus[0] = n;
        for (int j = threadIdx.x; j < D; j += blockDim.x)
            focus[MEAN + j] = n_a / divisor * number(a, j) + n_b / divisor * number(b, j);
        for (int t = threadIdx.x; t < D * D; t += blockDim.x) {
            int r = t / D, c = t % D;
            if (c > r) continue;
            int at = r * (r + 1) / 2 + c;
            double own = coupling == 0.0 ? 0.0
                : coupling * (number(a, r) - number(b, r)) * (number(a, c) - number(b, c));
            if (a.region == 1) own += scatter[tiled(a.position, at, TRIANGLE)];
            if (b.region == 1) own += scatter[tiled(b.position, at, TRIANGLE)];
            focus[SCATTER + at] = own;
        }
    }

    BHCLUST_DEVICE double prepare(double* focus, double* sums) const {
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
        for (int j = threadIdx.x; j < D; j += blockDim.x) mean[tiled(position, j, D)] = focus[MEAN + j];
        for (int t = threadIdx.x; t < TRIANGLE; t += blockDim.x)
            scatter[tiled(position, t, TRIANGLE)] = focus[SCATTER + t];
    }

    BHCLUST_DEVICE void move(int region, int from, int to) const {
        for (int j = threadIdx.x; j < D; j += blockDim.x) {
            double* source = region == 0 ? values : mean;
            source[tiled(to, j, D)] = source[tiled(from, j, D)];
        }
        if (region == 0) return;
        if (threadIdx.x == 0) count[to] = count[from];
        for (int t = threadIdx.x; t < TRIANGLE; t += blockDim.x)
            scatter[tiled(to, t, TRIANGLE)] = scatter[tiled(from, t, TRIANGLE)];
    }

    template <int R>
    BHCLUST_DEVICE void singles(
        const double* focus, i64 apart, int n, i64 position, double* scratch, double (&out)[R]
    ) const {
        // Short rows stay in registers; unrolling long ones would only make a long program.
        constexpr int UNROLLED = D <= 24 ? D : 1;
        double x[D], whitened[D];
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
                for (int j = 0; j < i; j++) value -= row[j] * whitened[j];
                whitened[i] = value * f[RECIPROCAL + i];
                stretch += whitened[i] * whitened[i];
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
        double mean_r = mean[tiled(position, r, D)], mean_c = mean[tiled(position, c, D)];
        double focus_r = focus[MEAN + r], focus_c = focus[MEAN + c];
        int at = r * (r + 1) / 2 + c;
        double own = (r == c ? 1.0 : 0.0) + (focus[SCATTER + at] + scatter[tiled(position, at, TRIANGLE)]);
        own += u.coupling * (focus_r - mean_r) * (focus_c - mean_c);
        return own + u.pull * (u.part_focus * focus_r + u.part_other * mean_r) * (u.part_focus * focus_c + u.part_other * mean_c);
    }

    BHCLUST_DEVICE double by_thread(const double* focus, i64 position, const Union& u) const {
        double packed[TRIANGLE], log_determinant = 0.0;
#pragma unroll
        for (int r = 0; r < D; r++) {
#pragma unroll
            for (int c = 0; c <= r; c++) packed[r * (r + 1) / 2 + c] = entry(focus, position, u, r, c);
        }
#pragma unroll
        for (int k = 0; k < D; k++) {
            double pivot = packed[k * (k + 1) / 2 + k];
            log_determinant += log(pivot);
#pragma unroll
            for (int r = k + 1; r < D; r++) {
                double factor = packed[r * (r + 1) / 2 + k] / pivot;
#pragma unroll
                for (int c = k + 1; c <= r; c++) packed[r * (r + 1) / 2 + c] -= factor * packed[c * (c + 1) / 2 + k];
            }
        }
        return log_determinant;
    }

    BHCLUST_DEVICE double by_warp(const double* focus, i64 position, const Union& u, double* scratch) const {
        for (int r = 0; r < D; r++)
            for (int c = lane_of_thread(); c <= r; c += WARP)
                scratch[r * (r + 1) / 2 + c] = entry(focus, position, u, r, c);
        __syncwarp();
        double log_determinant = warp_factor(scratch, D, D);
        __syncwarp();
        return log_determinant;
    }

    template <int R>
    BHCLUST_DEVICE void clusters(
        const double* focus, i64 apart, int n, i64 position, double* scratch, double (&out)[R]
    ) const {
#pragma unroll 1
        for (int r = 0; r < R; r++) {
            if (r >= n) continue;
            const double* f = focus + r * apart;
            double n_other = count[position], items = f[0] + n_other, log_determinant = 0.0;
            if constexpr (BY_THREAD) {
                log_determinant = by_thread(f, position, union_of(f[0], n_other));
            } else {
                for (int lane = 0; lane < WARP; lane++) {
                    i64 there = from_lane((int)position, lane);
                    double found = by_warp(f, there, union_of(f[0], count[there]), scratch);
                    if (lane == lane_of_thread()) log_determinant = found;
                }
            }
            out[r] += size_terms[(i64)items] - 0.5 * (dof + items) * log_determinant;
        }
    }
};

// --- curves at shared times: TimeSeries ----------------------------------------------------------

// Complete items in the coordinates where the times are independent (`TimeSeries.turned`):
// log f = size_terms[n] - (Σ n z² / (1 + n λ) + deviation) / 2.
struct Series {
    i64 focus_size, n_times;
    double* turned[2];      // tiled; leaves, clusters
    double* deviation[2];
    double* count;          // clusters
    const double* variance; // λ
    const double* size_terms;

    // focus: turned mean, posterior centre and variance, weight of a leaf's distance of each time;
    // count, deviation, fit
    BHCLUST_DEVICE void gather(double* focus, Place a, Place b, double* sums) const {
        int d = n_times;
        double n_a = a.region == 0 ? 1.0 : count[a.position];
        double n_b = b.region < 0 ? 0.0 : (b.region == 0 ? 1.0 : count[b.position]);
        double n = n_a + n_b, between = 0.0;
        double divisor = n > 0 ? n : 1.0;
        for (int t = threadIdx.x; t < d; t += blockDim.x) {
            double z_a = turned[a.region][tiled(a.position, t, d)];
            double z_b = b.region < 0 ? z_a : turned[b.region][tiled(b.position, t, d)];
            focus[t] = n_a / divisor * z_a + n_b / divisor * z_b;
            between += (z_a - z_b) * (z_a - z_b);
        }
        between = block_sum(between, sums);
        if (threadIdx.x == 0) {
            focus[4 * d] = n;
            double own = deviation[a.region][a.position] + (b.region < 0 ? 0.0 : deviation[b.region][b.position]);
            focus[4 * d + 1] = own + n_a * n_b / divisor * between;
        }
    }

    BHCLUST_DEVICE double prepare(double* focus, double* sums) const {
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
        for (int t = threadIdx.x; t < d; t += blockDim.x) turned[1][tiled(position, t, d)] = focus[t];
        if (threadIdx.x == 0) {
            count[position] = focus[4 * d];
            deviation[1][position] = focus[4 * d + 1];
        }
    }

    BHCLUST_DEVICE void move(int region, int from, int to) const {
        int d = n_times;
        double* z = turned[region];
        for (int t = threadIdx.x; t < d; t += blockDim.x) z[tiled(to, t, d)] = z[tiled(from, t, d)];
        if (threadIdx.x == 0) {
            deviation[region][to] = deviation[region][from];
            if (region == 1) count[to] = count[from];
        }
    }

    // An item, or n of them, meets the focus through its distance from the posterior centre.
    template <int R, int REGION>
    BHCLUST_DEVICE void unions(const double* focus, i64 apart, int n, i64 position, double (&out)[R]) const {
        int d = n_times;
        double n_other = REGION == 0 ? 1.0 : count[position], distance[R];
        for (int r = 0; r < R; r++) distance[r] = 0.0;
        for (int t = 0; t < d; t++) {
            double z = turned[REGION][tiled(position, t, d)];
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
        const double* focus, i64 apart, int n, i64 position, double* scratch, double (&out)[R]
    ) const {
        unions<R, 1>(focus, apart, n, position, out);
    }
};

// Items with missing entries share no coordinates: each union is factorised by a warp. Everything is
// in units of the noise. With W = diag(√count), 1 + W K W is the covariance of W mean.
struct SparseSeries {
    i64 focus_size, n_times;
    double* count[2];      // tiled; leaves, clusters
    double* mean[2];
    double* deviation[2];
    const double* covariance;
    double log_noise;

    // focus: count, mean, deviation, then room for one factorisation
    BHCLUST_DEVICE void gather(double* focus, Place a, Place b, double* sums) const {
        int d = n_times;
        double between = 0.0;
        for (int t = threadIdx.x; t < d; t += blockDim.x) {
            i64 at_a = tiled(a.position, t, d), at_b = tiled(b.position, t, d);
            double n_a = count[a.region][at_a], m_a = mean[a.region][at_a];
            double n_b = b.region < 0 ? 0.0 : count[b.region][at_b];
            double m_b = b.region < 0 ? 0.0 : mean[b.region][at_b];
            double n = n_a + n_b, divisor = n > 0 ? n : 1.0;
            focus[t] = n;
            focus[d + t] = n_a / divisor * m_a + n_b / divisor * m_b;
            between += n_a * n_b / divisor * (m_a - m_b) * (m_a - m_b);
        }
        between = block_sum(between, sums);
        if (threadIdx.x == 0)
            focus[2 * d] = deviation[a.region][a.position] + (b.region < 0 ? 0.0 : deviation[b.region][b.position]) + between;
    }

    // log f of entries of which the counts and means are given by a function of the time
    template <class Counts, class Means>
    BHCLUST_DEVICE double factorised(double* scratch, double spread, Counts counts, Means means) const {
        int d = n_times;
        double* last = scratch + d * (d + 1) / 2;
        double entries = 0.0;
        for (int r = 0; r < d; r++) {
            double root = sqrt(counts(r));
            for (int c = lane_of_thread(); c <= r; c += WARP)
                scratch[r * (r + 1) / 2 + c] = (r == c ? 1.0 : 0.0) + root * covariance[r * d + c] * sqrt(counts(c));
            entries += counts(r);
        }
        for (int t = lane_of_thread(); t < d; t += WARP) last[t] = sqrt(counts(t)) * means(t);
        if (lane_of_thread() == 0) last[d] = 0.0;
        __syncwarp();
        double log_determinant = warp_factor(scratch, d, d + 1);
        double fit = 0.0;
        for (int t = 0; t < d; t++) fit += last[t] * last[t];
        __syncwarp();
        return -0.5 * (entries * log_noise + spread + log_determinant + fit);
    }

    BHCLUST_DEVICE double prepare(double* focus, double* sums) const {
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
            count[1][tiled(position, t, d)] = focus[t];
            mean[1][tiled(position, t, d)] = focus[d + t];
        }
        if (threadIdx.x == 0) deviation[1][position] = focus[2 * d];
    }

    BHCLUST_DEVICE void move(int region, int from, int to) const {
        int d = n_times;
        for (int t = threadIdx.x; t < d; t += blockDim.x) {
            count[region][tiled(to, t, d)] = count[region][tiled(from, t, d)];
            mean[region][tiled(to, t, d)] = mean[region][tiled(from, t, d)];
        }
        if (threadIdx.x == 0) deviation[region][to] = deviation[region][from];
    }

    BHCLUST_DEVICE double with(int region, const double* focus, i64 position, double* scratch) const {
        int d = n_times;
        const double *n_other = count[region], *m_other = mean[region];
        double spread = focus[2 * d] + deviation[region][position];
        for (int t = 0; t < d; t++) {
            double n_o = n_other[tiled(position, t, d)], gap = focus[d + t] - m_other[tiled(position, t, d)];
            double n = focus[t] + n_o;
            spread += focus[t] * n_o / (n > 0 ? n : 1.0) * gap * gap;
        }
        auto counts = [=](int t) { return focus[t] + n_other[tiled(position, t, d)]; };
        auto means = [=](int t) {
            double n_o = n_other[tiled(position, t, d)], n = focus[t] + n_o, divisor = n > 0 ? n : 1.0;
            return focus[t] / divisor * focus[d + t] + n_o / divisor * m_other[tiled(position, t, d)];
        };
        return factorised(scratch, spread, counts, means);
    }

    template <int R>
    BHCLUST_DEVICE void unions(
        int region, const double* focus, i64 apart, int n, i64 position, double* scratch, double (&out)[R]
    ) const {
#pragma unroll 1
        for (int r = 0; r < R; r++) {
            if (r >= n) continue;
            for (int lane = 0; lane < WARP; lane++) {
                i64 there = from_lane((int)position, lane);
                double found = with(region, focus + r * apart, there, scratch);
                if (lane == lane_of_thread()) out[r] += found;
            }
        }
    }

    template <int R>
    BHCLUST_DEVICE void singles(
        const double* focus, i64 apart, int n, i64 position, double* scratch, double (&out)[R]
    ) const {
        unions<R>(0, focus, apart, n, position, scratch, out);
    }

    template <int R>
    BHCLUST_DEVICE void clusters(
        const double* focus, i64 apart, int n, i64 position, double* scratch, double (&out)[R]
    ) const {
        unions<R>(1, focus, apart, n, position, scratch, out);
    }
};
