// Columns with a few values: Bernoulli, Categorical.

// What is known of a value of a column.
struct ValueFacts {
    double alpha, total;  // of the value, of its column
    int first, stop;      // values of the column
    int column, level;    // where its log probability stands
    int group, digit;     // which digit of which group's code the column is
};

// A leaf is one code of BITS bits for each group of columns, packed into WORDS words (0: as many as
// it takes), and meets the focus by a look-up a group. The lanes of a warp look up different codes at
// once, so each has a copy of the table in banks of its own, if there is room for so many COPIES.
// Then the words are full and the tables of all groups equally wide, so that nothing is computed to
// find a place in them: groups without columns add nothing.
template <int WORDS, int BITS, int COPIES>
struct Categorical {
    static constexpr bool ONE_BY_ONE = false, RISES = true;
    static constexpr int LEAVES_AT_ONCE = 2, PER_WORD = 32 / BITS, COPY_BYTES = 8 * COPIES;
    static constexpr int PLACE = COPIES == 16 ? 7 : 3;  // bits of a place within the copies of a number
    static_assert(COPY_BYTES == 1 << PLACE, "copies are 16 or 1");
    static constexpr bool FULL = COPIES > 1;
    i64 focus_size, facts_size, n_values, n_columns, n_levels, n_groups, width, n_digits, complete;
    const unsigned* codes;    // leaves
    int* counts;              // clusters
    const double *table, *total_table, *size_terms;
    double constant;

    // focus: counts (n_values), observed (n_columns), log f, rise, levels (n_levels + 1), table of sums
    BHCLUST_DEVICE i64 observed_at() const { return n_values; }
    BHCLUST_DEVICE i64 log_f_at() const { return n_values + n_columns; }
    BHCLUST_DEVICE i64 levels_at() const { return log_f_at() + 2; }
    BHCLUST_DEVICE double rise(const double* focus) const { return focus[log_f_at() + 1]; }
    BHCLUST_DEVICE i64 sums_at() const { return levels_at() + n_levels + 1; }
    BHCLUST_DEVICE i64 n_words() const { return WORDS > 0 ? WORDS : (n_groups + PER_WORD - 1) / PER_WORD; }

    // facts: those of the values, then the levels behind each code
    BHCLUST_DEVICE const ValueFacts* values(const double* facts) const { return (const ValueFacts*)facts; }

    BHCLUST_DEVICE const int* levels_of_codes(const double* facts) const { return (const int*)(values(facts) + n_values); }

    // The level of a leaf in the column of a value, from the word of its code that has it.
    BHCLUST_DEVICE int level_in(unsigned word, const ValueFacts& value, const int* of_codes) const {
        unsigned code = (word >> (value.group % PER_WORD * BITS)) & ((1u << BITS) - 1);
        return of_codes[(value.digit * (int)n_groups + value.group) * (int)width + code];
    }

    BHCLUST_DEVICE double count(Place at, int s, const ValueFacts& value, const int* of_codes) const {
        if (at.region < 0) return 0.0;
        if (at.region == 1) return counts[at.position * n_values + s];
        unsigned word = codes[tiled(at.position, value.group / PER_WORD, n_words())];
        return level_in(word, value, of_codes) == value.level ? 1.0 : 0.0;
    }

    BHCLUST_DEVICE void gather(double* focus, const double* facts, Place a, Place b, double* sums) const {
        const ValueFacts* of_value = values(facts);
        const int* of_codes = levels_of_codes(facts);
        for (int s = threadIdx.x; s < n_values; s += blockDim.x) {
            double own = a.region == IN_FOCUS ? focus[s] : count(a, s, of_value[s], of_codes);
            focus[s] = own + count(b, s, of_value[s], of_codes);
        }
    }

    // log Γ of a value's pseudocount and a count, with no branch: a warp has several on their way.
    BHCLUST_DEVICE double log_gamma_of_value(int s, double alpha, double items) const {
        double value = items < TABLE_LENGTH ? table[(i64)s * TABLE_LENGTH + (int)items] : 0.0;
        double series = stirling_series(alpha + items);
        return items < TABLE_LENGTH ? value : series;
    }

    // Entries of a column.
    BHCLUST_DEVICE double entries_of(const double* focus, const ValueFacts& value) const {
        double items = 0.0;
#pragma unroll 1
        for (int t = value.first; t < value.stop; t++) items += focus[t];
        return items;
    }

