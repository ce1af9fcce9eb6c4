// Runs CUDA C on a CPU: one fiber per CUDA thread, one operating-system thread per running cluster of blocks (mostly one block). Included
// before the emitted text.
//
// The harness appends one line per kernel (CUDA_ON_CPU_KERNEL) and calls the function that it defines. What CUDA leaves undefined is
// made visible: shared memory is all ones (NaN) when a block starts, dynamic shared memory and stacks end at inaccessible pages, and
// barriers, accesses and the sanitizers' findings end the launch with a report instead of ending the process.
#pragma once
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <type_traits>
#include <utility>

#include <link.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>
#include <time.h>
#include <ucontext.h>

#if !defined(__x86_64__) && !defined(CUDA_ON_CPU_UCONTEXT)
#define CUDA_ON_CPU_UCONTEXT
#endif

// ---------------------------------------------------------------------------------------------------------------- types and words

struct dim3 {
    unsigned x, y, z;
    constexpr dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
};

#define CUDA_ON_CPU_VECTORS(type, name, align2, align4)                                                                             \
    struct __attribute__((aligned(align2))) name##2 { type x, y; };                                                                 \
    struct name##3 { type x, y, z; };                                                                                               \
    struct __attribute__((aligned(align4))) name##4 { type x, y, z, w; };                                                           \
    inline name##2 make_##name##2(type x, type y) { return {x, y}; }                                                                \
    inline name##3 make_##name##3(type x, type y, type z) { return {x, y, z}; }                                                     \
    inline name##4 make_##name##4(type x, type y, type z, type w) { return {x, y, z, w}; }
CUDA_ON_CPU_VECTORS(int, int, 8, 16)
CUDA_ON_CPU_VECTORS(unsigned, uint, 8, 16)
CUDA_ON_CPU_VECTORS(float, float, 8, 16)
CUDA_ON_CPU_VECTORS(double, double, 16, 16)
CUDA_ON_CPU_VECTORS(long long, longlong, 16, 16)
#undef CUDA_ON_CPU_VECTORS

// What does not depend on the kernels is compiled once, with CUDA_ON_CPU_RUNTIME defined, and linked to all of them.
#ifdef CUDA_ON_CPU_RUNTIME
#define CUDA_ON_CPU_ONCE
#else
#define CUDA_ON_CPU_ONCE extern inline __attribute__((gnu_inline))
#endif

