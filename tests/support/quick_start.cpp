// Loaded before a test's program (LD_PRELOAD): libfabric's verbs provider searches /proc/kallsyms for two functions whenever a program
// begins with libfabric, also where no verbs device is. To read that file takes tenths of a second each time. Here it cannot be opened, which the provider takes for a kernel without these functions.
#include <dlfcn.h>

#include <cerrno>
#include <cstring>

// By their names for the linker: <cstdio> makes one of the two.
extern "C" {
__attribute__((visibility("default"))) void* open_file(const char* path, const char* mode) __asm__("fopen");
__attribute__((visibility("default"))) void* open_file_64(const char* path,
                                                          const char* mode) __asm__("fopen64");
}

namespace {
void* open_with(const char* name, const char* path, const char* mode) {
    if (std::strcmp(path, "/proc/kallsyms") == 0) {
        errno = ENOENT;
        return nullptr;
    }
    using opening = void*(const char*, const char*);
    return reinterpret_cast<opening*>(::dlsym(RTLD_NEXT, name))(path, mode);
}
}  // namespace

void* open_file(const char* path, const char* mode) { return open_with("fopen", path, mode); }
void* open_file_64(const char* path, const char* mode) { return open_with("fopen64", path, mode); }
