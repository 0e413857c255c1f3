#include <rdmacoro/service/detail/group_base.hpp>

#include "support/catch.hpp"
#include "support/ranks.hpp"

#include <array>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

namespace test_service_detail_group_base {

using namespace rdmacoro;
using namespace rdmacoro::test;

namespace {

/// The steps of a group, one at a time.
class steps : public detail::group_base {
public:
    steps() noexcept = default;
    explicit steps(detail::group_state& of) noexcept
        : group_base(detail::counted_ptr<detail::group_state>(&of)) {}
    using group_base::need;
    using group_base::need_blocks;
    using group_base::need_counts;
    using group_base::state;
};

/// The text of the check's refusal; empty: there was none.
template <class F>
std::string refusal(F check) {
    try {
        check();
    } catch (const std::system_error& e) {
        CHECK(e.code() == errc::invalid_argument);
        return e.what();
    }
    return {};
}
bool has(const std::string& text, const char* part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("a group of nothing has no state") {
    const steps none;
    CHECK(has(refusal([&] { static_cast<void>(none.state()); }), "default-constructed"));
}

TEST_CASE("a buffer of another length than is needed is refused, and the group is revoked") {
    run_nodes([]() -> task<> {
        ranks<sim> all(3);
        co_await all.open();
        const steps at(all.state(1));
        at.need(12, 12, "gather");
        CHECK(!at.state().failure());
        const std::string text = refusal([&] { at.need(11, 12, "gather"); });
        CHECK(has(text, "gather: a buffer has 11 elements, not 12"));
        REQUIRE(at.state().failure());
        CHECK(at.state().failure()->by == 1);
    });
}

TEST_CASE("counts are one for each rank, and their sum is the buffer's length, also where it overflows") {
    run_nodes([]() -> task<> {
        ranks<sim> all(3);
        co_await all.open();
        const steps at(all.state(0));
        at.need_counts(std::array<std::size_t, 3>{1, 2, 3}, 6, "gatherv");
        CHECK(!at.state().failure());
        const auto refused = [&](const std::vector<std::size_t>& counts, std::size_t elements) {
            return refusal([&] { at.need_counts(counts, elements, "gatherv"); });
        };
        CHECK(has(refused({1, 2}, 3), "2 counts for 3 ranks"));
        CHECK(has(refused({1, 2, 3}, 7), "a buffer has 7 elements, not 6"));
        const std::size_t half = std::size_t{1} << 63;
        CHECK(has(refused({half, half, 3}, 3), "a buffer has 3 elements, not "));
    });
}

TEST_CASE("a block for each rank is a multiple of them, where there are blocks") {
    run_nodes([]() -> task<> {
        ranks<sim> all(3);
        co_await all.open();
        const steps at(all.state(2));
        const std::vector<int> x(7);
        at.need_blocks(x, false, "scatter");
        at.need_blocks(std::vector<int>(9), true, "scatter");
        CHECK(!at.state().failure());
        CHECK(has(refusal([&] { at.need_blocks(x, true, "scatter"); }), "a buffer has 7 elements, not 6"));
    });
}

}  // namespace test_service_detail_group_base