namespace cuda_on_cpu {

// ------------------------------------------------------------------------------------------------------- what a launch is made of

constexpr unsigned MOST_THREADS = 1024;
constexpr size_t PAGE = 65536;                 // a multiple of every page size in use
constexpr size_t STACK = 2 * PAGE;
constexpr size_t DYNAMIC_SHARED = 4 * PAGE;    // more than the 227 KiB of any current device
constexpr size_t SIGNAL_STACK = 2 * PAGE;
constexpr size_t PARKED = PAGE;                // static shared memory of a block while another of its cluster runs
constexpr size_t EXTENSION = 128 * PAGE;       // what further headers keep for a block
constexpr unsigned MOST_BLOCKS = 8;            // in a cluster

enum Order : int { ASCENDING, DESCENDING, RANDOM };
enum Failure : int { NONE, BARRIER, ACCESS, ALIGNMENT, UNDEFINED, TRAP, TIME, ASYNCHRONOUS };
enum Status : uint8_t { READY, AT_BARRIER, AT_WARP_BARRIER, POLLING, EXITED };

// Mirrored by the harness, field by field.
struct Launch {
    uint32_t grid[3], block[3];
    int32_t order;
    uint32_t workers, cluster, shared_alignment;
    uint64_t seed, shared_bytes, milliseconds;  // the last: what it may take, where it is not 0
    void** arenas;                             // one for each block of each worker's cluster, from cuda_on_cpu_arena
    void** arguments;                          // where the value of each parameter stands
    int32_t failure;
    uint32_t failed_block[3], failed_thread[3];
    uint32_t line;
    uint64_t address;
    char message[512];
};

#ifdef CUDA_ON_CPU_UCONTEXT
typedef ucontext_t Context;
#else
typedef void* Context;                         // the saved stack pointer; the registers lie on the stack
#endif

struct Fiber {
    Context context;
    uint3 thread;
    uint32_t line;                             // of the barrier where it waits
    uint32_t mask;                             // of lanes, at a warp barrier
    Status status;
    const char* place;                         // where it waits, in words
    bool (*may_go_on)(const Fiber&);           // while it polls, for what the next two say
    uint64_t subject, round;
};

// All that a running block needs; it lives in an arena that outlasts the launch, so nothing is allocated for a block.
struct Worker {
    Worker* leader;                            // of the first block of the cluster
    Worker* cluster[MOST_BLOCKS];              // the leader knows all
    unsigned rank;                             // in the cluster
    unsigned count, exited;                    // threads
    uint64_t phase, mixed_seed;
    uint32_t line;                             // of what goes on outside all threads, where something does
    Context scheduler;
    uint3 thread, block;
    dim3 block_extent, grid_extent;
    void (*body)(void**);
    Launch* launch;
    unsigned current;
    bool in_kernel;
    unsigned char* dynamic_shared;
    unsigned char* parked;
    unsigned char* extension;
    unsigned char* shared;                     // this thread's copy of the module's static shared memory
    size_t shared_size;
    sigjmp_buf out;
    uint16_t order[MOST_THREADS];
    Fiber fibers[MOST_THREADS];
};

// Of the arena: the worker, with what is parked and the extension; the signal stack, dynamic shared memory, the stacks; an inaccessible
// page after each, and before the stacks.
constexpr size_t PARKED_AT = (sizeof(Worker) + PAGE - 1) / PAGE * PAGE;
constexpr size_t EXTENSION_AT = PARKED_AT + PARKED;
constexpr size_t WORKER_SIZE = EXTENSION_AT + EXTENSION;
constexpr size_t SIGNAL_STACK_AT = WORKER_SIZE + PAGE;
constexpr size_t DYNAMIC_SHARED_AT = SIGNAL_STACK_AT + SIGNAL_STACK + PAGE;
constexpr size_t STACKS_AT = DYNAMIC_SHARED_AT + DYNAMIC_SHARED + 2 * PAGE;
constexpr size_t ARENA = STACKS_AT + MOST_THREADS * (STACK + PAGE);

CUDA_ON_CPU_ONCE void* create_arena()
{
    void* const memory = mmap(nullptr, ARENA, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) return nullptr;
    unsigned char* const arena = static_cast<unsigned char*>(memory);
    bool guarded = true;
    for (const size_t at : {WORKER_SIZE, SIGNAL_STACK_AT + SIGNAL_STACK, DYNAMIC_SHARED_AT + DYNAMIC_SHARED, STACKS_AT - PAGE})
        guarded = guarded && mprotect(arena + at, PAGE, PROT_NONE) == 0;
    for (unsigned i = 0; i < MOST_THREADS; ++i)
        guarded = guarded && mprotect(arena + STACKS_AT + i * (STACK + PAGE) + STACK, PAGE, PROT_NONE) == 0;
    if (guarded) return memory;
    munmap(memory, ARENA);
    return nullptr;
}

// The only thread-local object besides static shared memory: see poison_shared.
inline constinit thread_local Worker* worker = nullptr;

// ----------------------------------------------------------------------------------------------------------------------- failures

CUDA_ON_CPU_ONCE bool claim_failure(Launch& launch, Failure failure)
{
    int expected = NONE;
    return __atomic_compare_exchange_n(&launch.failure, &expected, failure, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
}

CUDA_ON_CPU_ONCE void locate_failure(const Worker& w)
{
    const unsigned block[3] = {w.block.x, w.block.y, w.block.z}, thread[3] = {w.thread.x, w.thread.y, w.thread.z};
    memcpy(w.launch->failed_block, block, sizeof block);
    memcpy(w.launch->failed_thread, thread, sizeof thread);
}

// The first failure is the one reported. Its fiber, and all others of its block, are abandoned where they stand.
[[noreturn]] CUDA_ON_CPU_ONCE void fail(Failure failure, unsigned line, uint64_t address, const char* message)
{
    Worker& w = *worker;
    if (claim_failure(*w.launch, failure)) {
        locate_failure(w);
        w.launch->line = line;
        w.launch->address = address;
        snprintf(w.launch->message, sizeof w.launch->message, "%s", message);
    }
    siglongjmp(w.leader->out, 1);
}

constexpr int SIGNALS[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGXCPU};
constexpr int SIGNAL_COUNT = sizeof SIGNALS / sizeof *SIGNALS;
inline struct sigaction previous_actions[SIGNAL_COUNT];

CUDA_ON_CPU_ONCE void on_signal(int signal, siginfo_t* info, void* context)
{
    if (signal == SIGXCPU) {
        // From `watch`. A worker that is between two blocks sees the failure by itself; all ones is poison_shared at work.
        if (worker != nullptr && ~reinterpret_cast<uintptr_t>(worker) != 0 && worker->leader->in_kernel)
            siglongjmp(worker->leader->out, 1);
        return;
    }
    if (worker == nullptr || !worker->leader->in_kernel) {
        // Not ours: the instruction is run again under the handler of before.
        for (int i = 0; i < SIGNAL_COUNT; ++i)
            if (SIGNALS[i] == signal) sigaction(signal, &previous_actions[i], nullptr);
        return;
    }
    const uint64_t address = reinterpret_cast<uint64_t>(info->si_addr);
    if (signal == SIGFPE) fail(UNDEFINED, 0, 0, "integer division by zero");
    if (signal == SIGILL) fail(TRAP, 0, 0, "trap");
    const uint64_t in_arena = address - reinterpret_cast<uint64_t>(worker);
    if (in_arena - (DYNAMIC_SHARED_AT + DYNAMIC_SHARED) < PAGE) fail(ACCESS, 0, 0, "access past the end of dynamic shared memory");
    if (in_arena < ARENA) fail(ACCESS, 0, 0, "stack overflow");
    if (address == 0) fail(ACCESS, 0, 0, "access through a null or wild pointer");
    const char* message = "access to";
#if defined(__x86_64__)
    constexpr greg_t WRITING = 2;
    message = static_cast<ucontext_t*>(context)->uc_mcontext.gregs[REG_ERR] & WRITING ? "write to" : "read from";
#else
    (void)context;
#endif
    fail(ACCESS, worker->line, address, message);
}

// What the compiler's checks call (-fsanitize=...); every record begins with its place in the source.
struct SourceLocation { const char* file; uint32_t line, column; };
struct TypeDescriptor { uint16_t kind, info; char name[1]; };
struct TypeMismatch { SourceLocation location; const TypeDescriptor* type; unsigned char log_alignment, kind; };

[[noreturn]] CUDA_ON_CPU_ONCE void fail_check(const SourceLocation& location, const char* message)
{
    fail(UNDEFINED, location.line, 0, message);
}

}  // namespace cuda_on_cpu

#ifdef CUDA_ON_CPU_RUNTIME
extern "C" {
inline __attribute__((used)) void __ubsan_handle_type_mismatch_v1(cuda_on_cpu::TypeMismatch* data, uintptr_t pointer)
{
    char message[256];
    if (pointer == 0) cuda_on_cpu::fail(cuda_on_cpu::ACCESS, data->location.line, 0, "null pointer");
    snprintf(message, sizeof message, "%s needs %u-byte alignment", data->type->name, 1u << data->log_alignment);
    cuda_on_cpu::fail(cuda_on_cpu::ALIGNMENT, data->location.line, pointer, message);
}
inline __attribute__((used)) void __ubsan_handle_out_of_bounds(cuda_on_cpu::SourceLocation* location, uintptr_t index)
{
    char message[64];
    snprintf(message, sizeof message, "index %lld out of bounds", static_cast<long long>(index));
    cuda_on_cpu::fail(cuda_on_cpu::ACCESS, location->line, 0, message);
}
#define CUDA_ON_CPU_CHECK(check, message)                                                                                           \
    inline __attribute__((used)) void __ubsan_handle_##check(cuda_on_cpu::SourceLocation* location)                                 \
    {                                                                                                                               \
        cuda_on_cpu::fail_check(*location, message);                                                                                \
    }
CUDA_ON_CPU_CHECK(add_overflow, "signed overflow in an addition")
CUDA_ON_CPU_CHECK(sub_overflow, "signed overflow in a subtraction")
CUDA_ON_CPU_CHECK(mul_overflow, "signed overflow in a multiplication")
CUDA_ON_CPU_CHECK(negate_overflow, "signed overflow in a negation")
CUDA_ON_CPU_CHECK(divrem_overflow, "integer division by zero, or its quotient overflows")
CUDA_ON_CPU_CHECK(shift_out_of_bounds, "shift by a negative or too large count")
#undef CUDA_ON_CPU_CHECK
}
#endif

// ------------------------------------------------------------------------------------------------------------------------- fibers

#ifndef CUDA_ON_CPU_UCONTEXT
// Saves the callee-saved registers of the System V calling convention on the stack, and the stack pointer in *from; goes on at `to`.
// It ends in a jump, because the processor predicts where a `ret` goes from the calls before it, and would always be wrong.
extern "C" __attribute__((visibility("hidden"))) void cuda_on_cpu_switch(void** from, void* to);
#ifdef CUDA_ON_CPU_RUNTIME
asm(R"(
    .text
    .hidden cuda_on_cpu_switch
    .globl cuda_on_cpu_switch
    .type cuda_on_cpu_switch, @function
cuda_on_cpu_switch:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    popq %rcx
    jmp *%rcx
    .size cuda_on_cpu_switch, . - cuda_on_cpu_switch
)");
#endif
#endif

namespace cuda_on_cpu {

inline void switch_context(Context& from, Context& to)
{
#ifdef CUDA_ON_CPU_UCONTEXT
    swapcontext(&from, &to);
#else
    cuda_on_cpu_switch(&from, to);
#endif
}

CUDA_ON_CPU_ONCE void run_fiber()
{
    Worker& w = *worker;
    w.body(w.launch->arguments);
    w.fibers[w.current].status = EXITED;
    switch_context(w.fibers[w.current].context, w.scheduler);
}

CUDA_ON_CPU_ONCE void prepare_fiber(Worker& w, unsigned index)
{
    Fiber& fiber = w.fibers[index];
    fiber.status = READY;
    const unsigned x = w.block_extent.x, y = w.block_extent.y;
    fiber.thread = {index % x, index / x % y, index / (x * y)};
    unsigned char* const stack = reinterpret_cast<unsigned char*>(&w) + STACKS_AT + index * (STACK + PAGE);
    // Without the offset the stacks' ends would all compete for the same few cache sets.
    const size_t offset = index % 32 * 192;
#ifdef CUDA_ON_CPU_UCONTEXT
    getcontext(&fiber.context);
    fiber.context.uc_stack.ss_sp = stack;
    fiber.context.uc_stack.ss_size = STACK - offset;
    fiber.context.uc_link = nullptr;
    makecontext(&fiber.context, run_fiber, 0);
#else
    constexpr int SAVED_REGISTERS = 6;
    void** top = reinterpret_cast<void**>(stack + STACK - offset);
    *--top = nullptr;                                           // what run_fiber would return to; it keeps the stack aligned
    *--top = reinterpret_cast<void*>(run_fiber);
    for (int i = 0; i < SAVED_REGISTERS; ++i) *--top = nullptr;
    fiber.context = top;
#endif
}

CUDA_ON_CPU_ONCE void wait(Status status, unsigned mask, unsigned line, const char* place)
{
    Worker& w = *worker;
    Fiber& fiber = w.fibers[w.current];
    fiber.status = status;
    fiber.mask = mask;
    fiber.line = line;
    fiber.place = place;
    switch_context(fiber.context, w.scheduler);
}

CUDA_ON_CPU_ONCE void wait_until(bool (*may_go_on)(const Fiber&), uint64_t subject, uint64_t round, unsigned line, const char* place)
{
    Fiber& fiber = worker->fibers[worker->current];
    fiber.may_go_on = may_go_on;
    fiber.subject = subject;
    fiber.round = round;
    wait(POLLING, 0, line, place);
}

// ---------------------------------------------------------------------------------------------------------------------- scheduler

CUDA_ON_CPU_ONCE uint64_t mix(uint64_t x)   // SplitMix64
{
    x += 0x9e3779b97f4a7c15;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
    x = (x ^ x >> 27) * 0x94d049bb133111eb;
    return x ^ x >> 31;
}

// Static shared memory is what the module keeps per operating-system thread, so all of it but our own pointer is poisoned.
struct SharedQuery { uintptr_t code; unsigned char* memory; size_t size; };

CUDA_ON_CPU_ONCE int find_shared_in(dl_phdr_info* info, size_t, void* data)
{
    SharedQuery& query = *static_cast<SharedQuery*>(data);
    bool here = false;
    size_t size = 0;
    for (int i = 0; i < info->dlpi_phnum; ++i) {
        const auto& part = info->dlpi_phdr[i];
        if (part.p_type == PT_LOAD && query.code - (info->dlpi_addr + part.p_vaddr) < part.p_memsz) here = true;
        if (part.p_type == PT_TLS) size = part.p_memsz;
    }
    if (!here) return 0;
    query.memory = static_cast<unsigned char*>(info->dlpi_tls_data);
    query.size = size;
    return 1;
}

CUDA_ON_CPU_ONCE void find_shared(Worker& w)
{
    SharedQuery query = {reinterpret_cast<uintptr_t>(find_shared_in), nullptr, 0};
    dl_iterate_phdr(find_shared_in, &query);
    w.shared = query.memory;
    w.shared_size = query.size;
}

CUDA_ON_CPU_ONCE void poison_shared(Worker& w)
{
    memset(w.shared, 0xff, w.shared_size);
    worker = &w;
    unsigned char* const end = reinterpret_cast<unsigned char*>(&w) + DYNAMIC_SHARED_AT + DYNAMIC_SHARED;
    memset(w.dynamic_shared, 0xff, static_cast<size_t>(end - w.dynamic_shared));
}

// Goes over to another block of the cluster: static shared memory has one place on a thread, our own pointer among it.
CUDA_ON_CPU_ONCE void enter(Worker& w)
{
    Worker& left = *worker;
    if (&left == &w) return;
    const size_t at = static_cast<size_t>(reinterpret_cast<unsigned char*>(&worker) - w.shared), after = at + sizeof worker;
    memcpy(left.parked, w.shared, at);
    memcpy(left.parked + after, w.shared + after, w.shared_size - after);
    worker = &w;
    memcpy(w.shared, w.parked, at);
    memcpy(w.shared + after, w.parked + after, w.shared_size - after);
}

CUDA_ON_CPU_ONCE void shuffle(Worker& w, unsigned count, uint64_t seed)
{
    for (unsigned i = count - 1; i > 0; --i) {
        seed = mix(seed);
        const unsigned other = static_cast<unsigned>((seed >> 32) * (i + 1) >> 32);
        const uint16_t held = w.order[i];
        w.order[i] = w.order[other];
        w.order[other] = held;
    }
}

// Releases every warp whose running lanes, as far as its masks name them, all wait at one warp barrier; nobody waits for lanes that exited.
CUDA_ON_CPU_ONCE bool release_warps(Worker& w, unsigned count)
{
    constexpr unsigned WARP = 32;
    bool any = false;
    for (unsigned first = 0; first < count; first += WARP) {
        const unsigned lanes = count - first < WARP ? count - first : WARP;
        for (unsigned lane = 0; lane < lanes; ++lane) {
            const Fiber& leader = w.fibers[first + lane];
            if (leader.status != AT_WARP_BARRIER) continue;
            bool complete = leader.mask >> lane & 1;   // CUDA wants the caller's own lane in its mask
            for (unsigned i = 0; i < lanes; ++i) {
                const Fiber& fiber = w.fibers[first + i];
                if (!(leader.mask >> i & 1) || fiber.status == EXITED) continue;
                complete = complete && fiber.status == AT_WARP_BARRIER && fiber.mask == leader.mask && fiber.line == leader.line;
            }
            if (!complete) continue;
            for (unsigned i = 0, mask = leader.mask; i < lanes; ++i)
                if (mask >> i & 1 && w.fibers[first + i].status == AT_WARP_BARRIER) w.fibers[first + i].status = READY;
            any = true;
        }
    }
    return any;
}

// Nobody can go on: says who waits where.
CUDA_ON_CPU_ONCE void report_barrier(Worker& leader)
{
    const unsigned blocks = leader.launch->cluster;
    Launch& launch = *leader.launch;
    if (!claim_failure(launch, BARRIER)) return;
    locate_failure(leader);
    char* at = launch.message;
    char* const end = at + sizeof launch.message;
    auto say = [&](const char* format, auto... values) {
        if (at < end) at += snprintf(at, static_cast<size_t>(end - at), format, values...);
    };
    for (unsigned rank = 0; rank < blocks; ++rank) {
        const Worker& w = *leader.cluster[rank];
        if (rank != 0) say("; block %u of the cluster: ", rank);
        say("of %u threads, %u have exited", w.count, w.exited);
        for (unsigned i = 0; i < w.count; ++i) {
            const Fiber& fiber = w.fibers[i];
            auto same = [&](const Fiber& other) { return other.status == fiber.status && other.line == fiber.line; };
            bool seen = fiber.status == EXITED;
            for (unsigned j = 0; j < i && !seen; ++j) seen = same(w.fibers[j]);
            if (seen) continue;
            unsigned waiting = 0;
            for (unsigned j = i; j < w.count; ++j) waiting += same(w.fibers[j]);
            say(", %u wait%s at the %s of line %u", waiting, waiting == 1 ? "s" : "", fiber.place, fiber.line);
            if (launch.line == 0) launch.line = fiber.line;
        }
    }
}

// What a further header adds to the scheduler.
struct Extension {
    void (*begin)(Worker&) = nullptr;          // before a block begins
    void (*end)(Worker&) = nullptr;            // all its threads have exited
    bool (*advance)(Worker&) = nullptr;        // no thread of a cluster can go on: whether something happened that lets one
};
inline Extension extension;

CUDA_ON_CPU_ONCE void begin_block(Worker& w, uint64_t block)
{
    const uint64_t x = w.grid_extent.x, y = w.grid_extent.y;
    enter(w);
    w.block = {unsigned(block % x), unsigned(block / x % y), unsigned(block / x / y)};
    w.mixed_seed = mix(mix(w.launch->seed) ^ block);
    w.exited = 0;
    w.phase = 0;
    poison_shared(w);
    for (unsigned i = 0; i < w.count; ++i) {
        prepare_fiber(w, i);
        w.order[i] = static_cast<uint16_t>(w.launch->order == DESCENDING ? w.count - 1 - i : i);
    }
    if (extension.begin != nullptr) extension.begin(w);
}

// Runs all threads of a block up to where they wait or end, and lets them go on together, until none can; whether any thread ran.
CUDA_ON_CPU_ONCE bool run_block(Worker& w)
{
    const unsigned count = w.count;
    for (bool ran_once = false;; ++w.phase) {
        if (w.launch->order == RANDOM) shuffle(w, count, w.mixed_seed ^ w.phase);
        unsigned at_barrier = 0, line = 0;
        bool same_line = true, ran = false;
        for (unsigned i = 0; i < count; ++i) {
            const unsigned index = w.order[i];
            Fiber& fiber = w.fibers[index];
            if (fiber.status == READY || (fiber.status == POLLING && fiber.may_go_on(fiber))) {
                fiber.status = READY;
                w.current = index;
                w.thread = fiber.thread;
                ran = true;
                switch_context(w.scheduler, fiber.context);
                w.exited += fiber.status == EXITED;
            }
            if (fiber.status != AT_BARRIER) continue;
            same_line = same_line && (at_barrier == 0 || fiber.line == line);
            line = fiber.line;
            ++at_barrier;
        }
        ran_once = ran_once || ran;
        if (w.exited == count) return ran_once;
        if (at_barrier == count && same_line) {
            for (unsigned i = 0; i < count; ++i) w.fibers[i].status = READY;
            continue;
        }
        if (at_barrier + w.exited < count && release_warps(w, count)) continue;
        if (!ran) return ran_once;
    }
}

// Runs the blocks of a cluster by turns, each as far as it comes, until none is left; false when the launch has failed.
CUDA_ON_CPU_ONCE bool run_cluster(Worker& leader, uint64_t number)
{
    const unsigned blocks = leader.launch->cluster;
    for (unsigned rank = 0; rank < blocks; ++rank) begin_block(*leader.cluster[rank], number * blocks + rank);
    for (uint64_t turn = 0;; ++turn) {
        unsigned ended = 0;
        bool ran = false;
        uint64_t first = leader.launch->order == DESCENDING ? blocks - 1 : 0;
        if (leader.launch->order == RANDOM) first = mix(leader.mixed_seed ^ turn) % blocks;
        for (unsigned i = 0; i < blocks; ++i) {
            Worker& w = *leader.cluster[(first + i) % blocks];
            enter(w);
            ran = run_block(w) || ran;
            if (w.exited != w.count) continue;
            ++ended;
            if (extension.end != nullptr) extension.end(w);
        }
        if (ended == blocks) return true;
        if (ran && blocks > 1) continue;
        if (extension.advance != nullptr && extension.advance(leader)) continue;
        report_barrier(leader);
        return false;
    }
}

// The clusters of one launch in their order: an affine bijection of 0 ... total - 1 when it is random.
struct Clusters {
    uint64_t total, factor, offset, next;

