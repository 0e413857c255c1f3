#include <rdmacoro/transport/bare_link.hpp>

#include "conformance/transports.hpp"
#include "support/catch.hpp"

#include <deque>
#include <optional>
#include <type_traits>

namespace test_transport_bare_link {

using namespace rdmacoro;
using namespace rdmacoro::test;

static_assert(awaitable_link<bare_link<shm>> && awaitable_link<bare_link<loopback>>);
static_assert(!awaitable_link<shm::link<detail::sink_archetype>>);
static_assert(!std::is_copy_constructible_v<bare_link<shm>>);
#if RDMACORO_WITH_TCP
static_assert(awaitable_link<bare_link<tcp>>);
#endif

namespace {

template <class T>
struct bare_pair {
    bare_link<T> a;
    bare_link<T> b;
};

template <class T>
task<bare_pair<T>> bare(world<T>& w) {
    typename T::listener listening = co_await w.there().listen(w.address());
    auto accepting = start(listening.accept());
    const std::string address = listening.address();
    typename T::connection made = co_await w.here().connect(address);
    typename T::connection accepted = co_await accepting;
    co_return bare_pair<T>{bare_link<T>(std::move(made)), bare_link<T>(std::move(accepted))};
}

/// The two ends in memory, and what lies between them.
struct watched_pair {
    std::shared_ptr<loopback_wire> wire;
    bare_link<loopback> a;
    bare_link<loopback> b;

