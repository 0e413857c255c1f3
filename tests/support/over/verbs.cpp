#include "support/over/lists_over.hpp"
#include "support/over/verbs_variants.hpp"

namespace rdmacoro::test {

namespace {

constexpr traits of(std::string_view name) {
    traits found = erased::traits_of<verbs_as_it_comes>(name);
    found.real = found.counted = true;
    found.kind = name == "verbs_as_it_comes";
    found.timing_decides = true;
    found.puts_before_sends = true;
    found.slowness = 10;  // the devices of the virtual machine are emulated
    return found;
}

constinit const erased::variant_of<verbs_as_it_comes> as_it_comes{of("verbs_as_it_comes")};
constinit const erased::variant_of<verbs_over_iwarp> over_iwarp{of("verbs_over_iwarp")};
constinit const erased::variant_of<verbs_by_exchange> by_exchange{of("verbs_by_exchange")};
constinit const variant* const all[] = {&as_it_comes, &over_iwarp, &by_exchange};

}  // namespace

constinit const variants over_verbs{all};

}  // namespace rdmacoro::test
