#include "support/over/lists_over.hpp"
#include "support/over/tcp_variants.hpp"

namespace rdmacoro::test {

namespace {

constexpr traits of(std::string_view name, bool real) {
    traits found = erased::traits_of<tcp_as_it_comes>(name);
    found.real = found.counted = real;
    found.kind = name == "tcp_as_it_comes";
    found.moves = in_turns::all;
    return found;
}

constinit const erased::variant_of<tcp_as_it_comes> as_it_comes{of("tcp_as_it_comes", true)};
constinit const erased::variant_of<tcp_of_an_old_kernel> of_an_old_kernel{of("tcp_of_an_old_kernel", false)};
constinit const variant* const all[] = {&as_it_comes, &of_an_old_kernel};

}  // namespace

constinit const variants over_tcp{all};

}  // namespace rdmacoro::test
