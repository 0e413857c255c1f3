#include "counting_new.hpp"

#include <cstdlib>
#include <new>

namespace {
constinit thread_local std::size_t count = 0;
constinit thread_local std::size_t least_failing = 1;
constinit thread_local std::size_t most_failing = 0;
constinit thread_local std::size_t next_failing = 0;
constinit thread_local std::size_t until_failing = 0;

[[maybe_unused]] bool fails(std::size_t bytes) noexcept {
    if (next_failing != 0) {
        --next_failing;
        return true;
    }
    if (until_failing != 0 && --until_failing == 0) return true;
    return bytes >= least_failing && bytes <= most_failing;
}
}  // namespace

std::size_t rdmacoro::test::allocations() noexcept { return count; }

rdmacoro::test::allocations_apart::allocations_apart() noexcept : before_(count) {}
rdmacoro::test::allocations_apart::~allocations_apart() { count = before_; }

rdmacoro::test::failing_allocations::failing_allocations(std::size_t least, std::size_t most) noexcept {
    least_failing = least;
    most_failing = most;
}
rdmacoro::test::failing_allocations::~failing_allocations() {
    least_failing = 1;
    most_failing = 0;
}

void rdmacoro::test::fail_next_allocations(std::size_t many) noexcept { next_failing = many; }
void rdmacoro::test::fail_allocation(std::size_t number) noexcept { until_failing = number; }
bool rdmacoro::test::allocation_is_to_fail() noexcept { return until_failing != 0; }

#if !RDMACORO_UNDER_SANITIZER

void* operator new(std::size_t bytes) {
    ++count;
    if (fails(bytes)) throw std::bad_alloc();
    if (void* memory = std::malloc(bytes == 0 ? 1 : bytes)) return memory;
    throw std::bad_alloc();
}

void* operator new(std::size_t bytes, std::align_val_t alignment) {
    ++count;
    if (fails(bytes)) throw std::bad_alloc();
    const std::size_t to = static_cast<std::size_t>(alignment);
    if (void* memory = std::aligned_alloc(to, (bytes + to - 1) / to * to)) return memory;
    throw std::bad_alloc();
}

void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }

#endif
