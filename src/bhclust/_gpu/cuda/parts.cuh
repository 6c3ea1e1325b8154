// Cluster models. A part keeps the statistics of the leaves that are alone (region 0) and of the
// merged clusters (region 1) by position, and scores a *focus* against them:
//
//   gather(focus, a, b, sums)        the focus becomes the cluster at a, or the union of a and b
//   prepare(focus, sums)             log f of the focus, and what scoring needs
//   store(focus, position)           write the focus among the clusters
//   move(region, from, to)
//   singles<R>(focus, stride, n, position, scratch, out)
//                                    add log f of up to R foci with the leaf at each lane's position
//   clusters<R>(...)                 the same with one cluster, by all lanes of a warp together
//
// All but the last two are called by all threads of a block, with a barrier after each; the last
// two by all lanes of a warp. Where ONE_BY_ONE, a warp takes single leaves together as well. A focus is `focus_size` doubles, the R foci are `stride` apart.
// All fields have eight bytes, so that the host can write them as a row of numbers.

// --- columns with a few values: Bernoulli, Categorical -------------------------------------------

// A value of a column is one digit of its group's code.
struct alignas(16) Digit {
    int group, stride, n_levels, level;
};

struct Categorical {
    static constexpr bool ONE_BY_ONE = false;
    i64 focus_size, n_values, n_columns, n_levels, n_groups, width, n_digits, code_bits, complete;
    const unsigned* codes;   // leaves: one code a group, packed into words
    int* counts;             // clusters
    const int* column_of;    // column of each value
    const int* start;        // first value of each column
    const int* level_of;     // level of each value: where its log probability stands
    const Digit* digit_of;   // where each value stands in the code of its group
    const int* digits;       // (n_digits, n_groups * width): the levels behind each code
    const double *alpha, *total, *table, *total_table, *size_terms;
    double constant;

    // focus: counts (n_values), observed (n_columns), log f, levels (n_levels + 1), table of sums
    BHCLUST_DEVICE i64 observed_at() const { return n_values; }
    BHCLUST_DEVICE i64 log_f_at() const { return n_values + n_columns; }
    BHCLUST_DEVICE i64 levels_at() const { return n_values + n_columns + 1; }
    BHCLUST_DEVICE i64 sums_at() const { return levels_at() + n_levels + 1; }

    BHCLUST_DEVICE int code(i64 position, int g) const {
        int per_word = 32 / (int)code_bits;
        unsigned word = codes[tiled(position, g / per_word, (n_groups + per_word - 1) / per_word)];
        return (word >> (g % per_word * code_bits)) & ((1u << code_bits) - 1);
    }

    BHCLUST_DEVICE double count(Place at, int s) const {
        if (at.region < 0) return 0.0;
        if (at.region == 1) return counts[at.position * n_values + s];
        Digit digit = digit_of[s];
        return code(at.position, digit.group) / digit.stride % digit.n_levels == digit.level ? 1.0 : 0.0;
    }

    BHCLUST_DEVICE void gather(double* focus, Place a, Place b, double* sums) const {
        for (int s = threadIdx.x; s < n_values; s += blockDim.x) focus[s] = count(a, s) + count(b, s);
    }

    BHCLUST_DEVICE double prepare(double* focus, double* sums) const {
        double* observed = focus + observed_at();
        double* levels = focus + levels_at();
        double log_f = 0.0;
        for (int j = threadIdx.x; j < n_columns; j += blockDim.x) {
            double items = 0.0;
            for (int s = start[j]; s < start[j + 1]; s++) items += focus[s];
            observed[j] = items;
            log_f -= log_gamma_at(total_table, j, total[j], items);
        }
        for (int l = threadIdx.x; l <= n_levels; l += blockDim.x) levels[l] = 0.0;
        __syncthreads();
        for (int s = threadIdx.x; s < n_values; s += blockDim.x) {
            int j = column_of[s];
            log_f += log_gamma_at(table, s, alpha[s], focus[s]);
            levels[level_of[s]] = log((alpha[s] + focus[s]) / (total[j] + observed[j]));
        }
        log_f = constant + block_sum(log_f, sums);
        if (threadIdx.x == 0) focus[log_f_at()] = log_f;
        int n_codes = n_groups * width;
        for (int c = threadIdx.x; c < n_codes; c += blockDim.x) {
            double sum = 0.0;
            for (int digit = 0; digit < n_digits; digit++) sum += levels[digits[digit * n_codes + c]];
            focus[sums_at() + c] = sum;
        }
        return log_f;
    }

