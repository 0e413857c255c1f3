#include "conformance/transports.hpp"

#include "support/catch.hpp"
#include "support/child_process.hpp"

#include <csignal>

namespace test_faults_peer_killed {

using namespace rdmacoro;
using namespace rdmacoro::test;
using namespace std::chrono_literals;

namespace {

constexpr std::size_t huge = std::size_t{slow_devices ? 8u : 32u} << 20;
/// Messages whose bytes the sender sends; peer_killed_rendezvous.cpp has those that go from memory to memory.
using in_pieces = protocols<eager<>, segmented<>>;

constexpr std::byte sent_byte{0x5a};

/// When the child dies.
struct moment {
    int turns;              ///< after so many turns
    std::size_t sent_over;  ///< and not before it has sent more of the message than this, in bytes
};

/// Much more than may be sent before the receiver has met the message with its receive, and much less than all of it.
constexpr std::size_t under_way = huge / 4;
static_assert(under_way > mailbox_options{}.unexpected_bytes / 4);

constexpr moment stages[] = {{0, 0}, {1, 0}, {5, 0}, {40, 0}, {0, under_way}};

/// The child: says where its memory is, sends a message that is never finished, and dies.
template <class Variant>
void die_in_mid_message(const std::string& address, moment stage) {
    using T = typename Variant::transport_type;
    scheduler on{idle::yield{}};
    const auto domain = Variant::open(on);
    on.run([](auto& in, const std::string& where, moment when) -> task<> {
        auto end = co_await timeout(connect<T, in_pieces>(in, where), 30s);
        std::vector<std::byte> memory(huge, sent_byte);
        std::vector<std::byte> opened(huge);  // not what is sent: the peer's put may come before that
        const region open = in.register_memory(opened, access_rights::all);
        co_await end.send(bytes_of(open.remote()), 1);
        auto sending = start(end.send(memory, 2));
        auto matched = start(end.ssend({}, 3));
        for (int n = 0; n < when.turns; ++n) co_await yield();
        const std::size_t piece = end.link_capabilities().segment_bytes;
        while (end.counts().segments_sent * piece <= when.sent_over) co_await yield();
        ::kill(::getpid(), SIGKILL);
        co_await sending;
        co_await matched;
    }(*domain, address, stage));
}

/// Answers whether the peer died in the middle of its message: met with a receive, partly there and not whole.
template <class T>
task<bool> outlives_its_peer(typename T::domain& in, std::string where, child_process& child) {
    auto listening = co_await listen<T, in_pieces>(in, where);
    child.tell(listening.address());
    endpoint<T, in_pieces> end = co_await timeout(listening.accept(), 30s);
    remote_region there;
    const auto told = co_await as_result(timeout(end.recv(room_for(there), 1), 30s));
    std::vector<std::byte> into(huge);
    std::vector<std::byte> small(8);
    std::vector<std::byte> here(huge);
    const auto data = pattern(huge, 1);
    // One of everything.
    auto filling = start(end.recv(into, 2));
    auto posted = start(end.recv(small, 99));
    auto masked = start(end.recv_lent(tag_match(64, 64)));
    auto probing = start(end.probe(98));
    auto unmatched = start(end.ssend(small, 5));
    auto segments = start(end.send(data, 6));
    auto getting = start(end.rdma_get(told ? there : remote_region{1, huge, 1}, here));
    auto putting = start(end.rdma_put(data, told ? there : remote_region{1, huge, 1}));

    const auto lost = [](std::error_code code) { return code == errc::peer_lost; };  // it has sent no goodbye
    // An adapter says only that it refuses.
    const auto refused = [](std::error_code code) {
        return code == errc::bad_key || code == errc::out_of_bounds || code == errc::access_denied;
    };
    const auto a = co_await as_result(posted);
    CHECK(lost(a.error()));
    const auto b = co_await as_result(masked);
    CHECK(lost(b.error()));
    const auto c = co_await as_result(probing);
    CHECK(lost(c.error()));
    const auto d = co_await as_result(unmatched);
    CHECK(lost(d.error()));
    const auto e = co_await as_result(segments);
    CHECK(lost(e.error()));
    const auto f = co_await as_result(filling);
    if (!f) CHECK(lost(f.error()));
    const bool begun = into.front() == sent_byte;
    const bool whole = into.back() == sent_byte;
    if (f) CHECK((begun && whole));
    // Those that need no peer may have ended while it lived; a peer that is half gone has no memory left to reach.
    const auto g = co_await as_result(getting);
    const auto h = co_await as_result(putting);
    for (const std::error_code code : {g.error(), h.error()}) {
        CAPTURE(code.message());
        CHECK((!code || lost(code) || refused(code)));
    }
    const auto later = co_await as_result(end.send(small));
    CHECK(lost(later.error()));
    const auto later_get = co_await as_result(end.rdma_get(remote_region{1, small.size(), 1}, small));
    CHECK(lost(later_get.error()));
    const auto later_put = co_await as_result(end.rdma_put(small, remote_region{1, small.size(), 1}));
    CHECK(lost(later_put.error()));
    co_await end.close();
    // The listener and the domain go on.
    auto p = start(listening.accept());
    auto again = co_await timeout(connect<T, in_pieces>(in, listening.address()), 30s);
    auto accepted = co_await p;
    co_await again.send({}, 1);
    co_await accepted.recv({}, 1);
    co_return !f && begun && !whole;
}

struct killed {
    bool in_the_middle;
    std::uint64_t parks;  // of the survivor
};

template <class Variant, class Idle>
killed killed_at(moment stage, Idle idle) {
    CAPTURE(stage.turns, stage.sent_over);
    using T = typename Variant::transport_type;
    child_process child([stage](const std::string& address) { die_in_mid_message<Variant>(address, stage); });
    scheduler on(idle);
    const auto domain = Variant::open(on);
    const bool middle = on.run([](auto& in, child_process& of) -> task<bool> {
        co_return co_await timeout(outlives_its_peer<T>(in, Variant::address(), of), case_limit);
    }(*domain, child));
    if (stage.sent_over != 0) CHECK(middle);
    const int status = child.wait();
    CHECK(WIFSIGNALED(status));
    CHECK(WTERMSIG(status) == SIGKILL);
    return {middle, on.parks()};
}

}  // namespace

TEMPLATE_LIST_TEST_CASE("a peer killed in mid-message ends everything pending, while spinning", "",
                        every_real_transport) {
    int in_the_middle = 0;
    for (const moment stage : stages) {
        const killed seen = killed_at<TestType>(stage, idle::spin{});
        if (seen.in_the_middle) ++in_the_middle;
        CHECK(seen.parks == 0);
    }
    CHECK(in_the_middle > 0);
}
TEMPLATE_LIST_TEST_CASE("a peer killed in mid-message ends everything pending, while parked", "",
                        every_real_transport) {
    int in_the_middle = 0;
    for (const moment stage : stages) {
        const killed seen = killed_at<TestType>(stage, idle::adaptive(duration::zero(), duration::zero()));
        if (seen.in_the_middle) ++in_the_middle;
        CHECK((seen.parks > 0) == can_park<TestType>);
    }
    CHECK(in_the_middle > 0);
}

}  // namespace test_faults_peer_killed