    [[nodiscard]] loopback_lane& to_b() const { return wire->lanes[0]; }
};

task<watched_pair> watched(world<loopback>& w) {
    loopback_listener listening = co_await w.there().listen(w.address());
    loopback_connection made = co_await w.here().connect(listening.address());
    loopback_connection accepted = co_await listening.accept();
    std::shared_ptr<loopback_wire> wire = made.wire();
    co_return watched_pair{std::move(wire), bare_link<loopback>(std::move(made)),
                           bare_link<loopback>(std::move(accepted))};
}

task<> turns(int count) {
    for (int n = 0; n < count; ++n) co_await yield();
}

template <class Op>
auto begin(Op op, local_stop_source& stop) {
    return start(as_result(with_stop(std::move(op), stop.get_token())));
}

template <class L>
using send_of = std::remove_cvref_t<decltype(std::declval<L&>().send(std::span<const std::byte>()))>;

/// A length that every transport here carries in one message, and that some announce.
template <class L>
std::size_t long_message(const L& link) {
    return std::min(link.capabilities().max_message, std::size_t{1} << 20);
}

/// That messages still go both ways.
template <class L>
task<> still_talks(L& a, L& b) {
    for (const std::size_t bytes : {std::size_t{8}, long_message(a)}) {
        const auto data = pattern(bytes, 9);
        for (const bool there : {true, false}) {
            std::vector<std::byte> into(bytes);
            auto receiving = start((there ? b : a).recv(into));
            co_await (there ? a : b).send(data);
            const std::size_t got = co_await receiving;
            CHECK(got == bytes);
            CHECK(same_bytes(into, data));
        }
    }
}

}  // namespace

template <class T>
task<> in_order(world<T>& w) {
    auto p = co_await bare(w);
    CHECK_FALSE(p.a.reason());
    CHECK(&p.a.owner() == &w.on());
    if constexpr (!std::is_same_v<T, sim>)  // a simulated network offers what a test asks of it
        CHECK(p.a.capabilities().max_message >= T::static_capabilities.max_message);
    CHECK_FALSE(p.a.peer_name().empty());
    constexpr std::uint64_t count = 300;
    auto sending = start([](bare_link<T>& a) -> task<> {
        for (std::uint64_t n = 0; n < count; ++n) {
            const auto data = pattern(8 + (n * n) % 4000, n);
            co_await a.send(data);
        }
    }(p.a));
    // Some receives wait, the others come late; each takes the next message.
    std::uint64_t wrong = 0;
    for (std::uint64_t n = 0; n < count; n += 3) {
        std::vector<std::byte> into[3] = {std::vector<std::byte>(4100), std::vector<std::byte>(4100),
                                          std::vector<std::byte>(4100)};
        auto first = start(p.b.recv(into[0]));
        auto second = start(p.b.recv(into[1]));
        auto third = start(p.b.recv(into[2]));
        const std::size_t got[3] = {co_await first, co_await second, co_await third};
        for (std::uint64_t k = 0; k < 3; ++k) {
            const std::uint64_t number = n + k;
            if (got[k] != 8 + (number * number) % 4000 ||
                !is_pattern(std::span(into[k]).first(got[k]), number))
                ++wrong;
        }
    }
    CHECK(wrong == 0);
    co_await sending;
    co_await still_talks(p.a, p.b);
}
TEMPLATE_LIST_TEST_CASE("bare messages arrive in the order of their sends", "", every_transport) {
    conform<TestType>(in_order<typename TestType::transport_type>);
}

template <class T>
task<> lengths(world<T>& w) {
    auto p = co_await bare(w);
    const std::size_t most = p.a.capabilities().max_message;
    // The longest: pieces of one memory, many times, so that no transport's limit is too much for the test's memory.
    const auto data = pattern(std::size_t{1} << 20, 1);
    std::vector<std::span<const std::byte>> pieces;
    std::size_t left = most + 1;
    while (left != 0) {
        const std::size_t now = std::min(left, data.size());
        pieces.push_back(std::span(data).first(now));
        left -= now;
    }
    const const_buffers too_long{std::span<const std::span<const std::byte>>(pieces)};
    CHECK(too_long.size() == most + 1);
    const auto refused = co_await as_result(p.a.send(too_long));
    CHECK(refused.error() == errc::message_too_long);

    std::vector<std::size_t> sizes{0, 1, 8, 47, 48, 49, 4096, long_message(p.a)};
    if (most <= std::size_t{64} << 20) sizes.push_back(most);
    for (const std::size_t bytes : sizes) {
        if (bytes > most) continue;
        CAPTURE(bytes);
        const auto sent = pattern(bytes, bytes);
        std::vector<std::byte> into(bytes + 10, std::byte{0x5a});
        auto receiving = start(p.b.recv(into));
        co_await p.a.send(sent);
        const std::size_t got = co_await receiving;
        CHECK(got == bytes);
        CHECK(is_pattern(std::span(into).first(bytes), bytes));
        CHECK(all_are(std::byte{0x5a}, std::span(into).last(10)));
    }
    // No bytes into no memory.
    auto nothing = start(p.b.recv(std::span<std::byte>()));
    co_await p.a.send(std::span<const std::byte>());
    const std::size_t none = co_await nothing;
    CHECK(none == 0);
    co_await still_talks(p.a, p.b);
}
TEMPLATE_LIST_TEST_CASE("bare messages of all lengths, and one too long", "", every_transport) {
    conform<TestType>(lengths<typename TestType::transport_type>);
}

template <class T>
task<> truncation(world<T>& w) {
    auto p = co_await bare(w);
    for (const std::size_t bytes : {std::size_t{9}, long_message(p.a)}) {
        CAPTURE(bytes);
        const auto data = pattern(bytes, 2);
        std::vector<std::byte> small(8, std::byte{0x11});
        auto receiving = start(as_result(p.b.recv(small)));
        co_await p.a.send(data);
        const auto got = co_await receiving;
        CHECK(got.error() == errc::truncated);
        CHECK(got.info() == bytes);
        co_await still_talks(p.a, p.b);
    }
}
TEMPLATE_LIST_TEST_CASE("a bare message too long for its receive is consumed", "", every_transport) {
    conform<TestType>(truncation<typename TestType::transport_type>);
}

template <class T>
task<> gathered(world<T>& w) {
    auto p = co_await bare(w);
    for (const std::size_t bytes : {std::size_t{30}, long_message(p.a)}) {
        const auto data = pattern(bytes, 3);
        const std::span<const std::byte> all(data);
        const std::size_t third = bytes / 3;
        std::vector<std::byte> one(5);
        std::vector<std::byte> none;
        std::vector<std::byte> rest(bytes);
        auto receiving = start(p.b.recv(scatter(one, none, rest)));
        co_await p.a.send(gather(all.first(third), all.subspan(third, 1), all.subspan(third + 1)));
        const std::size_t got = co_await receiving;
        CHECK(got == bytes);
        one.insert(one.end(), rest.begin(), rest.end() - 5);
        CHECK(one == data);
    }
}
TEMPLATE_LIST_TEST_CASE("bare messages from and into several pieces", "", every_transport) {
    conform<TestType>(gathered<typename TestType::transport_type>);
}

/// Sends until one has to wait. The transport in memory has room for all: there it ends at the limit. Simulated ones may.
template <class L>
task<> fill(L& a, std::span<const std::byte> data, std::deque<started<send_of<L>>>& sends) {
    constexpr std::size_t limit = 4000;
    while (sends.size() < limit) {
        sends.emplace_back(a.send(data));
        if (sends.back().done()) continue;
        for (int n = 0; n < 100 && !sends.back().done(); ++n) co_await yield();
        if (!sends.back().done()) co_return;
    }
}

template <class T>
task<> late_receives(world<T>& w) {
    auto p = co_await bare(w);
    const auto data = pattern(std::min(p.a.capabilities().max_message, std::size_t{64} << 10), 4);
    std::deque<started<send_of<bare_link<T>>>> sends;
    co_await fill(p.a, data, sends);
    if constexpr (!std::is_same_v<T, sim>) CHECK(sends.back().done() == std::is_same_v<T, loopback>);

    local_stop_source stop;
    auto withdrawn = begin(p.a.send(std::span(data).first(1)), stop);
    auto behind = start(p.a.send(std::span(data).first(2)));
    // Withdrawn if it waits for room; sent if the network had it already.
    const bool was_pending = !withdrawn.done();
    if constexpr (!std::is_same_v<T, sim>) CHECK(was_pending == !std::is_same_v<T, loopback>);
    stop.request_stop();
    const auto ended = co_await withdrawn;
    if (!ended) {
        CHECK(was_pending);
        CHECK(ended.error() == errc::canceled);
    }
    std::vector<std::byte> into(data.size());
    std::size_t wrong = 0;
    for (auto& s : sends) {
        const std::size_t got = co_await p.b.recv(into);
        if (got != data.size() || into != data) ++wrong;
        co_await s;
    }
    CHECK(wrong == 0);
    if (ended) {
        const std::size_t got = co_await p.b.recv(into);
        CHECK(got == 1);
    }
    const std::size_t last = co_await p.b.recv(into);
    CHECK(last == 2);
    co_await behind;
    co_await still_talks(p.a, p.b);
}
TEMPLATE_LIST_TEST_CASE("without receives bare sends wait, and can be withdrawn", "", every_transport) {
    conform<TestType>(late_receives<typename TestType::transport_type>);
}

template <class T>
task<> one_sided(world<T>& w) {
    auto p = co_await bare(w);
    const std::size_t alignment = p.a.capabilities().get_alignment;
    for (const std::size_t about : {std::size_t{0}, std::size_t{8}, (std::size_t{3} << 20) + 5}) {
        const std::size_t bytes = about / alignment * alignment;
        std::vector<std::byte> memory = pattern(bytes + 64, 5);
        const region open = w.there().register_memory(memory, access_rights::all);
        std::vector<std::byte> here(bytes);
        co_await p.a.rdma_get(open.remote().part(64, bytes), here);
        CHECK(std::equal(here.begin(), here.end(), memory.begin() + 64));
        const auto data = pattern(bytes, 6);
        co_await p.a.rdma_put(data, open.remote().part(0, bytes));
        CHECK(is_pattern(std::span(memory).first(bytes), 6));
    }
    std::vector<std::byte> memory(100);
    const region open = w.there().register_memory(memory, access_rights::remote_read);
    std::vector<std::byte> here(12);
    const auto longer = co_await as_result(p.a.rdma_get(open.remote(), here));
    CHECK(longer.error() == errc::invalid_argument);
    const auto shorter = co_await as_result(p.a.rdma_put(here, open.remote()));
    CHECK(shorter.error() == errc::invalid_argument);
    const auto forbidden = co_await as_result(p.a.rdma_put(here, open.remote().part(0, 12)));
    CHECK(forbidden.error() == errc::access_denied);
    remote_region wrong = open.remote().part(0, 12);
    wrong.key ^= 1;
    const auto unknown = co_await as_result(p.a.rdma_get(wrong, here));
    CHECK(unknown.error() == errc::bad_key);
    co_await still_talks(p.a, p.b);
}
TEMPLATE_LIST_TEST_CASE("bare get and put", "", every_transport) {
    conform<TestType>(one_sided<typename TestType::transport_type>);
}

template <class T>
task<> canceled(world<T>& w) {
    auto p = co_await bare(w);
    std::vector<std::byte> memory = pattern(std::size_t{3} << 20, 7);
    const region open = w.there().register_memory(memory, access_rights::all);
    std::vector<std::byte> here(memory.size());

    // Before they begin.
    local_stop_source stopped;
    stopped.request_stop();
    const auto no_send = co_await as_result(with_stop(p.a.send(here), stopped.get_token()));
    CHECK(no_send.error() == errc::canceled);
    const auto no_recv = co_await as_result(with_stop(p.a.recv(here), stopped.get_token()));
    CHECK(no_recv.error() == errc::canceled);
    const auto no_get = co_await as_result(with_stop(p.a.rdma_get(open.remote(), here), stopped.get_token()));
    CHECK(no_get.error() == errc::canceled);

    // A receive that waits; the one behind it gets the message.
    local_stop_source stop;
    auto first = begin(p.b.recv(here), stop);
    auto second = start(p.b.recv(here));
    co_await turns(3);
    CHECK_FALSE(first.done());
    stop.request_stop();
    const auto first_ended = co_await first;
    CHECK(first_ended.error() == errc::canceled);
    co_await p.a.send(std::span(memory).first(17));
    const std::size_t got = co_await second;
    CHECK(got == 17);

    // Get and put under way. Once canceled their memory is ours.
    for (const bool read : {true, false}) {
        local_stop_source quit;
        auto under_way =
            begin(read ? p.a.rdma_get(open.remote(), here) : p.a.rdma_put(here, open.remote()), quit);
        const bool pending = !under_way.done();
        quit.request_stop();
        const auto ended = co_await under_way;
        CHECK(ended.error() == (pending ? errc::canceled : errc::ok));
        std::fill(here.begin(), here.end(), std::byte{0x77});
        co_await turns(50);
        CHECK(all_are(std::byte{0x77}, here));
    }
    co_await still_talks(p.a, p.b);

    // A long message at different stages of its arrival: it comes whole, or its rest is thrown away.
    const std::size_t bytes = long_message(p.a);
    const auto data = pattern(bytes, 8);
    const std::uint64_t mark = 4711;
    for (int stage = 0; stage < 12; ++stage) {
        local_stop_source quit;
        auto receiving = begin(p.b.recv(std::span(here).first(bytes)), quit);
        auto sending = start(p.a.send(data));
        auto marking = start(p.a.send(bytes_of(mark)));
        co_await turns(stage);
        quit.request_stop();
        const auto ended = co_await receiving;
        CHECK((ended ? *ended == bytes : ended.error() == errc::canceled));
        std::fill(here.begin(), here.end(), std::byte{0});
        std::vector<std::byte> into(bytes);
        for (std::size_t next = 0; next != sizeof mark;) {
            next = co_await p.b.recv(into);
            CHECK((next == sizeof mark || (next == bytes && into == data)));
        }
        CHECK(all_are(std::byte{0}, here));
        co_await sending;
        co_await marking;
    }
    co_await still_talks(p.a, p.b);
}
TEMPLATE_LIST_TEST_CASE("bare operations are canceled", "", every_transport) {
    conform<TestType>(canceled<typename TestType::transport_type>);
}

template <class T>
task<> closing(world<T>& w) {
    auto p = co_await bare(w);
    std::vector<std::byte> memory(std::size_t{3} << 20);
    const region open = w.there().register_memory(memory, access_rights::all);
    std::vector<std::byte> here(memory.size());
    const auto data = pattern(std::min(p.a.capabilities().max_message, std::size_t{64} << 10), 4);
    std::deque<started<send_of<bare_link<T>>>> sends;
    co_await fill(p.a, data, sends);
    auto receiving_here = start(as_result(p.a.recv(memory)));
    auto getting = start(as_result(p.a.rdma_get(open.remote(), here)));
    const bool got_at_once = getting.done();
    p.a.close();
    CHECK(p.a.reason() == errc::closed);
    for (auto& s : sends) {
        const bool last = &s == &sends.back();
        const auto ended = co_await as_result(s);
        if (!last) continue;
        if constexpr (!std::is_same_v<T, sim>)  // may have had room
            CHECK(ended.error() == (std::is_same_v<T, loopback> ? errc::ok : errc::closed));
    }
    const auto ended_here = co_await receiving_here;
    CHECK(ended_here.error() == errc::closed);
    const auto got = co_await getting;
    CHECK(got.error() == (got_at_once ? errc::ok : errc::closed));
    const auto late_send = co_await as_result(p.a.send(data));
    CHECK(late_send.error() == errc::closed);
    const auto late_recv = co_await as_result(p.a.recv(here));
    CHECK(late_recv.error() == errc::closed);
    const auto late_put = co_await as_result(p.a.rdma_put(here, open.remote()));
    CHECK(late_put.error() == errc::closed);
    p.a.close();

    // What had come is received first.
    std::vector<std::byte> into(data.size());
    std::error_code last;
    std::size_t received = 0;
    while (!last) {
        const auto next = co_await as_result(p.b.recv(into));
        last = next.error();
        if (next) ++received;
    }
    CHECK(received <= sends.size());
    CHECK(last == errc::peer_lost);
    CHECK(p.b.reason() == errc::peer_lost);
    const auto to_nobody = co_await as_result(p.b.send(data));
    CHECK(to_nobody.error() == errc::peer_lost);
}
TEMPLATE_LIST_TEST_CASE("closing a bare link ends what is pending here and there", "", every_transport) {
    conform<TestType>(closing<typename TestType::transport_type>);
}

template <class T>
task<> gone(world<T>& w) {
    std::optional<bare_pair<T>> p;
    p.emplace(co_await bare(w));
    std::vector<std::byte> here(12);
    std::vector<std::byte> there(10);
    auto receiving = start(as_result(p->a.recv(here)));
    auto at_the_peer = start(as_result(p->b.recv(there)));
    bare_link<T> kept = std::move(p->b);
    p.reset();
    const auto ended = co_await receiving;
    CHECK(ended.error() == errc::closed);
    const auto ended_there = co_await at_the_peer;
    CHECK(ended_there.error() == errc::peer_lost);
}
TEMPLATE_LIST_TEST_CASE("a bare link that goes ends what is pending, one that moves does not", "",
                        every_transport) {
    conform<TestType>(gone<typename TestType::transport_type>);
}

// ---- a message without a receive, and gets and puts

#if RDMACORO_WITH_TCP
template <bool peer_ends>
task<> held_up(world<tcp>& w) {
    auto p = co_await bare(w);
    const auto memory = pattern(100, 5);
    std::vector<std::byte> memory_a = memory;
    std::vector<std::byte> memory_b = memory;
    const region at_a = w.here().register_memory(memory_a, access_rights::all);
    const region at_b = w.there().register_memory(memory_b, access_rights::all);
    const auto text = pattern(8, 1);
    co_await p.a.send(text);
    std::vector<std::byte> into(100);
    auto there = start(as_result(p.a.rdma_get(at_b.remote(), into)));
    auto back = start(as_result(p.b.rdma_put(text, at_a.remote().part(0, 8))));
    co_await turns(1000);
    CHECK_FALSE(there.done());
    CHECK_FALSE(back.done());
    if (peer_ends) {
        p.a.close();
        co_await turns(1000);
        CHECK_FALSE(back.done());
        CHECK_FALSE(p.b.reason());
    }
    std::vector<std::byte> received(8);
    const std::size_t got = co_await p.b.recv(received);
    CHECK(got == 8);
    CHECK(received == text);
    const auto got_there = co_await there;
    const auto put_back = co_await back;
    if (peer_ends) {
        CHECK(got_there.error() == errc::closed);
        while (!p.b.reason()) co_await yield();
        CHECK(p.b.reason() == errc::peer_lost);
        // The answer to the put may have come before the end.
        CHECK((put_back || put_back.error() == errc::peer_lost));
    } else {
        CHECK(got_there);
        CHECK(into == memory);
        CHECK(put_back);
        CHECK(std::equal(text.begin(), text.end(), memory_a.begin()));
    }
}
TEST_CASE("over tcp a bare message without a receive holds up gets and puts of its link and the peer's end") {
    conform<tcp_as_it_comes>(held_up<false>);
    conform<tcp_as_it_comes>(held_up<true>);
}
#endif

TEST_CASE("over shm gets and puts of a bare link go on while a message waits for its receive") {
    conform<shm_as_it_comes>([](world<shm>& w) -> task<> {
        auto p = co_await bare(w);
        std::vector<std::byte> memory = pattern(100, 5);
        const region at_a = w.here().register_memory(memory, access_rights::all);
        const region at_b = w.there().register_memory(memory, access_rights::all);
        const auto text = pattern(8, 1);
        co_await p.a.send(text);
        std::vector<std::byte> into(100);
        co_await p.a.rdma_get(at_b.remote(), into);
        CHECK(into == memory);
        co_await p.b.rdma_put(text, at_a.remote().part(0, 8));
        CHECK(is_pattern(std::span(memory).first(8), 1));
        const std::size_t got = co_await p.b.recv(into);
        CHECK(got == 8);
    });
}

// ---- what the other transports do only at times

TEST_CASE("a bare send that is under way when it is canceled counts as sent") {
    conform<in_memory>([](world<loopback>& w) -> task<> {
        auto p = co_await watched(w);
        p.to_b().defers = true;
        p.to_b().held = true;
        local_stop_source stop;
        std::vector<std::byte> data = pattern(100, 1);
        auto sending = begin(p.a.send(data), stop);
        co_await turns(3);
        CHECK_FALSE(sending.done());
        stop.request_stop();
        const auto ended = co_await sending;
        CHECK(ended);
        std::fill(data.begin(), data.end(), std::byte{0});
        // One that is not canceled ends with the link.
        auto other = start(as_result(p.a.send(data)));
        p.to_b().held = false;
        std::vector<std::byte> into(100);
        const std::size_t got = co_await p.b.recv(into);
        CHECK(got == 100);
        CHECK(is_pattern(into, 1));
        p.a.close();
        const auto other_ended = co_await other;
        CHECK(other_ended.error() == errc::closed);
    });
}

TEST_CASE("bare sends that found no room go out in order when there is some") {
    conform<in_memory>([](world<loopback>& w) -> task<> {
        auto p = co_await watched(w);
        p.to_b().room = 2;
        p.to_b().held = true;
        const auto data = pattern(8, 1);
        std::deque<started<send_of<bare_link<loopback>>>> sends;
        for (std::size_t n = 0; n < 6; ++n) sends.emplace_back(p.a.send(std::span(data).first(n)));
        CHECK(sends[1].done());
        CHECK_FALSE(sends[2].done());
        CHECK(p.to_b().retries == 1);  // those behind the first that waits are not tried
        p.to_b().held = false;
        std::vector<std::byte> into(8);
        for (std::size_t n = 0; n < sends.size(); ++n) {
            const std::size_t got = co_await p.b.recv(into);
            CHECK(got == n);
        }
        for (auto& s : sends) co_await s;
    });
}

TEST_CASE("an announced message goes straight into its bare receive, or is thrown away") {
    conform<in_memory>([](world<loopback>& w) -> task<> {
        auto p = co_await watched(w);
        p.to_b().announces_above = 100;
        const auto data = pattern(10000, 1);
        const std::uint64_t mark = 4711;
        std::uint64_t heard = 0;
        std::vector<std::byte> into(20000);
        auto whole = start(p.b.recv(into));
        co_await p.a.send(data);
        const std::size_t got = co_await whole;
        CHECK(got == data.size());
        CHECK(is_pattern(std::span(into).first(got), 1));

        // Pieces of 1000 bytes, one at each poll.
        std::vector<std::byte> partly(20000, std::byte{0x33});
        local_stop_source stop;
        auto canceled_receive = begin(p.b.recv(partly), stop);
        co_await p.a.send(data);
        co_await p.a.send(bytes_of(mark));
        co_await turns(5);
        CHECK_FALSE(canceled_receive.done());
        CHECK(partly[0] == data[0]);
        stop.request_stop();
        const auto ended = co_await canceled_receive;
        CHECK(ended.error() == errc::canceled);
        const std::vector<std::byte> then = partly;
        co_await p.b.recv(room_for(heard));
        CHECK(heard == mark);
        CHECK(partly == then);

        heard = 0;
        auto small = start(as_result(p.b.recv(std::span(into).first(9999))));
        co_await p.a.send(data);
        const auto cut = co_await small;
        CHECK(cut.error() == errc::truncated);
        CHECK(cut.info() == data.size());
        co_await p.a.send(bytes_of(mark));
        co_await p.b.recv(room_for(heard));
        CHECK(heard == mark);

        // The link ends in mid-message.
        auto unlucky = start(as_result(p.b.recv(into)));
        co_await p.a.send(data);
        co_await turns(3);
        CHECK_FALSE(unlucky.done());
        p.b.close();
        const auto lost = co_await unlucky;
        CHECK(lost.error() == errc::closed);
    });
}

TEST_CASE("bare get and put that are under way are canceled, and end with their link") {
    conform<in_memory>([](world<loopback>& w) -> task<> {
        auto p = co_await watched(w);
        p.to_b().defers_one_sided = true;
        p.to_b().held = true;
        std::vector<std::byte> memory(100);
        const region open = w.there().register_memory(memory, access_rights::all);
        const auto data = pattern(100, 1);
        std::vector<std::byte> here(100);
        local_stop_source stop;
        auto getting = begin(p.a.rdma_get(open.remote(), here), stop);
        auto putting = begin(p.a.rdma_put(data, open.remote()), stop);
        auto other = start(p.a.rdma_put(data, open.remote().part(0, 100)));
        co_await turns(3);
        CHECK_FALSE(getting.done());
        CHECK_FALSE(putting.done());
        stop.request_stop();
        const auto got = co_await getting;
        CHECK(got.error() == errc::canceled);
        const auto put = co_await putting;
        CHECK(put.error() == errc::canceled);
        p.to_b().held = false;
        co_await other;
        CHECK(memory == data);
        p.to_b().held = true;
        auto last = start(as_result(p.a.rdma_get(open.remote(), here)));
        p.a.close();
        const auto ended = co_await last;
        CHECK(ended.error() == errc::closed);
    });
}

}  // namespace test_transport_bare_link
