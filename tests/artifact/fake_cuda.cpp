// The driver functions that an emitted C library calls, on the CPU: images are known by their content, and kernels run in the emulator.
//
// The file named by FAKE_CUDA_KERNELS has a line for each image: kernel, number of parameters, emulated library, alignment of its shared
// memory, image.
// Memory of the device ends at inaccessible pages and begins as NaNs. A captured stream keeps launches until its graph is launched; like
// the driver, it keeps the values of their parameters. FAKE_CUDA_REFUSES names functions that fail. The device's capability is 9.0.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include <dlfcn.h>
#include <sys/mman.h>

#include "cuda_on_cpu.h"

namespace {

enum { SUCCESS = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, INVALID_CONTEXT = 201, NO_BINARY = 209, NOT_FOUND = 500, LAUNCH_FAILED = 719 };
constexpr size_t PAGE = 4096;

struct Image {
    std::string kernel, library, content;
    unsigned parameters, alignment;
    int most_shared = 48 * 1024, loads = 0;
};
struct Work {
    std::function<int()> run;
};
struct Stream {
    bool is_captured = false;
    std::vector<Work> captured;
};

std::map<unsigned long long, size_t> memory;
bool has_context = false;

bool refuses(const char* name)
{
    const char* named = getenv("FAKE_CUDA_REFUSES");
    return named && strstr(named, name);
}

std::vector<Image>& images()
{
    static std::vector<Image> known = [] {
        std::vector<Image> read;
        std::ifstream table(getenv("FAKE_CUDA_KERNELS"));
        Image own;
        std::string path;
        while (table >> own.kernel >> own.parameters >> own.library >> own.alignment >> path) {
            std::ifstream file(path, std::ios::binary);
            own.content.assign(std::istreambuf_iterator<char>(file), {});
            read.push_back(own);
        }
        return read;
    }();
    return known;
}

int allocate(unsigned long long* address, size_t bytes)
{
    if (!bytes || bytes > size_t{1} << 32) return bytes ? OUT_OF_MEMORY : INVALID_VALUE;
    size_t whole = (bytes + PAGE - 1) / PAGE * PAGE;
    auto* begin = static_cast<char*>(mmap(nullptr, whole + 2 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    if (begin == MAP_FAILED || mprotect(begin + PAGE, whole, PROT_READ | PROT_WRITE)) return OUT_OF_MEMORY;
    memset(begin + PAGE, 0xff, whole);
    *address = reinterpret_cast<uintptr_t>(begin + PAGE + (whole - bytes) / 16 * 16);
    memory[*address] = bytes;
    return SUCCESS;
}

int release(unsigned long long address)
{
    auto found = memory.find(address);
    if (found == memory.end()) return INVALID_VALUE;
    auto first = address / PAGE * PAGE;
    mprotect(reinterpret_cast<void*>(first), (address + found->second - first + PAGE - 1) / PAGE * PAGE, PROT_NONE);
    memory.erase(found);
    return SUCCESS;
}

int ordered(Stream* stream, std::function<int()> run)
{
    if (!stream || !stream->is_captured) return run();
    stream->captured.push_back({std::move(run)});
    return SUCCESS;
}

}  // namespace

extern "C" {

int cuInit(unsigned) { return SUCCESS; }
int cuDeviceGet(int* device, int) { return *device = 0; }
int cuDevicePrimaryCtxRetain(void** context, int) { return *context = &memory, SUCCESS; }
int cuCtxSetCurrent(void* context) { return has_context = context != nullptr, SUCCESS; }
int cuCtxGetDevice(int* device) { return has_context ? *device = 0 : INVALID_CONTEXT; }
int cuDeviceGetAttribute(int* value, int attribute, int)
{
    *value = attribute == 75 ? 9 : 0;
    return attribute == 75 || attribute == 76 ? SUCCESS : INVALID_VALUE;
}
int cuMemAlloc_v2(unsigned long long* address, size_t bytes) { return allocate(address, bytes); }
int cuMemFree_v2(unsigned long long address) { return release(address); }
int cuMemAllocAsync(unsigned long long* address, size_t bytes, Stream*) { return refuses(__func__) ? OUT_OF_MEMORY : allocate(address, bytes); }
int cuMemFreeAsync(unsigned long long address, Stream* stream) { return ordered(stream, [=] { return release(address); }); }
int cuMemcpyHtoD_v2(unsigned long long to, const void* from, size_t bytes) { return memcpy(reinterpret_cast<void*>(to), from, bytes), SUCCESS; }
int cuMemcpyDtoH_v2(void* to, unsigned long long from, size_t bytes) { return memcpy(to, reinterpret_cast<void*>(from), bytes), SUCCESS; }
int cuStreamCreate(Stream** stream, unsigned) { return *stream = new Stream, SUCCESS; }
int cuStreamSynchronize(Stream* stream) { return stream->is_captured ? INVALID_VALUE : SUCCESS; }
int cuStreamBeginCapture_v2(Stream* stream, int) { return stream->is_captured = true, SUCCESS; }
int cuStreamEndCapture(Stream* stream, void** graph)
{
    *graph = new std::vector<Work>(std::move(stream->captured));
    stream->captured.clear();
    return stream->is_captured = false, SUCCESS;
}
int cuGraphInstantiateWithFlags(void** executable, void* graph, unsigned long long) { return *executable = graph, SUCCESS; }
int cuGraphLaunch(void* executable, Stream*)
{
    for (auto& work : *static_cast<std::vector<Work>*>(executable))
        if (int error = work.run()) return error;
    return SUCCESS;
}
int cuGetErrorString(int error, const char** text) { return *text = error == LAUNCH_FAILED ? "a launch failed" : "an error of the driver", SUCCESS; }

int cuModuleLoadData(void** module, const void* content)
{
    for (auto& image : images())
        if (!memcmp(content, image.content.data(), image.content.size())) return image.loads++, *module = &image, SUCCESS;
    return NO_BINARY;
}
int cuModuleUnload(void* module) { return --static_cast<Image*>(module)->loads >= 0 ? SUCCESS : INVALID_VALUE; }
int cuModuleGetFunction(void** function, void* module, const char* name)
{
    return static_cast<Image*>(module)->kernel == name ? (*function = module, SUCCESS) : NOT_FOUND;
}
int cuFuncSetAttribute(void* function, int attribute, int value)
{
    static_cast<Image*>(function)->most_shared = value;
    return attribute == 8 ? SUCCESS : INVALID_VALUE;
}

int cuLaunchKernel(void* function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x, unsigned block_y, unsigned block_z,
                   unsigned shared_bytes, Stream* stream, void** parameters, void**)
{
    auto* image = static_cast<Image*>(function);
    if (refuses(__func__) || !image->loads || !grid_x || static_cast<int>(shared_bytes) > image->most_shared) return INVALID_VALUE;
    void* library = dlopen(image->library.c_str(), RTLD_NOW | RTLD_LOCAL);
    auto entry = [&](const std::string& name) { return dlsym(library, name.c_str()); };
    auto run = reinterpret_cast<void (*)(cuda_on_cpu::Launch*)>(entry("cuda_on_cpu_launch_" + image->kernel));
    auto create_arena = reinterpret_cast<void* (*)()>(entry("cuda_on_cpu_arena"));
    auto arena_size = reinterpret_cast<size_t (*)()>(entry("cuda_on_cpu_arena_size"));
    if (!run || !create_arena || !arena_size) return LAUNCH_FAILED;
    static std::map<size_t, void*> arenas;  // by size: all libraries share them, for the system lends a process few mappings
    void*& arena = arenas[arena_size()];
    if (!arena) arena = create_arena();
    if (!arena) return OUT_OF_MEMORY;
    std::vector<uint64_t> values;  // of 8 bytes each, as the library keeps them
    for (unsigned i = 0; i < image->parameters; i++) values.push_back(*static_cast<uint64_t*>(parameters[i]));
    return ordered(stream, [=, own = &arena, alignment = image->alignment]() mutable {
        std::vector<void*> arguments;
        for (auto& value : values) arguments.push_back(&value);
        cuda_on_cpu::Launch launch{};
        unsigned extents[] = {grid_x, grid_y, grid_z, block_x, block_y, block_z};
        memcpy(launch.grid, extents, sizeof launch.grid);
        memcpy(launch.block, extents + 3, sizeof launch.block);
        launch.workers = launch.cluster = 1;
        launch.shared_alignment = alignment;
        launch.shared_bytes = shared_bytes;
        launch.arenas = own;
        launch.arguments = arguments.data();
        run(&launch);
        if (!launch.failure) return static_cast<int>(SUCCESS);
        fprintf(stderr, "block %u %u: %s, line %u\n", launch.failed_block[0], launch.failed_block[1], launch.message, launch.line);
        return static_cast<int>(LAUNCH_FAILED);
    });
}

}  // extern "C"
