// Twin of src/bhclust/_gpu/cuda/platform.cuh for a processor: every thread of a launch is a fibre.
//
// A fibre runs until it waits at a barrier. Which one goes on next is drawn at random, so that code
// that relies on an order between barriers fails sooner or later. A launch in which every fibre
// waits and no barrier can open stops with a message instead of hanging.
#include <setjmp.h>
#include <ucontext.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <vector>

using std::exp; using std::expm1; using std::fabs; using std::fmax; using std::frexp; using std::isinf;
using std::ldexp; using std::log; using std::log1p; using std::rint; using std::sqrt;

#define __global__
#define __launch_bounds__(...)
#define BHCLUST_DEVICE inline
#define BHCLUST_CALLED static
#define BHCLUST_CONSTANT(name, n_words) \
    static long long name[n_words];     \
    extern "C" void* address_of_##name() { return name; }
#define BHCLUST_SHARED(name) double* name = simulator::shared_memory()

constexpr double INFINITE = HUGE_VAL;
constexpr int WARP = 8;  // short warps: fewer fibres for the same logic

namespace simulator {

struct Barrier {
    int expected = 0, arrived = 0;
    long generation = 0;
};

struct Fibre {
    ucontext_t context;
    jmp_buf jump;
    bool started = false, finished = false, listens = false;
    int thread = 0, block = 0;
    Barrier* waits = nullptr;
    long waits_for = 0;
    std::vector<char> stack;
};

struct Launch {
    int n_blocks = 0, n_threads = 0;
    std::vector<Fibre> fibres;
    std::vector<Barrier> blocks, warps;
    Barrier grid;
    std::vector<std::vector<double>> shared;
    std::vector<std::vector<unsigned char>> exchange;  // one slot of 8 bytes a thread, by warp
    std::function<void()> kernel;
    ucontext_t scheduler;
    jmp_buf scheduler_jump;
    Fibre* current = nullptr;
};

static Launch* launch_now = nullptr;

struct Index {
    int x;
};

inline double* shared_memory() { return launch_now->shared[launch_now->current->block].data(); }

inline void back_to_scheduler() {
    if (!_setjmp(launch_now->current->jump)) _longjmp(launch_now->scheduler_jump, 1);
}

inline void wait_at(Barrier& barrier) {
    if (++barrier.arrived == barrier.expected) {
        barrier.arrived = 0;
        barrier.generation++;
        return;
    }
    launch_now->current->waits = &barrier;
    launch_now->current->waits_for = barrier.generation + 1;
    back_to_scheduler();
}

// Another fibre has to write first what this one waits for.
inline void listen_again() {
    launch_now->current->listens = true;
    back_to_scheduler();
}

inline int warp_number() {
    return (launch_now->current->block * launch_now->n_threads + launch_now->current->thread) / WARP;
}

inline void enter() {
    launch_now->kernel();
    launch_now->current->finished = true;
    _longjmp(launch_now->scheduler_jump, 1);
}

inline void resume(Fibre& fibre) {
    launch_now->current = &fibre;
    if (_setjmp(launch_now->scheduler_jump)) return;
    if (fibre.started) _longjmp(fibre.jump, 1);
    fibre.started = true;
    setcontext(&fibre.context);
}

// Run a kernel; returns 0, or 1 if its threads wait for each other for ever.
inline int run(int n_blocks, int n_threads, long shared_doubles, unsigned seed, std::function<void()> kernel) {
    Launch launch;
    launch.n_blocks = n_blocks;
    launch.n_threads = n_threads;
    launch.kernel = kernel;
    int n = n_blocks * n_threads;
    launch.fibres.resize(n);
    launch.blocks.resize(n_blocks);
    launch.warps.resize(n / WARP);
    launch.exchange.assign(n / WARP, std::vector<unsigned char>(8 * WARP));
    // Memory that nothing wrote is full of NaN.
    launch.shared.assign(n_blocks, std::vector<double>(shared_doubles, std::nan("")));
    for (Barrier& b : launch.blocks) b.expected = n_threads;
    for (Barrier& b : launch.warps) b.expected = WARP;
    launch.grid.expected = n;
    launch_now = &launch;
    for (int f = 0; f < n; f++) {
        Fibre& fibre = launch.fibres[f];
        fibre.block = f / n_threads;
        fibre.thread = f % n_threads;
        fibre.stack.resize(1 << 16);
        getcontext(&fibre.context);
        fibre.context.uc_stack.ss_sp = fibre.stack.data();
        fibre.context.uc_stack.ss_size = fibre.stack.size();
        fibre.context.uc_link = nullptr;
        makecontext(&fibre.context, (void (*)())enter, 0);
    }
    uint64_t state = seed * 2654435761u + 1;
    int n_left = n, idle_rounds = 0;
    while (n_left > 0 && idle_rounds < 8) {
        state = state * 6364136223846793005ull + 1442695040888963407ull;
        int start = (int)((state >> 33) % n), step = (state >> 20) % 2 ? 1 : n - 1;
        bool moved = false;
        for (int c = 0, f = start; c < n; c++, f = (f + step) % n) {
            Fibre& fibre = launch.fibres[f];
            if (fibre.finished) continue;
            if (fibre.waits && fibre.waits->generation < fibre.waits_for) continue;
            fibre.waits = nullptr;
            fibre.listens = false;
            resume(fibre);
            if (!fibre.listens) moved = true;
            if (fibre.finished) n_left--;
        }
        idle_rounds = moved ? 0 : idle_rounds + 1;
    }
    return n_left > 0;
}

}  // namespace simulator

#define threadIdx (simulator::Index{simulator::launch_now->current->thread})
#define blockIdx (simulator::Index{simulator::launch_now->current->block})
#define blockDim (simulator::Index{simulator::launch_now->n_threads})
#define gridDim (simulator::Index{simulator::launch_now->n_blocks})

inline void __syncthreads() { simulator::wait_at(simulator::launch_now->blocks[blockIdx.x]); }
inline void __syncwarp() { simulator::wait_at(simulator::launch_now->warps[simulator::warp_number()]); }
inline int atomicAdd(int* at, int n) {
    int before = *at;
    *at += n;
    return before;
}
inline void arrive(long long* counter) { ++*counter; }
inline void wait_until(const long long* counter, long long all) {
    while (*counter < all) simulator::listen_again();
}
inline unsigned long long as_word(double x) {
    unsigned long long word;
    std::memcpy(&word, &x, 8);
    return word;
}
inline double as_number(unsigned long long word) {
    double x;
    std::memcpy(&x, &word, 8);
    return x;
}
inline void grid_barrier() { simulator::wait_at(simulator::launch_now->grid); }

template <class T>
inline T from_lane(T value, int lane) {
    static_assert(sizeof(T) <= 8, "lanes exchange eight bytes");
    unsigned char* slots = simulator::launch_now->exchange[simulator::warp_number()].data();
    std::memcpy(slots + 8 * (threadIdx.x % WARP), &value, sizeof(T));
    __syncwarp();
    T out;
    std::memcpy(&out, slots + 8 * lane, sizeof(T));
    __syncwarp();
    return out;
}

template <class T>
inline T across_lanes(T value, int mask) {
    return from_lane(value, (threadIdx.x % WARP) ^ mask);
}

inline unsigned largest_of_lanes(unsigned value) {
    for (int mask = WARP / 2; mask > 0; mask /= 2) value = std::max(value, across_lanes(value, mask));
    return value;
}

inline unsigned smallest_of_lanes(unsigned value) { return ~largest_of_lanes(~value); }