    BHCLUST_DEVICE void store(const double* focus, int position) const {
        for (int s = threadIdx.x; s < n_values; s += blockDim.x)
            counts[position * n_values + s] = (int)focus[s];
    }

    BHCLUST_DEVICE void move(int region, int from, int to) const {
        if (region == 0) {
            int per_word = 32 / (int)code_bits, n_words = (n_groups + per_word - 1) / per_word;
            unsigned* words = const_cast<unsigned*>(codes);
            for (int w = threadIdx.x; w < n_words; w += blockDim.x)
                words[tiled(to, w, n_words)] = words[tiled(from, w, n_words)];
        } else {
            for (int s = threadIdx.x; s < n_values; s += blockDim.x)
                counts[to * n_values + s] = counts[from * n_values + s];
        }
    }

    template <int R>
    BHCLUST_DEVICE void singles(
        const double* focus, i64 apart, int n, i64 position, double* scratch, double (&out)[R]
    ) const {
        const int per_word = 32 / (int)code_bits, n_words = (n_groups + per_word - 1) / per_word;
        const unsigned mask = (1u << code_bits) - 1;
        const double* sums = focus + sums_at();
        for (int r = 0; r < R; r++)
            if (r < n) out[r] += focus[r * apart + log_f_at()];
        int g = 0;
        for (int w = 0; w < n_words; w++) {
            unsigned word = codes[tiled(position, w, n_words)];
            for (int b = 0; b < per_word && g < n_groups; b++, g++) {
                const double* sum = sums + g * width + (word & mask);
                word >>= code_bits;
#pragma unroll
                for (int r = 0; r < R; r++)
                    if (r < n) out[r] += sum[r * apart];
            }
        }
    }

    BHCLUST_DEVICE double with_cluster(const double* focus, i64 position) const {
        const int* own = counts + position * n_values;
        double value = 0.0;
        for (int s = lane_of_thread(); s < n_values; s += WARP)
            value += log_gamma_at(table, s, alpha[s], focus[s] + own[s]);
        if (!complete) {
            for (int j = lane_of_thread(); j < n_columns; j += WARP) {
                double items = focus[observed_at() + j];
                for (int s = start[j]; s < start[j + 1]; s++) items += own[s];
                value -= log_gamma_at(total_table, j, total[j], items);
            }
            return constant + warp_sum(value);
        }
        double items = focus[observed_at()];
        for (int s = 0; s < start[1]; s++) items += own[s];
        return constant + warp_sum(value) - size_terms[(i64)items];
    }

    template <int R>
    BHCLUST_DEVICE void clusters(
        const double* focus, i64 apart, int n, i64 position, double* scratch, double (&out)[R]
    ) const {
        for (int r = 0; r < R; r++)
            if (r < n) out[r] += with_cluster(focus + r * apart, position);
    }
};

// --- rows of counts: Multinomial -----------------------------------------------------------------

struct Multinomial {
    static constexpr bool ONE_BY_ONE = false;
    i64 focus_size, n_columns;
    double* counts[2];       // tiled; leaves, clusters
    double* totals[2];       // row totals
    double* coefficients[2]; // log multinomial coefficients
    const double *alpha, *table;
    double total_alpha, constant;

