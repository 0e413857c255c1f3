#include "support/over/lists_over.hpp"
#include "support/over/loopback_variants.hpp"

namespace rdmacoro::test {

namespace {

constexpr traits of(std::string_view name) {
    traits found = erased::traits_of<in_memory>(name);
    found.moves = in_turns::all_but_gets;
    found.puts_before_sends = true;
    return found;
}

constinit const erased::variant_of<in_memory> plain{of("in_memory")};
constinit const variant* const all[] = {&plain};

}  // namespace

constinit const variants over_loopback{all};

}  // namespace rdmacoro::test