    explicit Clusters(const Launch& launch)
        : total(uint64_t(launch.grid[0]) * launch.grid[1] * launch.grid[2] / launch.cluster), factor(1), offset(0), next(0)
    {
        if (launch.order == DESCENDING) { factor = total - 1; offset = total - 1; }
        if (launch.order != RANDOM) return;
        offset = mix(launch.seed) % total;
        factor = mix(launch.seed + 1) % total;
        while (greatest_common_divisor(factor, total) != 1) factor = (factor + 1) % total;
    }
    static uint64_t greatest_common_divisor(uint64_t a, uint64_t b) { return b == 0 ? a : greatest_common_divisor(b, a % b); }
    uint64_t at(uint64_t i) const { return static_cast<uint64_t>((static_cast<unsigned __int128>(i) * factor + offset) % total); }
};

constexpr unsigned MOST_WORKERS = 64;

struct Team {
    Launch* launch;
    Clusters clusters;
    void (*body)(void**);
    unsigned joined = 0;
    // What `watch` and the workers share.
    pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    pthread_cond_t ended = PTHREAD_COND_INITIALIZER;
    pthread_t threads[MOST_WORKERS];
    bool runs[MOST_WORKERS] = {};
    bool done = false;
};

CUDA_ON_CPU_ONCE void set_running(Team& team, unsigned number, bool runs)
{
    pthread_mutex_lock(&team.mutex);
    team.threads[number] = pthread_self();
    team.runs[number] = runs;
    pthread_mutex_unlock(&team.mutex);
}

// Ends a launch that takes longer than it may: every worker is called out of whatever it is doing.
CUDA_ON_CPU_ONCE void* watch(void* data)
{
    Team& team = *static_cast<Team*>(data);
    const uint64_t limit = team.launch->milliseconds;
    timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += static_cast<time_t>(limit / 1000);
    until.tv_nsec += static_cast<long>(limit % 1000 * 1000000);
    if (until.tv_nsec >= 1000000000) { until.tv_nsec -= 1000000000; ++until.tv_sec; }
    pthread_mutex_lock(&team.mutex);
    int waited = 0;
    while (!team.done && waited == 0) waited = pthread_cond_timedwait(&team.ended, &team.mutex, &until);
    if (!team.done && claim_failure(*team.launch, TIME)) {
        snprintf(team.launch->message, sizeof team.launch->message, "not ended after %.3g seconds", double(limit) / 1000);
        for (unsigned i = 0; i < MOST_WORKERS; ++i)
            if (team.runs[i]) pthread_kill(team.threads[i], SIGXCPU);
    }
    pthread_mutex_unlock(&team.mutex);
    return nullptr;
}

CUDA_ON_CPU_ONCE void prepare_worker(Worker& w, Worker& leader, unsigned rank, const Team& team)
{
    Launch& launch = *team.launch;
    unsigned char* const arena = reinterpret_cast<unsigned char*>(&w);
    w.leader = &leader;
    leader.cluster[rank] = &w;
    w.rank = rank;
    w.line = 0;
    w.launch = &launch;
    w.body = team.body;
    w.grid_extent = dim3(launch.grid[0], launch.grid[1], launch.grid[2]);
    w.block_extent = dim3(launch.block[0], launch.block[1], launch.block[2]);
    w.count = launch.block[0] * launch.block[1] * launch.block[2];
    // It ends at the inaccessible page, as far as its alignment lets it.
    const size_t alignment = launch.shared_alignment;
    w.dynamic_shared = arena + DYNAMIC_SHARED_AT + DYNAMIC_SHARED - (launch.shared_bytes + alignment - 1) / alignment * alignment;
    // A swizzle repeats every 1024 bytes: no kernel shall have that alignment by luck.
    if (extension.begin != nullptr && alignment < 1024 && launch.shared_bytes % 1024 == 0) w.dynamic_shared -= alignment;
    w.parked = arena + PARKED_AT;
    w.extension = arena + EXTENSION_AT;
    find_shared(w);
}

CUDA_ON_CPU_ONCE void* run_worker(void* data)
{
    Team& team = *static_cast<Team*>(data);
    Launch& launch = *team.launch;
    const unsigned number = __atomic_fetch_add(&team.joined, 1u, __ATOMIC_RELAXED);
    void** const arenas = launch.arenas + number * launch.cluster;
    unsigned char* const arena = static_cast<unsigned char*>(arenas[0]);
    Worker& w = *reinterpret_cast<Worker*>(arena);
    w.leader = &w;
    worker = &w;                               // before find_shared: the first access makes static shared memory
    for (unsigned rank = 0; rank < launch.cluster; ++rank) prepare_worker(*static_cast<Worker*>(arenas[rank]), w, rank, team);

    stack_t signal_stack = {}, previous_stack = {};
    signal_stack.ss_sp = arena + SIGNAL_STACK_AT;
    signal_stack.ss_size = SIGNAL_STACK;
    sigaltstack(&signal_stack, &previous_stack);
    set_running(team, number, true);
    // A failure comes back here, whatever stack it happened on.
    if (sigsetjmp(w.out, 1) == 0) {
        w.in_kernel = true;
        if (w.shared_size > PARKED) fail(ACCESS, 0, 0, "more than 64 KiB of static shared memory");
        while (__atomic_load_n(&launch.failure, __ATOMIC_ACQUIRE) == NONE) {
            const uint64_t i = __atomic_fetch_add(&team.clusters.next, uint64_t(1), __ATOMIC_RELAXED);
            if (i >= team.clusters.total) break;
            enter(w);
            if (!run_cluster(w, team.clusters.at(i))) break;
        }
    }
    w.in_kernel = false;
    set_running(team, number, false);
    sigaltstack(&previous_stack, nullptr);
    worker = nullptr;
    return nullptr;
}

// One launch at a time in a process: the harness holds a lock, because signal handlers belong to the process.
CUDA_ON_CPU_ONCE void run(Launch& launch, void (*body)(void**))
{
    Team team = {&launch, Clusters(launch), body};
    struct sigaction action = {};
    action.sa_sigaction = on_signal;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigemptyset(&action.sa_mask);
    for (int i = 0; i < SIGNAL_COUNT; ++i) sigaction(SIGNALS[i], &action, &previous_actions[i]);

    pthread_t threads[MOST_WORKERS], watcher;
    const bool watched = launch.milliseconds != 0 && pthread_create(&watcher, nullptr, watch, &team) == 0;
    unsigned started = 0;
    while (started + 1 < launch.workers && started + 1 < MOST_WORKERS) {
        if (pthread_create(&threads[started], nullptr, run_worker, &team) != 0) break;
        ++started;
    }
    run_worker(&team);
    for (unsigned i = 0; i < started; ++i) pthread_join(threads[i], nullptr);
    if (watched) {
        pthread_mutex_lock(&team.mutex);
        team.done = true;
        pthread_cond_signal(&team.ended);
        pthread_mutex_unlock(&team.mutex);
        pthread_join(watcher, nullptr);
    }
    for (int i = 0; i < SIGNAL_COUNT; ++i) sigaction(SIGNALS[i], &previous_actions[i], nullptr);
}

// Calls a kernel with the values behind `arguments`, whose C types the caller declared; what a pointer points at may be const or not.
template <class... Declared>
struct Call {
    template <class T>
    using Plain = std::conditional_t<std::is_pointer_v<T>, std::remove_cv_t<std::remove_pointer_t<T>>*, std::remove_cv_t<T>>;

