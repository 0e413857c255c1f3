#include "support/over/lists_over.hpp"
#include "support/over/matching_loopback_variants.hpp"

namespace rdmacoro::test {

namespace {

constexpr traits of(std::string_view name) {
    traits found = erased::traits_of<matched_in_memory>(name);
    found.real = found.counted = true;
    found.puts_before_sends = true;
    return found;
}

constinit const erased::variant_of<matched_in_memory> plain{of("matched_in_memory")};
constinit const erased::variant_of<matched_with_little_room> with_little_room{of("matched_with_little_room")};
constinit const variant* const all[] = {&plain, &with_little_room};

}  // namespace

constinit const variants over_matching_loopback{all};

}  // namespace rdmacoro::test
