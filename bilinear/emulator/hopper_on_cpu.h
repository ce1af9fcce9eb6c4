// Hopper's clusters, transaction barriers and bulk copies into shared memory on a CPU, as the functions that kernels call them by. Included
// after cuda_on_cpu.h where the emitted text uses one, with units_on_cpu.h and warpgroup_on_cpu.h.
//
// What is asynchronous happens as late as it may. A copy lands, and a multiplication is done, only when no thread of the cluster can go on
// without it; until then its destination holds NaN. So the result of a kernel that reads too early, or fills a stage again too early, is
// wrong. Misuse that can be told at once ends the launch with a report.
#pragma once

typedef unsigned long long Barrier;

#define CLUSTER(...)
#define __grid_constant__

// A map of a matrix of 16-bit elements, whose boxes are copied: its address, the elements of a line, its lines, bytes from line to line.
struct TensorMap { unsigned long long words[16]; };

namespace cuda_on_cpu {

// ---------------------------------------------------------------------------------------------------------------- what is under way

constexpr unsigned MOST_COPIES = 16384;         // the shared memory of a block holds 14,528 of the shortest, 16 bytes

struct Copy {
    unsigned char *to, *barrier;               // homes
    const unsigned char* from;
    uint32_t bytes, line;
    Worker* issuer;
    uint3 thread;
    uint32_t turn = 0, outside = 0;            // part f of 16 bytes lands at place f ^ turn; the last parts are zeros
};

// In the extension of a block. The copies and what concerns cluster_sync stand in that of the leader.
struct Asynchronous {
    unsigned copies, arrived, unfenced;        // in the order of issue; threads at a cluster_sync; barriers
    uint64_t landed, round;
    Copy copy[MOST_COPIES];
};

inline Asynchronous& of_block(Worker& w) { return *reinterpret_cast<Asynchronous*>(w.extension); }
inline Asynchronous& of_cluster() { return of_block(*worker->leader); }

[[noreturn]] inline void misuse(unsigned line, const char* format, auto... values)
{
    char message[256];
    snprintf(message, sizeof message, format, values...);
    fail(ASYNCHRONOUS, line, 0, message);
}

// What is found outside all threads is reported as one thread's.
CUDA_ON_CPU_ONCE void act_for(Worker& w, uint3 thread, unsigned line)
{
    enter(w);
    w.thread = thread;
    w.line = line;
}

// -------------------------------------------------------------------------------------------------- shared memory of a cluster

// Where a block of the cluster has what this block has at an address: its home, an address that no other byte has. Static shared memory,
// which has the same addresses in all blocks, is at home where it is parked.
CUDA_ON_CPU_ONCE unsigned char* home_of(const void* pointer, uint64_t bytes, unsigned alignment, unsigned rank, unsigned line)
{
    const Worker& w = *worker;
    if (rank >= w.launch->cluster) misuse(line, "the cluster has no block %u", rank);
    Worker& other = *w.leader->cluster[rank];
    if (other.exited == other.count) misuse(line, "block %u of the cluster has ended, and its shared memory with it", rank);
    if (&other != &w && of_block(other).unfenced) misuse(line, "no barrier_fence since block %u of the cluster initialised barriers", rank);
    const uint64_t address = reinterpret_cast<uint64_t>(pointer);
    if (address % alignment != 0) misuse(line, "an address in shared memory that is not a multiple of %u", alignment);
    const uint64_t dynamic = address - reinterpret_cast<uint64_t>(w.dynamic_shared), fixed = address - reinterpret_cast<uint64_t>(w.shared);
    if (dynamic <= w.launch->shared_bytes && bytes <= w.launch->shared_bytes - dynamic) return other.dynamic_shared + dynamic;
    if (fixed <= w.shared_size && bytes <= w.shared_size - fixed) return other.parked + fixed;
    fail(ACCESS, line, address, "outside shared memory:");
}

CUDA_ON_CPU_ONCE unsigned char* memory_at(unsigned char* home)
{
    const size_t parked = static_cast<size_t>(home - worker->parked);
    return parked < PARKED ? worker->shared + parked : home;
}

// Descriptors count from the start of a window of 256 KiB, at the end of which dynamic shared memory lies.
inline unsigned char* shared_window(Worker& w) { return reinterpret_cast<unsigned char*>(&w) + DYNAMIC_SHARED_AT; }

// ------------------------------------------------------------------------------------------------ transaction barriers and copies

// What a Barrier holds; memory that was never initialised has another mark.
struct State {
    uint64_t mark : 8, phase : 1, expected : 16, pending : 16;
    int64_t bytes : 23;                        // still to come in this phase
};
static_assert(sizeof(State) == sizeof(Barrier));
constexpr unsigned MARK = 0xb5, MOST_ARRIVALS = (1 << 16) - 1;
constexpr int MOST_BYTES = (1 << 20) - 1;

CUDA_ON_CPU_ONCE State state_at(unsigned char* home, unsigned line)
{
    State state;
    memcpy(&state, memory_at(home), sizeof state);
    if (state.mark != MARK) misuse(line, "there is no initialised barrier");
    return state;
}

CUDA_ON_CPU_ONCE int bytes_under_way(const unsigned char* barrier)
{
    const Asynchronous& all = of_cluster();
    int bytes = 0;
    for (unsigned i = 0; i < all.copies; ++i) bytes += all.copy[i].barrier == barrier ? int(all.copy[i].bytes) : 0;
    return bytes;
}

// A phase ends when all have arrived and all bytes have landed.
CUDA_ON_CPU_ONCE void store(unsigned char* home, State state, unsigned line)
{
    if (state.pending == 0 && state.bytes == 0) {
        const int more = bytes_under_way(home);
        if (more != 0) misuse(line, "a phase of the barrier ends while %d bytes that it does not expect are on their way", more);
        state.phase ^= 1;
        state.pending = state.expected;
    }
    memcpy(memory_at(home), &state, sizeof state);
}

CUDA_ON_CPU_ONCE void arrive(const Barrier* barrier, unsigned rank, int bytes, unsigned line)
{
    unsigned char* const home = home_of(barrier, sizeof *barrier, sizeof *barrier, rank, line);
    State state = state_at(home, line);
    if (state.pending == 0) misuse(line, "more than the %u arrivals that the barrier expects in a phase", unsigned(state.expected));
    if (bytes < 0 || state.bytes + bytes > MOST_BYTES) misuse(line, "a barrier expects 0 to %d bytes in a phase", MOST_BYTES);
    state.pending -= 1;
    state.bytes += bytes;
    store(home, state, line);
}

CUDA_ON_CPU_ONCE bool phase_has_ended(const Fiber& fiber)
{
    return state_at(reinterpret_cast<unsigned char*>(fiber.subject), fiber.line).phase != fiber.round;
}

CUDA_ON_CPU_ONCE void issue_copy(void* to, const void* from, int bytes, const Barrier* barrier, unsigned rank, unsigned line, unsigned unit = 16)
{
    Asynchronous& all = of_cluster();
    if (bytes <= 0 || unsigned(bytes) % unit != 0) misuse(line, "a bulk copy of %d bytes, not of a positive multiple of %u", bytes, unit);
    if (reinterpret_cast<uint64_t>(from) % unit != 0) misuse(line, "the source of a bulk copy is not aligned to %u bytes", unit);
    if (all.copies == MOST_COPIES) misuse(line, "more than %u copies under way", MOST_COPIES);
    const Copy copy = {home_of(to, uint64_t(bytes), unit, rank, line), home_of(barrier, sizeof *barrier, sizeof *barrier, rank, line),
                       static_cast<const unsigned char*>(from), uint32_t(bytes), line, worker, worker->thread};
    state_at(copy.barrier, line);
    for (unsigned i = 0; i < all.copies; ++i)
        if (all.copy[i].to < copy.to + copy.bytes && copy.to < all.copy[i].to + all.copy[i].bytes)
            misuse(line, "the copy of line %u to the same shared memory is still on its way", all.copy[i].line);
    memset(memory_at(copy.to), 0xff, copy.bytes);
    all.copy[all.copies++] = copy;
}

// All copies that report to a barrier land, and its phase ends.
CUDA_ON_CPU_ONCE void land(unsigned char* barrier, State state)
{
    Asynchronous& all = of_cluster();
    unsigned left = 0;
    for (unsigned i = 0; i < all.copies; ++i) {
        const Copy copy = all.copy[i];
        if (copy.barrier != barrier) {
            all.copy[left++] = copy;
            continue;
        }
        act_for(*copy.issuer, copy.thread, copy.line);
        if (copy.turn == 0 && copy.outside == 0) memcpy(memory_at(copy.to), copy.from, copy.bytes);
        for (unsigned at = 0; at < copy.bytes && (copy.turn != 0 || copy.outside != 0); at += 16) {
            unsigned char* const to = memory_at(copy.to) + (at ^ copy.turn * 16);
            if (at + 16 <= copy.bytes - copy.outside) memcpy(to, copy.from + at, 16);
            else memset(to, 0, 16);
        }
        worker->line = 0;
    }
    all.copies = left;
    state.bytes = 0;
    store(barrier, state, 0);
}

// Lands the copies of one phase that waits for nothing else: the first that was issued, the last, or any, as the launch's order has it.
CUDA_ON_CPU_ONCE bool land_a_phase(Worker& leader)
{
    const Asynchronous& all = of_cluster();
    const int order = leader.launch->order;
    const uint64_t first = order == RANDOM && all.copies != 0 ? mix(leader.mixed_seed ^ ++of_cluster().landed) % all.copies : 0;
    const Copy* wrong = nullptr;
    for (unsigned i = 0; i < all.copies; ++i) {
        const Copy& copy = all.copy[order == DESCENDING ? all.copies - 1 - i : (first + i) % all.copies];
        const State state = state_at(copy.barrier, copy.line);
        if (state.pending != 0) continue;
        wrong = &copy;
        if (bytes_under_way(copy.barrier) != state.bytes) continue;
        land(copy.barrier, state);
        return true;
    }
    if (wrong == nullptr) return false;
    act_for(*wrong->issuer, wrong->thread, wrong->line);
    misuse(wrong->line, "%d bytes are on their way to a barrier that expects %d in this phase", bytes_under_way(wrong->barrier),
           int(state_at(wrong->barrier, wrong->line).bytes));
}

CUDA_ON_CPU_ONCE void end_asynchronous(Worker& w)
{
    const Asynchronous& all = of_cluster();
    for (unsigned i = 0; i < all.copies; ++i) {
        const Copy& copy = all.copy[i];
        if (static_cast<size_t>(copy.to - reinterpret_cast<unsigned char*>(&w)) >= ARENA) continue;
        act_for(*copy.issuer, copy.thread, copy.line);
        misuse(copy.line, "block %u of the cluster ends while this copy is on its way to it", w.rank);
    }
}

// ------------------------------------------------------------------------------------------------------------------- clusters

CUDA_ON_CPU_ONCE bool cluster_has_met(const Fiber& fiber)
{
    Asynchronous& all = of_cluster();
    unsigned running = 0;
    for (unsigned rank = 0; rank < worker->launch->cluster; ++rank) {
        const Worker& w = *worker->leader->cluster[rank];
        running += w.count - w.exited;
    }
    if (all.round == fiber.round && all.arrived == running) {
        all.arrived = 0;
        all.round += 1;
    }
    return all.round != fiber.round;
}

}  // namespace cuda_on_cpu

