#include "support/over/lists_over.hpp"
#include "support/over/sim_variants.hpp"

namespace rdmacoro::test {

namespace {

constexpr traits of(std::string_view name, bool puts_before_sends = false) {
    traits found = erased::traits_of<sim_plain>(name);
    found.puts_before_sends = puts_before_sends;
    found.kind = name == "sim_plain";
    found.moves = in_turns::all_but_gets;
    found.fills_in_turns = false;  // messages arrive as soon as nothing else can run
    return found;
}

constinit const erased::variant_of<sim_plain> plain{of("sim_plain")};
constinit const erased::variant_of<sim_that_announces> that_announces{of("sim_that_announces", true)};
constinit const erased::variant_of<sim_that_registers> that_registers{of("sim_that_registers")};
constinit const erased::variant_of<sim_of_aligned_gets> of_aligned_gets{of("sim_of_aligned_gets")};
constinit const erased::variant_of<sim_that_revokes_late> that_revokes_late{of("sim_that_revokes_late")};
constinit const variant* const all[] = {&plain, &that_announces, &that_registers, &of_aligned_gets,
                                        &that_revokes_late};

}  // namespace

constinit const variants over_sim{all};

}  // namespace rdmacoro::test
