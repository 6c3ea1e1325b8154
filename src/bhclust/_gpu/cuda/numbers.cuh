// Numbers that every kernel needs: log gamma, sums over a block, the tiled layout of statistics.

typedef long long i64;

// Counts below come from a table, those above from Stirling's series.
constexpr int TABLE_LENGTH = 1032;
constexpr int MOST_WARPS = 32;

BHCLUST_DEVICE int lane_of_thread() { return threadIdx.x % WARP; }
BHCLUST_DEVICE int warp_of_thread() { return threadIdx.x / WARP; }
BHCLUST_DEVICE int warps_of_block() { return blockDim.x / WARP; }

// Leaves stand in tiles of one warp's positions: each lane has a leaf, and a warp reads neighbours.
BHCLUST_DEVICE i64 tiled(unsigned position, i64 number, i64 n_numbers) {
    return ((i64)(position / WARP) * n_numbers + number) * WARP + position % WARP;
}

// Merged clusters stand row by row: a warp has one cluster, and its lanes share the numbers.
BHCLUST_DEVICE i64 index_of(int region, i64 position, i64 number, i64 n_numbers) {
    return region == 0 ? tiled(position, number, n_numbers) : position * n_numbers + number;
}

// lgamma of a number of at least 16; the first term left out is below 1e-17.
BHCLUST_DEVICE double stirling_series(double x) {
    double inverse = 1.0 / x;
    double square = inverse * inverse;
    double series = 1.0 / 1188 - square * (691.0 / 360360 - square / 156);
    series = 1.0 / 12 - square * (1.0 / 360 - square * (1.0 / 1260 - square * (1.0 / 1680 - square * series)));
    return (x - 0.5) * log(x) - x + 0.91893853320467274178 + inverse * series;
}

BHCLUST_CALLED double stirling(double x) { return stirling_series(x); }

BHCLUST_CALLED double log_gamma(double x) {
    double product = 1.0;
    while (x < 16.0) {
        product *= x;
        x += 1.0;
    }
    double value = stirling(x);
    return product == 1.0 ? value : value - log(product);
}

BHCLUST_DEVICE double log_gamma_at(const double* table, i64 row, double start, double count) {
    if (count < TABLE_LENGTH) return table[row * TABLE_LENGTH + (int)count];
    return stirling(start + count);
}

BHCLUST_DEVICE double warp_sum(double value) {
    for (int mask = WARP / 2; mask > 0; mask /= 2) value += across_lanes(value, mask);
    return value;
}

// Sum over the threads of a block, the same to the last bit in every block and every thread.
BHCLUST_DEVICE double block_sum(double value, double* by_warp) {
    value = warp_sum(value);
    if (lane_of_thread() == 0) by_warp[warp_of_thread()] = value;
    __syncthreads();
    double total[4] = {0.0, 0.0, 0.0, 0.0};  // sums that do not wait for each other
    for (int w = 0; w < warps_of_block(); w += 4) {
#pragma unroll
        for (int u = 0; u < 4; u++)
            if (w + u < warps_of_block()) total[u] += by_warp[w + u];
    }
    __syncthreads();
    return (total[0] + total[1]) + (total[2] + total[3]);
}

// Two sums for the barriers of one.
BHCLUST_DEVICE void block_sums(double& first, double& second, double* by_warp) {
    first = warp_sum(first);
    second = warp_sum(second);
    if (lane_of_thread() == 0) {
        by_warp[warp_of_thread()] = first;
        by_warp[MOST_WARPS + warp_of_thread()] = second;
    }
    __syncthreads();
    first = second = 0.0;
    for (int w = 0; w < warps_of_block(); w++) {
        first += by_warp[w];
        second += by_warp[MOST_WARPS + w];
    }
    __syncthreads();
}

// Two numbers that are read at once.
struct alignas(16) Pair {
    double x, y;
};

// Where a live cluster's statistics are: region 0 holds leaves that are still alone, 1 the rest.
struct Place {
    int region;
    int position;
};

constexpr int NOWHERE = -1;
constexpr int IN_FOCUS = -2;  // the statistics are those that the focus has already

// Factorise a packed lower triangle with some more rows below it, by one warp: A = L D L'. The
// columns become those of L D, what is left of further rows is L^{-1} times them. Returns the log
// determinant of matrices whose pivots are at least 1.
BHCLUST_CALLED double warp_factor(double* packed, int n_columns, int n_rows) {
    double log_determinant = 0.0, product = 1.0;
    for (int k = 0; k < n_columns; k++) {
        double pivot = packed[k * (k + 1) / 2 + k], inverse = 1.0 / pivot;
        product *= pivot;
        if (product > 1e100) {
            log_determinant += log(product);
            product = 1.0;
        }
        for (int r = k + 1 + lane_of_thread(); r < n_rows; r += WARP) {
            double* row = packed + r * (r + 1) / 2;
            double factor = row[k] * inverse;
            int last = r < n_columns ? r : n_columns - 1;
            for (int c = k + 1; c <= last; c++) row[c] -= factor * packed[c * (c + 1) / 2 + k];
        }
        __syncwarp();
    }
    return log_determinant + log(product);
}