    template <class... Parameters>
    static constexpr bool matches(void (*)(Parameters...))
    {
        if constexpr (sizeof...(Parameters) != sizeof...(Declared)) return false;
        else return (std::is_same_v<Plain<Parameters>, Plain<Declared>> && ...);
    }

    template <class... Parameters, size_t... I>
    static void apply(void (*kernel)(Parameters...), void** arguments, std::integer_sequence<size_t, I...>)
    {
        kernel(*static_cast<std::remove_cv_t<Parameters>*>(arguments[I])...);
    }

    template <auto kernel>
    static void body(void** arguments) { apply(kernel, arguments, std::make_index_sequence<sizeof...(Declared)>()); }
};

constexpr unsigned first(unsigned value, ...) { return value; }

}  // namespace cuda_on_cpu

#ifdef CUDA_ON_CPU_RUNTIME
extern "C" inline __attribute__((used, visibility("default"))) void* cuda_on_cpu_arena() { return cuda_on_cpu::create_arena(); }
extern "C" inline __attribute__((used, visibility("default"))) size_t cuda_on_cpu_arena_size() { return cuda_on_cpu::ARENA; }
#endif

#define CUDA_ON_CPU_KERNEL(name, ...)                                                                                               \
    static_assert(cuda_on_cpu::Call<__VA_ARGS__>::matches(name), "the declared parameters of " #name " are not those of the kernel"); \
    extern "C" __attribute__((visibility("default"))) void cuda_on_cpu_launch_##name(cuda_on_cpu::Launch* launch)                   \
    {                                                                                                                               \
        cuda_on_cpu::run(*launch, cuda_on_cpu::Call<__VA_ARGS__>::template body<&name>);                                            \
    }
#define CUDA_ON_CPU_LAUNCH_BOUNDS(name, ...)                                                                                        \
    extern "C" __attribute__((visibility("default"))) unsigned cuda_on_cpu_bounds_##name() { return cuda_on_cpu::first(__VA_ARGS__); }
#define CUDA_ON_CPU_CLUSTER(name, ...)                                                                                              \
    extern "C" __attribute__((visibility("default"))) unsigned cuda_on_cpu_cluster_##name() { return __VA_ARGS__; }

// ------------------------------------------------------------------------------------------------------------------ CUDA's own words

#define __global__
#define __device__
#define __host__
#define __constant__
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __launch_bounds__(...)
#define __shared__ static thread_local
#define __align__(...) __attribute__((aligned(__VA_ARGS__)))
// CUDA compilers take the specifier between `__shared__` and the type, where the standard does not.
#define alignas(...) __attribute__((aligned(__VA_ARGS__)))

#define threadIdx (static_cast<const uint3&>(cuda_on_cpu::worker->thread))
#define blockIdx (static_cast<const uint3&>(cuda_on_cpu::worker->block))
#define blockDim (static_cast<const dim3&>(cuda_on_cpu::worker->block_extent))
#define gridDim (static_cast<const dim3&>(cuda_on_cpu::worker->grid_extent))
constexpr int warpSize = 32;

inline void __syncthreads(unsigned line = __builtin_LINE()) { cuda_on_cpu::wait(cuda_on_cpu::AT_BARRIER, 0, line, "barrier"); }
inline void __syncwarp(unsigned mask = 0xffffffff, unsigned line = __builtin_LINE())
{
    cuda_on_cpu::wait(cuda_on_cpu::AT_WARP_BARRIER, mask, line, "warp barrier");
}
inline void __threadfence() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
inline void __threadfence_block() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
[[noreturn]] inline void __trap(unsigned line = __builtin_LINE()) { cuda_on_cpu::fail(cuda_on_cpu::TRAP, line, 0, "trap"); }

// An `extern __shared__` array becomes a pointer to this.
inline void* cuda_on_cpu_dynamic_shared() { return cuda_on_cpu::worker == nullptr ? nullptr : cuda_on_cpu::worker->dynamic_shared; }

template <class T> inline T __ldg(const T* from) { return *from; }
template <class T> inline T __ldca(const T* from) { return *from; }
template <class T> inline T __ldcg(const T* from) { return *from; }
template <class T> inline T __ldcs(const T* from) { return *from; }
template <class T> inline void __stcg(T* to, std::type_identity_t<T> value) { *to = value; }
template <class T> inline void __stcs(T* to, std::type_identity_t<T> value) { *to = value; }

// The mathematical functions of CUDA, for both types. <math.h> declares them too, but takes longer to read than the rest of this header;
// libc++ (of clang and zig) has read it already, and they may not be declared twice.
#ifdef _LIBCPP_VERSION
#include <math.h>
#else
#define CUDA_ON_CPU_MATH(name, parameters, ...)                                                                                     \
    inline constexpr float name(CUDA_ON_CPU_##parameters(float)) { return __builtin_##name##f(__VA_ARGS__); }                        \
    inline constexpr double name(CUDA_ON_CPU_##parameters(double)) { return __builtin_##name(__VA_ARGS__); }
#define CUDA_ON_CPU_ONE(type) type x
#define CUDA_ON_CPU_TWO(type) type x, type y
#define CUDA_ON_CPU_THREE(type) type x, type y, type z
CUDA_ON_CPU_MATH(fabs, ONE, x)
CUDA_ON_CPU_MATH(sqrt, ONE, x)
CUDA_ON_CPU_MATH(floor, ONE, x)
CUDA_ON_CPU_MATH(ceil, ONE, x)
CUDA_ON_CPU_MATH(trunc, ONE, x)
CUDA_ON_CPU_MATH(rint, ONE, x)
CUDA_ON_CPU_MATH(fmin, TWO, x, y)
CUDA_ON_CPU_MATH(fmax, TWO, x, y)
CUDA_ON_CPU_MATH(copysign, TWO, x, y)
CUDA_ON_CPU_MATH(fma, THREE, x, y, z)
inline float fmaf(float x, float y, float z) { return __builtin_fmaf(x, y, z); }
inline float sqrtf(float x) { return __builtin_sqrtf(x); }
inline double nan(const char*) { return __builtin_nan(""); }
template <class T> constexpr bool isnan(T x) { return __builtin_isnan(x); }
template <class T> constexpr bool isinf(T x) { return __builtin_isinf(x); }
template <class T> constexpr bool isfinite(T x) { return __builtin_isfinite(x); }
template <class T> constexpr T abs(T x)
{
    if constexpr (std::is_floating_point_v<T>) return fabs(x);
    else return x < 0 ? -x : x;
}
#endif

template <class A, class B> constexpr std::common_type_t<A, B> min(A a, B b)
{
    using T = std::common_type_t<A, B>;
    if constexpr (std::is_floating_point_v<T>) return fmin(T(a), T(b));
    else return T(b) < T(a) ? T(b) : T(a);
}
template <class A, class B> constexpr std::common_type_t<A, B> max(A a, B b)
{
    using T = std::common_type_t<A, B>;
    if constexpr (std::is_floating_point_v<T>) return fmax(T(a), T(b));
    else return T(a) < T(b) ? T(b) : T(a);
}

inline double __fma_rn(double x, double y, double z) { return fma(x, y, z); }
inline double __dadd_rn(double x, double y) { return x + y; }
inline double __dsub_rn(double x, double y) { return x - y; }
inline double __dmul_rn(double x, double y) { return x * y; }
inline float __fmaf_rn(float x, float y, float z) { return fmaf(x, y, z); }
inline float __fadd_rn(float x, float y) { return x + y; }
inline float __fsub_rn(float x, float y) { return x - y; }
inline float __fmul_rn(float x, float y) { return x * y; }

inline unsigned __float_as_uint(float x) { return std::bit_cast<unsigned>(x); }
inline int __float_as_int(float x) { return std::bit_cast<int>(x); }
inline float __uint_as_float(unsigned x) { return std::bit_cast<float>(x); }
inline float __int_as_float(int x) { return std::bit_cast<float>(x); }
inline long long __double_as_longlong(double x) { return std::bit_cast<long long>(x); }
inline double __longlong_as_double(long long x) { return std::bit_cast<double>(x); }
inline long long __double2ll_rn(double x) { return __builtin_llrint(x); }
inline double __hiloint2double(int high, int low)
{
    return std::bit_cast<double>((unsigned long long)unsigned(high) << 32 | unsigned(low));
}
inline unsigned __byte_perm(unsigned a, unsigned b, unsigned which)
{
    const unsigned long long both = (unsigned long long)b << 32 | a;
    unsigned found = 0;
    for (int byte = 0; byte < 4; ++byte) found |= unsigned(both >> 8 * (which >> 4 * byte & 7) & 255) << 8 * byte;
    return found;
}
inline int __float2int_rn(float x) { return int(__builtin_lrintf(x)); }
inline unsigned __dp4a(unsigned a, unsigned b, unsigned c)
{
    for (int shift = 0; shift < 32; shift += 8) c += (a >> shift & 255) * (b >> shift & 255);
    return c;
}
inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) { return (unsigned __int128)a * b >> 64; }
inline int __popc(unsigned x) { return std::popcount(x); }
inline int __clz(int x) { return std::countl_zero(static_cast<unsigned>(x)); }
inline int __ffs(int x) { return x == 0 ? 0 : std::countr_zero(static_cast<unsigned>(x)) + 1; }

namespace cuda_on_cpu {

template <class T> using Bits = std::conditional_t<sizeof(T) == 4, uint32_t, uint64_t>;

template <class T> inline T compare_and_swap(T* at, T expected, T value)
{
    static_assert(sizeof(T) == 4 || sizeof(T) == 8);
    Bits<T> bits = std::bit_cast<Bits<T>>(expected);
    __atomic_compare_exchange_n(reinterpret_cast<Bits<T>*>(at), &bits, std::bit_cast<Bits<T>>(value), false, __ATOMIC_SEQ_CST,
                                __ATOMIC_SEQ_CST);
    return std::bit_cast<T>(bits);
}

template <class T, class Change> inline T update(T* at, Change change)
{
    T old = std::bit_cast<T>(__atomic_load_n(reinterpret_cast<Bits<T>*>(at), __ATOMIC_SEQ_CST));
    for (;;) {
        const T seen = compare_and_swap(at, old, change(old));
        if (std::bit_cast<Bits<T>>(seen) == std::bit_cast<Bits<T>>(old)) return old;
        old = seen;
    }
}

template <class T> inline T wrapped_sum(T a, T b)
{
    if constexpr (std::is_integral_v<T>) return T(std::make_unsigned_t<T>(a) + std::make_unsigned_t<T>(b));
    else return a + b;
}

}  // namespace cuda_on_cpu

#define CUDA_ON_CPU_ATOMIC(name, result)                                                                                            \
    template <class T> inline T name(T* at, std::type_identity_t<T> value)                                                          \
    {                                                                                                                               \
        return cuda_on_cpu::update(at, [=](T old) -> T { (void)old; return result; });                                              \
    }
CUDA_ON_CPU_ATOMIC(atomicAdd, cuda_on_cpu::wrapped_sum(old, value))
CUDA_ON_CPU_ATOMIC(atomicMax, old < value ? value : old)
CUDA_ON_CPU_ATOMIC(atomicMin, value < old ? value : old)
CUDA_ON_CPU_ATOMIC(atomicOr, old | value)
CUDA_ON_CPU_ATOMIC(atomicAnd, old & value)
CUDA_ON_CPU_ATOMIC(atomicExch, value)
#undef CUDA_ON_CPU_ATOMIC
template <class T> inline T atomicCAS(T* at, std::type_identity_t<T> expected, std::type_identity_t<T> value)
{
    return cuda_on_cpu::compare_and_swap(at, expected, value);
}