    // Half of the warps find the levels, the others log f: each is a long chain for one thread.
    BHCLUST_DEVICE double prepare(double* focus, const double* facts, double* sums) const {
        const ValueFacts* of_value = values(facts);
        double* observed = focus + observed_at();
        double* levels = focus + levels_at();
        const int half = warps_of_block() / 2, warp = warp_of_thread();
        double log_f = 0.0, rise = 0.0;
        if (warp < half) {
            for (int s = threadIdx.x; s < n_values; s += half * WARP) {
                const ValueFacts value = of_value[s];
                const double items = entries_of(focus, value), before = levels[value.level];
                const double level = log(value.alpha + focus[s]) - log(value.total + items);
                levels[value.level] = level;
                rise += level > before ? level - before : 0.0;
                if (s != value.first) continue;
                observed[value.column] = items;
                if (!complete) levels[value.level + value.stop - value.first] = 0.0;  // a missing value
            }
            if (threadIdx.x == 0) levels[n_levels] = 0.0;  // no column
        } else {
            for (int s = threadIdx.x - half * WARP; s < n_values; s += blockDim.x - half * WARP) {
                const ValueFacts value = of_value[s];
                const double items = s == value.first ? entries_of(focus, value) : 0.0;
                // On its way while the logarithms are taken.
                const double size_term = complete && s == 0 ? size_terms[(i64)items] : 0.0;
                log_f += log_gamma_of_value(s, value.alpha, focus[s]) - size_term;
                if (!complete && s == value.first) log_f -= log_gamma_at(total_table, value.column, value.total, items);
            }
        }
        block_sums(log_f, rise, sums);
        log_f += constant;
        if (threadIdx.x == 0) {
            focus[log_f_at()] = log_f;
            focus[log_f_at() + 1] = rise;
        }
        return log_f;
    }

    // Some threads share a code, each of which writes some of its copies: all lanes that write at
    // once to different banks.
    BHCLUST_DEVICE void tabulate(double* focus, const double* facts, int start, int step) const {
        constexpr int SHARES = COPIES > 1 ? 2 : 1;
        const int n_codes = n_groups * width;
        const int* digits = levels_of_codes(facts);
        const double* levels = focus + levels_at();
        for (unsigned t = start; t < n_codes * SHARES; t += step) {
            const unsigned code = t / SHARES;
            double sum = 0.0;
#pragma unroll
            for (int digit = 0; digit < BITS; digit++)
                if (digit < n_digits) sum += levels[digits[digit * n_codes + code]];
            // Columns of a single value take no bit.
            for (int digit = BITS; digit < n_digits; digit++) sum += levels[digits[digit * n_codes + code]];
            double* copies = focus + sums_at() + code * COPIES;
#pragma unroll
            for (int k = 0; k < COPIES; k += SHARES) copies[(k + t) % COPIES] = sum;
        }
    }

    template <int U>
    struct Ahead {
        unsigned word[U][WORDS > 0 ? WORDS : 1];
    };

    template <int U>
    BHCLUST_DEVICE void fetch(const int (&positions)[U], Ahead<U>& ahead) const {
#pragma unroll
        for (int u = 0; u < U; u++) {
#pragma unroll
            for (int w = 0; w < WORDS; w++) ahead.word[u][w] = codes[tiled(positions[u], w, WORDS)];
        }
    }

    BHCLUST_DEVICE int level_of(const Ahead<1>& leaf, int position, const ValueFacts& value, const int* of_codes) const {
        const int w = value.group / PER_WORD;
        return level_in(WORDS > 0 ? leaf.word[0][w] : codes[tiled(position, w, n_words())], value, of_codes);
    }

    // Whether a leaf has an entry in the column of value s: a missing one has the level behind all values.
    BHCLUST_DEVICE bool has_entry(int level, int s, const ValueFacts& value) const {
        return complete || level != value.level + (value.stop - s);
    }

    BHCLUST_DEVICE double grow(
        double* focus, const double* facts, const Ahead<1>& leaf, int position, int start, int step
    ) const {
        const ValueFacts* of_value = values(facts);
        const int* of_codes = levels_of_codes(facts);
        const double* observed = focus + observed_at();
        double* levels = focus + levels_at();
        double rise = 0.0;
        for (int s = start; s < n_values; s += step) {
            const ValueFacts value = of_value[s];
            const int found = level_of(leaf, position, value, of_codes);
            const double items = observed[value.column] + (has_entry(found, s, value) ? 1.0 : 0.0);
            const double count = focus[s] + (found == value.level ? 1.0 : 0.0), before = levels[value.level];
            const double level = log(value.alpha + count) - log(value.total + items);
            focus[s] = count;
            levels[value.level] = level;
            rise += level > before ? level - before : 0.0;
        }
        return rise;
    }

