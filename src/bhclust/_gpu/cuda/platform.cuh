// What the kernels ask of the machine. The tests have a twin of this file that runs the same
// kernels on a processor, thread by thread.
#include <cooperative_groups.h>

#define BHCLUST_DEVICE __device__ __forceinline__
// Large or rare functions are called rather than copied: copies cost seconds of compilation.
#define BHCLUST_CALLED static __device__ __noinline__
#define BHCLUST_CONSTANT(name, n_words) __constant__ long long name[n_words];
#define BHCLUST_SHARED(name) extern __shared__ double name[]
#define INFINITE __longlong_as_double(0x7ff0000000000000LL)

constexpr int WARP = 32;

BHCLUST_DEVICE void grid_barrier() { cooperative_groups::this_grid().sync(); }

// Words that blocks tell each other while they run. A word is written and read as a whole; what was
// written before it is seen by who reads it if both sides have a fence in between.
BHCLUST_DEVICE void tell(long long* where, long long word) { *(volatile long long*)where = word; }
BHCLUST_DEVICE long long hear(const long long* where) { return *(const volatile long long*)where; }
BHCLUST_DEVICE void fence() { __threadfence(); }
BHCLUST_DEVICE void listen_again() {}

BHCLUST_DEVICE unsigned long long as_word(double x) { return (unsigned long long)__double_as_longlong(x); }
BHCLUST_DEVICE double as_number(unsigned long long word) { return __longlong_as_double((long long)word); }

template <class T>
BHCLUST_DEVICE T from_lane(T value, int lane) {
    return __shfl_sync(0xffffffffu, value, lane);
}

template <class T>
BHCLUST_DEVICE T across_lanes(T value, int mask) {
    return __shfl_xor_sync(0xffffffffu, value, mask);
}
