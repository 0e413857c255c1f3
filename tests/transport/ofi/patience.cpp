#include <rdmacoro/transport/ofi/patience.hpp>

#include "support/catch.hpp"

namespace test_transport_ofi_patience {

using rdmacoro::detail::fabric::patience;
using namespace std::chrono_literals;

namespace {
/// Looks every 5 ms, for so long. True: it is over at the end, and not before.
bool over_after(patience& p, patience::clock::time_point& now, std::chrono::milliseconds some,
                patience::clock::duration most = patience::limit) {
    const auto until = now + some;
    while (now < until) {
        if (p.over(now, most)) return false;
        now += 5ms;
    }
    return p.over(now, most);
}
}  // namespace

TEST_CASE("patience begins with the first look, and is over after a second in which this process looks") {
    auto now = patience::clock::time_point() + 1h;
    patience p;
    CHECK_FALSE(p.begun());
    CHECK_FALSE(p.over(now));
    CHECK(p.begun());
    CHECK(over_after(p, now, 1005ms));
}

TEST_CASE("a peer that gets no processor for half a second is waited for") {
    auto now = patience::clock::time_point() + 1h;
    patience p;
    CHECK_FALSE(over_after(p, now, 500ms));
}

TEST_CASE("time in which nobody looks takes little of the patience") {
    auto now = patience::clock::time_point() + 1h;
    patience p;
    CHECK_FALSE(p.over(now));
    CHECK_FALSE(p.over(now += 500ms));  // the process did not run
    CHECK_FALSE(p.over(now += 5s));
    CHECK(over_after(p, now, 985ms));
}

TEST_CASE("there may be less of it") {
    auto now = patience::clock::time_point() + 1h;
    patience p;
    CHECK(over_after(p, now, 105ms, 100ms));
}

}  // namespace test_transport_ofi_patience
