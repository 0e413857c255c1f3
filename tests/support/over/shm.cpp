#include "support/over/lists_over.hpp"
#include "support/over/shm_variants.hpp"

namespace rdmacoro::test {

namespace {

constexpr traits of(std::string_view name, bool real) {
    traits found = erased::traits_of<shm_as_it_comes>(name);
    found.real = found.counted = real;
    found.kind = name == "shm_as_it_comes";
    found.moves = in_turns::all;
    return found;
}

constinit const erased::variant_of<shm_as_it_comes> as_it_comes{of("shm_as_it_comes", true)};
constinit const erased::variant_of<shm_without_process_vm> without_process_vm{
    of("shm_without_process_vm", false)};
constinit const erased::variant_of<shm_without_membarrier> without_membarrier{
    of("shm_without_membarrier", true)};
constinit const erased::variant_of<shm_tiny> tiny{of("shm_tiny", true)};
constinit const variant* const all[] = {&as_it_comes, &without_process_vm, &without_membarrier, &tiny};

}  // namespace

constinit const variants over_shm{all};

}  // namespace rdmacoro::test