// ------------------------------------------------------------------------------------------------------------- what kernels call

CUDA_ON_CPU_ONCE unsigned shared_address(const void* at, unsigned line = __builtin_LINE())
{
    using namespace cuda_on_cpu;
    const unsigned char* const home = home_of(at, 0, 1, worker->rank, line);
    if (home < shared_window(*worker)) misuse(line, "only dynamic shared memory has addresses here");
    return unsigned(home - shared_window(*worker));
}

CUDA_ON_CPU_ONCE void barrier_init(Barrier* b, int arrivals, unsigned line = __builtin_LINE())
{
    using namespace cuda_on_cpu;
    unsigned char* const at = memory_at(home_of(b, sizeof *b, sizeof *b, worker->rank, line));
    if (arrivals < 1 || arrivals > int(MOST_ARRIVALS)) misuse(line, "a barrier for %d arrivals, not for 1 to %u", arrivals, MOST_ARRIVALS);
    if (*at == MARK) misuse(line, "the barrier is initialised already");
    const State state = {MARK, 0, uint64_t(arrivals), uint64_t(arrivals), 0};
    memcpy(at, &state, sizeof state);
    of_block(*worker).unfenced += 1;
}
inline void barrier_fence() { cuda_on_cpu::of_block(*cuda_on_cpu::worker).unfenced = 0; }
CUDA_ON_CPU_ONCE void barrier_expect(Barrier* b, int bytes, unsigned line = __builtin_LINE())
{
    cuda_on_cpu::arrive(b, cuda_on_cpu::worker->rank, bytes, line);
}
inline void barrier_arrive(Barrier* b, int rank, unsigned line = __builtin_LINE()) { cuda_on_cpu::arrive(b, unsigned(rank), 0, line); }
inline void barrier_arrive_here(Barrier* b, unsigned line = __builtin_LINE()) { cuda_on_cpu::arrive(b, cuda_on_cpu::worker->rank, 0, line); }
CUDA_ON_CPU_ONCE void barrier_wait(Barrier* b, int parity, unsigned line = __builtin_LINE())
{
    using namespace cuda_on_cpu;
    unsigned char* const home = home_of(b, sizeof *b, sizeof *b, worker->rank, line);
    if (parity != 0 && parity != 1) misuse(line, "parity %d, not 0 or 1", parity);
    if (state_at(home, line).phase != unsigned(parity)) return;
    wait_until(phase_has_ended, reinterpret_cast<uint64_t>(home), uint64_t(parity), line, "barrier_wait");
}