    BHCLUST_DEVICE void settle(
        double* focus, const double* facts, const Ahead<1>& leaf, int position, int start, int step
    ) const {
        const ValueFacts* of_value = values(facts);
        for (int s = start; s < n_values; s += step) {
            const ValueFacts value = of_value[s];
            if (s == value.first && has_entry(level_of(leaf, position, value, levels_of_codes(facts)), s, value))
                focus[observed_at() + value.column] += 1.0;
        }
    }

    BHCLUST_DEVICE void set_log_f(double* focus, double log_f) const { focus[log_f_at()] = log_f; }

    BHCLUST_DEVICE void store(const double* focus, int position) const {
        for (int s = threadIdx.x; s < n_values; s += blockDim.x)
            counts[position * n_values + s] = (int)focus[s];
    }

    // Add the look-ups of one word, in a table of which this lane has a copy.
    template <class Add>
    BHCLUST_DEVICE void look_up(const double* sums, unsigned word, int w, Add add) const {
        constexpr unsigned MASK = (1u << BITS) - 1;
#pragma unroll
        for (int b = 0; b < PER_WORD; b++) {
            const int g = w * PER_WORD + b;
            if (FULL) {
                const unsigned shifted = b * BITS >= PLACE ? word >> (b * BITS - PLACE) : word << (PLACE - b * BITS);
                const unsigned place = (shifted & MASK << PLACE) | (lane_of_thread() % COPIES * 8);
                add((const double*)((const char*)sums + g * (COPY_BYTES << BITS) + place));
            } else if (g < n_groups) {
                add(sums + g * width + (word >> (b * BITS) & MASK));
            }
        }
    }

    template <int R>
    BHCLUST_DEVICE void singles(
        const double* focus, i64 apart, int n, i64 position, double* scratch, double (&out)[R]
    ) const {
        const double* sums = focus + sums_at();
        for (int r = 0; r < R; r++)
            if (r < n) out[r] += focus[r * apart + log_f_at()];
        for (int w = 0; w < n_words(); w++) {
            look_up(sums, codes[tiled(position, w, n_words())], w, [&](const double* sum) {
#pragma unroll
                for (int r = 0; r < R; r++)
                    if (r < n) out[r] += sum[r * apart];
            });
        }
    }

    template <int U>
    BHCLUST_DEVICE void leaves(
        const double* focus, const int (&positions)[U], const Ahead<U>& ahead, double* scratch, double (&out)[U]
    ) const {
        const double* sums = focus + sums_at();
        const double log_f = focus[log_f_at()];
#pragma unroll
        for (int u = 0; u < U; u++) {
            double sum = log_f;
            const auto add = [&](const double* term) { sum += *term; };
#pragma unroll
            for (int w = 0; w < WORDS; w++) {
                double own = 0.0;
                look_up(sums, ahead.word[u][w], w, [&](const double* term) { own += *term; });
                sum += own;
            }
            for (int w = WORDS > 0 ? (int)n_words() : 0; w < n_words(); w++)
                look_up(sums, codes[tiled(positions[u], w, n_words())], w, add);
            out[u] += sum;
        }
    }

    BHCLUST_DEVICE double with_cluster(const double* focus, const double* facts, i64 position) const {
        const ValueFacts* of_value = values(facts);
        const int* own = counts + position * n_values;
        double value = 0.0, size_term = 0.0, items = focus[observed_at()];
        if (complete) {
            for (int s = 0; s < of_value[0].stop; s++) items += own[s];
            size_term = size_terms[(i64)items];
        }
        if (complete && items < TABLE_LENGTH) {
#pragma unroll 4
            for (int s = lane_of_thread(); s < n_values; s += WARP)
                value += table[(i64)s * TABLE_LENGTH + (int)(focus[s] + own[s])];
        } else {
#pragma unroll 4
            for (int s = lane_of_thread(); s < n_values; s += WARP)
                value += log_gamma_of_value(s, of_value[s].alpha, focus[s] + own[s]);
        }
        for (int s = lane_of_thread(); s < n_values && !complete; s += WARP) {
            const ValueFacts& first = of_value[s];
            if (s != first.first) continue;
            double entries = focus[observed_at() + first.column];
            for (int t = s; t < first.stop; t++) entries += own[t];
            value -= log_gamma_at(total_table, first.column, first.total, entries);
        }
        return constant + warp_sum(value) - size_term;
    }

    template <int R>
    BHCLUST_DEVICE void clusters(
        const double* focus, const double* facts, i64 apart, int n, i64 position, double* scratch, double (&out)[R]
    ) const {
        for (int r = 0; r < R; r++)
            if (r < n) out[r] += with_cluster(focus + r * apart, facts, position);
    }
};
