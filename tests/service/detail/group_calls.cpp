#include <rdmacoro/service/detail/group_calls.hpp>

#include "support/catch.hpp"

#include <array>
#include <vector>

namespace test_service_detail_group_calls {

using namespace rdmacoro;
using namespace rdmacoro::detail;

TEST_CASE("a call has the kind, the elements, the operation and the options that it was asked with") {
    using enum collective_kind;
    const collective_call plain = call_of<broadcast, std::vector<short>>();
    CHECK(plain.kind == broadcast);
    CHECK(plain.element == sizeof(short));
    CHECK(!plain.reproducible);
    CHECK(plain.asked.empty());
    const collective_call sum =
        call_with<allreduce, std::vector<double>>(std::plus<>{}, reproducible, use<ring<>>);
    CHECK(sum.reproducible);
    CHECK(sum.asked.size() == 1);
    CHECK(sum.with.commutative);
    CHECK(sum.types->number != call_with<allreduce, std::vector<float>>(std::plus<>{}).types->number);
    CHECK(sum.types->number != call_with<allreduce, std::vector<double>>(std::multiplies<>{}).types->number);
}

TEST_CASE("in place the root's own block is within all, and another rank's is all it has") {
    using enum collective_kind;
    std::vector<int> x(12);
    auto* const first = reinterpret_cast<std::byte*>(x.data());
    const std::array<std::size_t, 3> counts{2, 7, 3};
    const collective_call scattered = blocks_call<scatter, std::vector<int>>(x, 3, 2, {});
    CHECK(scattered.in == first);
    CHECK(scattered.out == first + 8 * sizeof(int));
    CHECK(scattered.bytes == 4 * sizeof(int));
    const collective_call gathered = blocks_call<gather, std::vector<int>>(x, 3, 2, counts);
    CHECK(gathered.in == first + 9 * sizeof(int));
    CHECK(gathered.out == first);
    CHECK(gathered.bytes == 3 * sizeof(int));
    const collective_call other = blocks_call<gather, std::vector<int>>(x, 0, 1, {});
    CHECK(other.in == first);
    CHECK(other.bytes == 12 * sizeof(int));
    CHECK(elements_before(counts, 0) == 0);
    CHECK(elements_before(counts, 2) == 9);
}

}  // namespace test_service_detail_group_calls
