// What the kernels ask of the machine. The tests have a twin of this file that runs the same
// kernels on a processor, thread by thread.
#include <cooperative_groups.h>

#define BHCLUST_DEVICE __device__ __forceinline__
// Large or rare functions are called rather than copied: copies cost seconds of compilation, and a
// path that every step takes should be short enough to stay in the cache of instructions.
#define BHCLUST_CALLED static __device__ __noinline__
#define BHCLUST_CONSTANT(name, n_words) __constant__ long long name[n_words];
#define BHCLUST_SHARED(name) extern __shared__ double name[]
#define INFINITE __longlong_as_double(0x7ff0000000000000LL)

constexpr int WARP = 32;

BHCLUST_DEVICE void grid_barrier() { cooperative_groups::this_grid().sync(); }

// Blocks meet at a counter: what a block wrote before it arrives is seen by who waits until all have.
// The order that is asked for is the weakest that says so: the full fence costs more than the meeting.
BHCLUST_DEVICE void arrive(long long* counter) {
#if __CUDA_ARCH__ >= 700
    asm volatile("fence.acq_rel.gpu;" ::: "memory");
    asm volatile("red.relaxed.gpu.global.add.u64 [%0], %1;" ::"l"(counter), "l"(1ULL) : "memory");
#else
    __threadfence();
    atomicAdd((unsigned long long*)counter, 1ULL);
#endif
}
BHCLUST_DEVICE void wait_until(const long long* counter, long long all) {
#if __CUDA_ARCH__ >= 700
    long long seen;
    do {
        asm volatile("ld.acquire.gpu.global.s64 %0, [%1];" : "=l"(seen) : "l"(counter) : "memory");
    } while (seen < all);
#else
    while (*(const volatile long long*)counter < all) {
    }
    __threadfence();
#endif
}

// The largest and the smallest number that a lane has.
BHCLUST_DEVICE unsigned largest_of_lanes(unsigned value) {
#if __CUDA_ARCH__ >= 800
    return __reduce_max_sync(0xffffffffu, value);
#else
    for (int mask = WARP / 2; mask > 0; mask /= 2) value = max(value, __shfl_xor_sync(0xffffffffu, value, mask));
    return value;
#endif
}
BHCLUST_DEVICE unsigned smallest_of_lanes(unsigned value) { return ~largest_of_lanes(~value); }

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