CUDA_ON_CPU_ONCE void cluster_sync(unsigned line = __builtin_LINE())
{
    using namespace cuda_on_cpu;
    of_cluster().arrived += 1;
    wait_until(cluster_has_met, 0, of_cluster().round, line, "cluster_sync");
}

CUDA_ON_CPU_ONCE void copy_bulk(void* to, const void* from, int bytes, Barrier* b, unsigned line = __builtin_LINE())
{
    cuda_on_cpu::issue_copy(to, from, bytes, b, cuda_on_cpu::worker->rank, line);
}

// Bytes whose arrival barrier_arrive_after adds to this thread's: here the barrier expects them from now on.
namespace cuda_on_cpu {
CUDA_ON_CPU_ONCE void issue_ahead(void* to, const void* from, unsigned bytes, Barrier* b, unsigned line)
{
    unsigned char* const home = home_of(b, sizeof *b, sizeof *b, worker->rank, line);
    State state = state_at(home, line);
    state.bytes += bytes;
    memcpy(memory_at(home), &state, sizeof state);
    issue_copy(to, from, int(bytes), b, worker->rank, line, bytes);
}
}  // namespace cuda_on_cpu
inline void copy_ahead(void* to, const void* from, Barrier* b, unsigned line = __builtin_LINE()) { cuda_on_cpu::issue_ahead(to, from, 16, b, line); }
template <typename T> void copy_element_ahead(T* to, const T* from, bool is_read, Barrier* b, unsigned line = __builtin_LINE())
{
    static const T zero = 0;
    cuda_on_cpu::issue_ahead(to, is_read ? from : &zero, sizeof(T), b, line);
}
inline void barrier_arrive_after(Barrier* b, unsigned line = __builtin_LINE()) { cuda_on_cpu::arrive(b, cuda_on_cpu::worker->rank, 0, line); }
inline void copies_fence() {}
CUDA_ON_CPU_ONCE void copy_bulk_to(void* to, const void* from, int bytes, Barrier* b, unsigned short mask, unsigned line = __builtin_LINE())
{
    if (mask == 0) cuda_on_cpu::misuse(line, "a copy to no block");
    for (unsigned rank = 0; rank < 16; ++rank)
        if (mask >> rank & 1) cuda_on_cpu::issue_copy(to, from, bytes, b, rank, line);
}

