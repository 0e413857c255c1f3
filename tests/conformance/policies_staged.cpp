#include "policies.hpp"

using namespace rdmacoro;
using namespace rdmacoro::test;

using staged_list = protocols<eager<up_to<1000>>, staged_get<>, get_rendezvous<>>;

TEMPLATE_LIST_TEST_CASE(
    "eager, staged and got by size: everything arrives, whatever it is sent from and received into", "",
    every_transport) {
    conform_all<staged_list, TestType>();
}
TEMPLATE_LIST_TEST_CASE("eager, staged and got by size: both ends give up while the other is at work", "",
                        every_real_transport) {
    cancel_across_threads<staged_list, TestType>();
}

namespace {

/// Messages that nobody has received when their sender closes.
template <class T>
task<> closes_with_messages_left(world<T>& w) {
    auto p = co_await join<staged_list>(w);
    constexpr std::size_t count = 2 * rdmacoro::detail::most_staged;
    std::deque<std::vector<std::byte>> data;
    std::deque<started<decltype(p.a.send(std::span<const std::byte>(), 1))>> sending;
    for (std::size_t n = 0; n < count; ++n) {
        data.push_back(pattern(n * 127 % 16384, n));
        sending.emplace_back(p.a.send(data.back(), 1));
    }
    co_await yield();
    co_await p.a.close();
    for (auto& each : sending) co_await each;
    std::vector<std::byte> into(16384);
    for (std::size_t n = 0; n < count; ++n) {
        CAPTURE(n);
        const received got = co_await p.b.recv(into, 1);
        CHECK(got.bytes == data[n].size());
        CHECK(is_pattern(std::span(into).first(got.bytes), n));
    }
    const auto none = co_await as_result(p.b.recv(into, 1));
    CHECK(none.error() == errc::closed);
    nothing_left(w, p);
}

}  // namespace

TEMPLATE_LIST_TEST_CASE("staged: what is left when its sender closes can still be received", "",
                        every_transport) {
    conform<TestType>(closes_with_messages_left<typename TestType::transport_type>);
}
