// Models of one or several parts.

BHCLUST_DEVICE constexpr int smaller_of(int a, int b) { return a < b ? a : b; }

template <class... Parts>
struct Model {
    static constexpr bool ONE_BY_ONE = false;
    static constexpr int LEAVES_AT_ONCE = 2;
    static constexpr bool RISES = true;
    BHCLUST_DEVICE double rise(const double*) const { return 0.0; }
    BHCLUST_DEVICE void gather(double*, const double*, Place, Place, double*) const {}
    BHCLUST_DEVICE double prepare(double*, const double*, double*) const { return 0.0; }
    template <int U>
    struct Ahead {};
    BHCLUST_DEVICE void tabulate(double*, const double*, int, int) const {}
    BHCLUST_DEVICE double grow(double*, const double*, const Ahead<1>&, int, int, int) const { return 0.0; }
    BHCLUST_DEVICE void settle(double*, const double*, const Ahead<1>&, int, int, int) const {}
    BHCLUST_DEVICE void set_log_f(double*, double) const {}
    template <int U>
    BHCLUST_DEVICE void fetch(const int (&)[U], Ahead<U>&) const {}
    BHCLUST_DEVICE void store(const double*, int) const {}
    template <int R>
    BHCLUST_DEVICE void singles(const double*, i64, int, i64, double*, double (&)[R]) const {}
    template <int U>
    BHCLUST_DEVICE void leaves(const double*, const int (&)[U], const Ahead<U>&, double*, double (&)[U]) const {}
    template <int R>
    BHCLUST_DEVICE void clusters(const double*, const double*, i64, int, i64, double*, double (&)[R]) const {}
};

// The log f of several parts add up; the focus and the facts of one stand behind those of the other.
template <class First, class... Rest>
struct Model<First, Rest...> {
    static constexpr bool ONE_BY_ONE = First::ONE_BY_ONE || Model<Rest...>::ONE_BY_ONE;
    static constexpr int LEAVES_AT_ONCE = smaller_of(First::LEAVES_AT_ONCE, Model<Rest...>::LEAVES_AT_ONCE);
    static constexpr bool RISES = First::RISES && Model<Rest...>::RISES;
    First first;
    Model<Rest...> rest;

    BHCLUST_DEVICE double rise(const double* focus) const {
        return first.rise(focus) + rest.rise(focus + first.focus_size);
    }

    // The facts of the later parts.
    BHCLUST_DEVICE const double* later(const double* facts) const { return facts + first.facts_size; }

    BHCLUST_DEVICE void gather(double* focus, const double* facts, Place a, Place b, double* sums) const {
        first.gather(focus, facts, a, b, sums);
        rest.gather(focus + first.focus_size, later(facts), a, b, sums);
    }

    BHCLUST_DEVICE double prepare(double* focus, const double* facts, double* sums) const {
        double log_f = first.prepare(focus, facts, sums);
        return log_f + rest.prepare(focus + first.focus_size, later(facts), sums);
    }

    template <int U>
    struct Ahead {
        typename First::template Ahead<U> first;
        typename Model<Rest...>::template Ahead<U> rest;
    };

    BHCLUST_DEVICE void tabulate(double* focus, const double* facts, int start, int step) const {
        first.tabulate(focus, facts, start, step);
        rest.tabulate(focus + first.focus_size, later(facts), start, step);
    }

    BHCLUST_DEVICE double grow(
        double* focus, const double* facts, const Ahead<1>& leaf, int position, int start, int step
    ) const {
        const double own = first.grow(focus, facts, leaf.first, position, start, step);
        return own + rest.grow(focus + first.focus_size, later(facts), leaf.rest, position, start, step);
    }

    BHCLUST_DEVICE void settle(
        double* focus, const double* facts, const Ahead<1>& leaf, int position, int start, int step
    ) const {
        first.settle(focus, facts, leaf.first, position, start, step);
        rest.settle(focus + first.focus_size, later(facts), leaf.rest, position, start, step);
    }

    BHCLUST_DEVICE void set_log_f(double* focus, double log_f) const {
        first.set_log_f(focus, log_f);
        rest.set_log_f(focus + first.focus_size, 0.0);
    }

    template <int U>
    BHCLUST_DEVICE void fetch(const int (&positions)[U], Ahead<U>& ahead) const {
        first.template fetch<U>(positions, ahead.first);
        rest.template fetch<U>(positions, ahead.rest);
    }

    BHCLUST_DEVICE void store(const double* focus, int position) const {
        first.store(focus, position);
        rest.store(focus + first.focus_size, position);
    }

    template <int R>
    BHCLUST_DEVICE void singles(
        const double* focus, i64 apart, int n, i64 position, double* scratch, double (&out)[R]
    ) const {
        first.template singles<R>(focus, apart, n, position, scratch, out);
        rest.template singles<R>(focus + first.focus_size, apart, n, position, scratch, out);
    }

    template <int U>
    BHCLUST_DEVICE void leaves(
        const double* focus, const int (&positions)[U], const Ahead<U>& ahead, double* scratch, double (&out)[U]
    ) const {
        first.template leaves<U>(focus, positions, ahead.first, scratch, out);
        rest.template leaves<U>(focus + first.focus_size, positions, ahead.rest, scratch, out);
    }

    template <int R>
    BHCLUST_DEVICE void clusters(
        const double* focus, const double* facts, i64 apart, int n, i64 position, double* scratch, double (&out)[R]
    ) const {
        first.template clusters<R>(focus, facts, apart, n, position, scratch, out);
        rest.template clusters<R>(focus + first.focus_size, later(facts), apart, n, position, scratch, out);
    }
};