// A box of 64 x 64 elements, line by line. Lines and parts outside the matrix are zeros; the driver's maps allow no others.
CUDA_ON_CPU_ONCE void copy_box_to(void* to, const TensorMap* map, int term, int at, Barrier* b, unsigned short mask, unsigned line = __builtin_LINE())
{
    using namespace cuda_on_cpu;
    const uint64_t address = map->words[0], terms = map->words[1], lines = map->words[2], apart = map->words[3];
    if (reinterpret_cast<uint64_t>(to) % 1024 != 0) misuse(line, "a box in swizzled lines begins at a multiple of 1024 bytes");
    if (address % 16 != 0 || apart % 16 != 0 || terms % 8 != 0 || term < 0 || term % 8 != 0 || at < 0) misuse(line, "a map or a box of parts of 16 bytes only");
    for (unsigned rank = 0; rank < 16; ++rank) {
        for (unsigned row = 0; row < 64 && mask >> rank & 1; ++row) {
            const uint64_t inside = uint64_t(at) + row < lines && uint64_t(term) < terms ? min(uint64_t(64), terms - term) * 2 : 0;
            const void* const from = reinterpret_cast<const void*>(address + (inside ? (at + row) * apart + term * 2 : 0));
            issue_copy(static_cast<unsigned char*>(to) + row * 128, from, 128, b, rank, line);
            Copy& copy = of_cluster().copy[of_cluster().copies - 1];
            copy.turn = row % 8, copy.outside = 128 - unsigned(inside);
        }
    }
}
CUDA_ON_CPU_ONCE void copy_box(void* to, const TensorMap* map, int term, int at, Barrier* b, unsigned line = __builtin_LINE())
{
    copy_box_to(to, map, term, at, b, static_cast<unsigned short>(1 << cuda_on_cpu::worker->rank), line);
}