    // focus: counts, total, coefficient
    BHCLUST_DEVICE void gather(double* focus, Place a, Place b, double* sums) const {
        for (int j = threadIdx.x; j < n_columns + 2; j += blockDim.x) {
            double value = 0.0;
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

    BHCLUST_DEVICE double prepare(double* focus, double* sums) const {
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

    BHCLUST_DEVICE void move(int region, int from, int to) const {
        double* c = counts[region];
        for (int j = threadIdx.x; j < n_columns; j += blockDim.x)
            c[index_of(region, to, j, n_columns)] = c[index_of(region, from, j, n_columns)];
        if (threadIdx.x == 0) {
            totals[region][to] = totals[region][from];
            coefficients[region][to] = coefficients[region][from];
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
        const double* focus, i64 apart, int n, i64 position, double* scratch, double (&out)[R]
    ) const {
        unions<R, 1>(focus, apart, n, position, out);
    }
};

// --- counts: Poisson -----------------------------------------------------------------------------

template <bool COMPLETE>
struct Poisson {
    static constexpr bool ONE_BY_ONE = false;
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

    BHCLUST_DEVICE void gather(double* focus, Place a, Place b, double* sums) const {
        int d = n_columns;
        for (int j = threadIdx.x; j < d + 1; j += blockDim.x) {
            double total = 0.0, n_items = 0.0;
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

    BHCLUST_DEVICE double prepare(double* focus, double* sums) const {
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

    BHCLUST_DEVICE void move(int region, int from, int to) const {
        int d = n_columns;
        for (int j = threadIdx.x; j < d; j += blockDim.x) {
            i64 source = index_of(region, from, j, d), target = index_of(region, to, j, d);
            sums_of[region][target] = sums_of[region][source];
            if (!COMPLETE) items[region][target] = items[region][source];
        }
        if (threadIdx.x == 0) {
            if (COMPLETE && region == 1) items[1][to] = items[1][from];
            log_factorials[region][to] = log_factorials[region][from];
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
        const double* focus, i64 apart, int n, i64 position, double* scratch, double (&out)[R]
    ) const {
        unions<R, 1>(focus, apart, n, position, out);
    }
};

// --- several parts -------------------------------------------------------------------------------

template <class... Parts>
struct Model {
    static constexpr bool ONE_BY_ONE = false;
    BHCLUST_DEVICE void gather(double*, Place, Place, double*) const {}
    BHCLUST_DEVICE double prepare(double*, double*) const { return 0.0; }
    BHCLUST_DEVICE void store(const double*, int) const {}
    BHCLUST_DEVICE void move(int, int, int) const {}
    template <int R>
    BHCLUST_DEVICE void singles(const double*, i64, int, i64, double*, double (&)[R]) const {}
    template <int R>
    BHCLUST_DEVICE void clusters(const double*, i64, int, i64, double*, double (&)[R]) const {}
};

// The log f of several parts add up; the focus of one stands behind that of the other.
template <class First, class... Rest>
struct Model<First, Rest...> {
    static constexpr bool ONE_BY_ONE = First::ONE_BY_ONE || Model<Rest...>::ONE_BY_ONE;
    First first;
    Model<Rest...> rest;

    BHCLUST_DEVICE void gather(double* focus, Place a, Place b, double* sums) const {
        first.gather(focus, a, b, sums);
        rest.gather(focus + first.focus_size, a, b, sums);
    }

    BHCLUST_DEVICE double prepare(double* focus, double* sums) const {
        double log_f = first.prepare(focus, sums);
        return log_f + rest.prepare(focus + first.focus_size, sums);
    }

    BHCLUST_DEVICE void store(const double* focus, int position) const {
        first.store(focus, position);
        rest.store(focus + first.focus_size, position);
    }

    BHCLUST_DEVICE void move(int region, int from, int to) const {
        first.move(region, from, to);
        rest.move(region, from, to);
    }

    template <int R>
    BHCLUST_DEVICE void singles(
        const double* focus, i64 apart, int n, i64 position, double* scratch, double (&out)[R]
    ) const {
        first.template singles<R>(focus, apart, n, position, scratch, out);
        rest.template singles<R>(focus + first.focus_size, apart, n, position, scratch, out);
    }

    template <int R>
    BHCLUST_DEVICE void clusters(
        const double* focus, i64 apart, int n, i64 position, double* scratch, double (&out)[R]
    ) const {
        first.template clusters<R>(focus, apart, n, position, scratch, out);
        rest.template clusters<R>(focus + first.focus_size, apart, n, position, scratch, out);
    }
};
