#include <rdmacoro/protocol/provider_matched.hpp>

#include <rdmacoro/coro/coro.hpp>
#include <rdmacoro/messaging/messaging.hpp>

#include "support/bytes.hpp"
#include "support/catch.hpp"
#include "support/described_stages.hpp"
#include "support/matching_loopback.hpp"
#include "support/pattern.hpp"
#include "support/run.hpp"

#include <algorithm>
#include <cstring>
#include <ctime>
#include <deque>
#include <functional>
#include <limits>
#include <optional>
#include <random>
#include <string>

namespace test_protocol_provider_matched {

using namespace rdmacoro;
using namespace rdmacoro::test;

namespace {

using list = protocols<provider_matched>;
using peer_type = endpoint<matching_loopback, list>;
using connection_type = peer_type::connection_type;
using sending = started<send_operation<connection_type>>;
using receiving = started<receive_operation<connection_type>>;

constexpr capabilities any_link{};

}  // namespace

static_assert(protocol_policy<provider_matched>);
static_assert(list::delegates && !protocols<eager<>, segmented<>>::delegates);
static_assert(list::choose({0, false}, any_link) == 0);
static_assert(list::choose({static_cast<std::size_t>(-1), true}, any_link) == 0);
static_assert(list::fingerprint != protocols<segmented<>>::fingerprint);
static_assert(list::fingerprint != protocols<eager<>>::fingerprint);
static_assert(connection_type::delegates && !detail::connection<loopback, protocols<eager<>>>::delegates);
// Words are part of the protocol.
static_assert(list::first_kind<provider_matched>() == 8 && provider_matched::kinds == 4);
static_assert(static_cast<int>(detail::matched_word::matched) == 0);
static_assert(static_cast<int>(detail::matched_word::withdraw) == 1);
static_assert(static_cast<int>(detail::matched_word::withdrawn) == 2);
static_assert(static_cast<int>(detail::matched_word::settled) == 3);
// Both sides reckon alike what a message costs: as if it were kept with its claim, as far as it may come unasked.
static_assert(detail::matched_cost(8, 65536) == detail::message_cost(8 + 128));
static_assert(detail::matched_cost(std::size_t{1} << 40, 65536) ==
              detail::message_cost((std::size_t{1} << 20) + 128));

namespace {

/// Two ends, `a` connected and `b` accepted.
struct ends {
    loopback_domain domain;
    peer_type a;
    peer_type b;

    explicit ends(scheduler& on) : domain(on) {}
    /// Messages from `a` to `b`, and what they are received by.
    tagged_lane& lane() { return a.connection().link().out(); }
    matching_traits& traits() { return a.connection().link().tagged().traits; }
    metrics sent() const { return a.counts(); }
    metrics got() const { return b.counts(); }
};

void with_ends(const std::function<task<>(ends&)>& body, const mailbox_options& options = {}) {
    tagged_wire::of_new_ones() = nullptr;
    virtual_time world;
    world.run([](scheduler& on, const std::function<task<>(ends&)>& run, mailbox_options o) -> task<> {
        ends e(on);
        auto listening = co_await listen<matching_loopback, list>(e.domain, "matched", o);
        auto accepting = start(listening.accept());
        e.a = co_await connect<matching_loopback, list>(e.domain, "matched", o);
        e.b = co_await accepting;
        co_await run(e);
    }(world.on, body, options));
}

task<> turns(int count) {
    for (int n = 0; n < count; ++n) co_await yield();
}

mailbox_options little() {
    mailbox_options o;
    o.unexpected_bytes = 1;
    return o;
}

/// Says something that an engine would not say.
void say(peer_type& as, detail::matched_word word, tag_type note, std::span<const std::byte> payload = {}) {
    const auto kind = static_cast<std::uint8_t>(detail::first_policy_kind + static_cast<unsigned>(word));
    const detail::wire_header h{kind, 0, 0, note};
    CHECK(as.connection().link().post_copied(h.store(), const_buffers(payload)) == post_result::done);
}
void say(peer_type& as, detail::control_kind kind, tag_type count) {
    const detail::wire_header h{static_cast<std::uint8_t>(kind), 0, 0, count};
    CHECK(as.connection().link().post_copied(h.store(), {}) == post_result::done);
}

void nothing_left(ends& e) {
    for (peer_type* end : {&e.a, &e.b}) {
        detail::mailbox_base& box = end->connection().mailbox();
        CHECK(box.matching().posted() == 0);
        CHECK(box.matching().unexpected() == 0);
        CHECK(box.store().live() == 0);
        CHECK_FALSE(end->connection().has_receives());
    }
    CHECK(e.lane().receives.empty());
    CHECK(e.lane().transfers.empty());
    CHECK(std::all_of(e.lane().claimed.begin(), e.lane().claimed.end(), [](auto* m) { return !m; }));
}

}  // namespace

// ---- what is described

TEST_CASE("a short send that the link has not finished is described, and leaves nothing when it ends or is "
          "stopped") {
    with_ends([](ends& e) -> task<> {
        e.lane().defers = true;
        scheduler& here = *scheduler::current();
        const auto sends = [&here] {
            std::vector<pending_operation> found;
            for (const pending_operation& one : here.describe().operations()) {
                if (one.what == "send") found.push_back(one);
            }
            return found;
        };
        const std::uint64_t number = 5;
        std::uint64_t heard = 0;
        for (const bool stopped : {false, true}) {
            CAPTURE(stopped);
            e.lane().held = true;
            local_stop_source stop;
            auto first = start(as_result(with_stop(e.a.send(bytes_of(number), 1), stop.get_token())));
            auto second = start(e.a.send(bytes_of(number), 1));
            CHECK_FALSE(first.done());
            REQUIRE(sends().size() == 2);
            CHECK(sends()[0].stage == "handed to the network");
            CHECK(sends()[0].next == next_actor::device);
            CHECK(sends()[0].bytes == 8);
            if (stopped) {
                stop.request_stop();
                CHECK(sends().size() == 1);
                co_await turns(2);
                CHECK(first.done());
            }
            e.lane().held = false;
            co_await e.b.recv(room_for(heard), 1);
            co_await e.b.recv(room_for(heard), 1);
            const auto ended = co_await first;
            CHECK(ended.has_value());
            co_await second;
            CHECK(sends().empty());
        }
        nothing_left(e);
    });
}

TEST_CASE("a send that has met its receive is described until the link is done with its memory") {
    with_ends([](ends& e) -> task<> {
        e.lane().defers = e.lane().keeps = true;
        std::uint64_t number = 5;
        auto sending = start(e.a.ssend(bytes_of(number), 1));
        check_stage("ssend", "posted, no receive has met it", next_actor::peer_receive);
        std::uint64_t heard = 0;
        co_await e.b.recv(room_for(heard), 1);
        co_await turns(3);
        CHECK_FALSE(sending.done());
        check_stage("ssend", "met, the link is not done with it", next_actor::device);
        e.lane().keeps = false;
        co_await sending;
        nothing_left(e);
    });
}

TEST_CASE("a receive that has met a claimed message is described until that is in its memory") {
    with_ends([](ends& e) -> task<> {
        auto probing = start(e.b.probe(777));  // so that messages are claimed
        const auto data = pattern(100, 1);
        std::vector<std::byte> into(100);
        for (const bool stored : {false, true}) {
            CAPTURE(stored);
            e.lane().posts = 0;  // the link fetches nothing
            std::optional<receiving> met;
            if (!stored) met.emplace(e.b.recv(into, 1));
            co_await e.a.send(data, 1);
            co_await turns(5);
            if (stored) met.emplace(e.b.recv(into, 1));
            check_stage("recv", "met, no room to ask for its message", next_actor::device);
            e.lane().posts = tagged_lane::unlimited;
            co_await *met;
            CHECK(same_bytes(into, data));
        }
        e.lane().answers_late = true;
        detail::message_store& store = e.b.connection().mailbox().store();
        co_await e.a.send(data, 1);
        while (store.live() == 0) co_await yield();
        receiving last(e.b.recv(into, 1));
        check_stage("recv", "its message is being fetched", next_actor::device);
        co_await last;
        co_await e.a.send({}, 777);
        co_await probing;
        co_await e.b.recv({}, 777);
        nothing_left(e);
    });
}

TEST_CASE("a receive that is canceled is described as long as the link does not give it back") {
    with_ends([](ends& e) -> task<> {
        e.lane().withdraws_late = true;
        std::byte into[8];
        local_stop_source stop;
        auto waiting = start(as_result(with_stop(e.b.recv(into, 1), stop.get_token())));
        check_stage("recv", "posted with the link, no message has met it", next_actor::peer_send);
        stop.request_stop();
        check_stage("recv", "canceled, the link is not done with it", next_actor::device);
        const auto ended = co_await waiting;
        CHECK(ended.error() == errc::canceled);
        nothing_left(e);
    });
}

// ---- matching in the provider or here

TEST_CASE("the list explains itself: every message is the transport's") {
    const std::string table = explain<matching_loopback, list>();
    CHECK_THAT(table, contains("protocols: provider_matched"));
    CHECK_THAT(table, contains("matched and carried by the transport"));
    const auto ranges = protocol_ranges<list>(any_link);
    REQUIRE(ranges.size() == 2);
    CHECK(ranges[0].last == static_cast<std::size_t>(-1));
    CHECK(ranges[1].synchronous);
}

TEST_CASE("a receive is met by the link: nothing is claimed, kept or copied above it") {
    with_ends([](ends& e) -> task<> {
        for (const std::size_t bytes : {std::size_t{0}, std::size_t{8}, std::size_t{300'000}}) {
            const auto data = pattern(bytes, 1);
            std::vector<std::byte> into(bytes);
            receiving before(e.b.recv(into, 7));
            CHECK(e.b.connection().has_receives());
            CHECK(e.b.connection().mailbox().matching().posted() == 0);
            co_await e.a.send(data, 7);
            const received got = co_await before;
            CHECK(got.bytes == bytes);
            CHECK(same_bytes(into, data));
            // And the other way round.
            sending early(e.a.send(data, 8));
            co_await turns(2);
            co_await e.b.recv(into, 8);
            co_await early;
        }
        CHECK(e.lane().met == 6);
        CHECK(e.lane().claims == 0);
        CHECK(e.got().unexpected == 0);
        CHECK(e.got().payload_copies == 0);
        CHECK(e.sent().payload_copies == 0);
        CHECK(e.sent().provider_matched_sent == 6);
        CHECK(e.sent().messages_sent == 6);
        CHECK(e.got().messages_received == 6);
        nothing_left(e);
    });
}

TEST_CASE("while a probe waits receives go through the mailbox, and to the link again afterwards") {
    with_ends([](ends& e) -> task<> {
        std::uint64_t value = 0;
        const auto into = std::as_writable_bytes(std::span(&value, 1));
        const auto from = std::as_bytes(std::span(&value, 1));
        auto probing = start(e.b.probe(99));
        receiving through(e.b.recv(into, 1));
        CHECK_FALSE(e.b.connection().has_receives());
        co_await e.a.send(from, 1);
        co_await through;
        CHECK(e.lane().claims == 1);
        CHECK(e.lane().met == 0);
        co_await e.a.send(from, 99);
        const received seen = co_await probing;
        CHECK(seen.bytes == 8);
        co_await e.b.recv(into, 99);
        receiving again(e.b.recv(into, 1));
        CHECK(e.b.connection().has_receives());
        co_await e.a.send(from, 1);
        co_await again;
        CHECK(e.lane().claims == 2);
        CHECK(e.lane().met == 1);
        nothing_left(e);
    });
}

TEST_CASE("a claim that is given back late keeps receives with the mailbox so long") {
    with_ends([](ends& e) -> task<> {
        e.lane().withdraws_late = true;
        std::uint64_t value = 0;
        const auto into = std::as_writable_bytes(std::span(&value, 1));
        local_stop_source stop;
        auto probing = start(as_result(with_stop(e.b.probe(99), stop.get_token())));
        co_await turns(1);
        stop.request_stop();
        static_cast<void>(co_await probing);
        receiving first(e.b.recv(into, 1));
        CHECK_FALSE(e.b.connection().has_receives());
        for (const std::uint64_t n : {1u, 2u}) {
            co_await e.a.send(std::as_bytes(std::span(&n, 1)), 1);
        }
        co_await first;
        CHECK(value == 1);
        co_await e.b.recv(into, 1);
        CHECK(value == 2);
        nothing_left(e);
    });
}

TEST_CASE(
    "a long message that is claimed stays with its sender until somebody wants it; a short one is fetched") {
    with_ends([](ends& e) -> task<> {
        const auto data = pattern(400'000, 1);
        sending large(e.a.send(data, 1));
        sending little_one(e.a.send(std::span(data).first(100), 2));
        co_await e.b.probe(1);
        co_await e.b.probe(2);
        co_await turns(5);
        CHECK_FALSE(large.done());
        CHECK(e.b.connection().mailbox().store().live() == 2);
        CHECK(e.b.connection().mailbox().store().footprint() < data.size());
        CHECK(e.got().unexpected == 2);
        std::vector<std::byte> into(data.size());
        co_await e.b.recv(into, 1);
        CHECK(same_bytes(into, data));
        co_await large;
        co_await little_one;
        // The short one is here whatever becomes of its sender.
        e.a.abort();
        co_await turns(3);
        const received got = co_await e.b.recv(into, 2);
        CHECK(got.bytes == 100);
        CHECK(is_pattern(std::span(into).first(100), 1));
        nothing_left(e);
    });
}

TEST_CASE(
    "a claimed message that is being fetched ends with the receive that it has met, and goes with it if "
    "that is canceled: a new receive takes the next message") {
    with_ends([](ends& e) -> task<> {
        detail::message_store& store = e.b.connection().mailbox().store();
        auto probing = start(e.b.probe(777));  // so that messages are claimed
        co_await turns(2);
        for (const bool canceled : {false, true}) {
            CAPTURE(canceled);
            e.lane().posts = 0;  // the link fetches nothing
            const auto lost = pattern(100, 1);
            const auto next = pattern(100, 2);
            co_await e.a.send(lost, 1);
            co_await e.a.send(next, 1);
            co_await turns(5);
            CHECK(store.live() == 2);
            std::vector<std::byte> into(100);
            std::vector<std::byte> into_next(100);
            local_stop_source stop;
            auto first = start(as_result(with_stop(e.b.recv(into, 1), stop.get_token())));
            if (canceled) {
                stop.request_stop();
                const auto ended = co_await first;
                CHECK(ended.error() == errc::canceled);
            }
            receiving second(e.b.recv(into_next, 1));
            co_await turns(5);
            CHECK_FALSE(second.done());
            CHECK(store.live() == 2);  // the link may be writing to both
            e.lane().posts = tagged_lane::unlimited;
            co_await second;
            CHECK(into_next == next);
            if (!canceled) {
                const auto ended = co_await first;
                REQUIRE(ended);
                CHECK(into == lost);
            }
            co_await turns(2);
            CHECK(store.live() == 0);
        }
        co_await e.a.send({}, 777);
        co_await probing;
        co_await e.b.recv({}, 777);
        nothing_left(e);
    });
}

TEST_CASE("memory in more pieces than the link takes is staged, on either side") {
    with_ends([](ends& e) -> task<> {
        e.traits().pieces = 2;
        std::vector<std::byte> from = pattern(90'000, 1);
        std::vector<std::byte> into(90'000);
        const auto rows = [](std::vector<std::byte>& all) { return strided(all.data(), 100, 300, 300); };
        for (const std::size_t bytes : {std::size_t{30'000}, std::size_t{10}}) {
            receiving whole(e.b.recv(std::span(into).first(bytes), 1));
            if (bytes == 10) {
                co_await e.a.send(gather(std::span(from).first(3), std::span(from).subspan(3, 3),
                                         std::span(from).subspan(6, 4)),
                                  1);
            } else {
                co_await e.a.send(rows(from), 1);
            }
            const received got = co_await whole;
            CHECK(got.bytes == bytes);
        }
        CHECK(e.sent().bytes_copied == 30'010);
        CHECK(e.got().bytes_copied == 0);
        std::fill(into.begin(), into.end(), std::byte{0});
        receiving scattered(e.b.recv(rows(into), 1));
        co_await e.a.send(std::span(from).first(30'000), 1);
        co_await scattered;
        std::size_t wrong = 0;
        for (std::size_t i = 0; i < into.size(); ++i) {
            const std::size_t row = i / 300;
            const std::byte expected = i % 300 < 100 ? from[row * 100 + i % 300] : std::byte{0};
            if (into[i] != expected) ++wrong;
        }
        CHECK(wrong == 0);
        CHECK(e.got().bytes_copied == 30'000);
        nothing_left(e);
    });
}

TEST_CASE("a send that has no memory to be staged gives its credit back") {
    if (!counts_allocations) SKIP_TEST("no allocation can be made to fail here");
    with_ends(
        [](ends& e) -> task<> {
            e.traits().pieces = 2;
            const std::vector<std::byte> from = pattern(70'000, 1);
            const auto pieces =
                gather(std::span(from).first(3), std::span(from).subspan(3, 3), std::span(from).subspan(6));
            const auto before = e.a.connection().credits().available();
            std::size_t failed = 0;
            for (int n = 0; n < 4; ++n) {
                const failing_allocations none(70'000, 200'000);
                const auto sent = co_await as_result(e.a.send(pieces, 1));
                failed += sent.error() == errc::no_resources ? 1 : 0;
            }
            CHECK(failed == 4);
            CHECK(e.a.connection().credits().available() == before);
            std::vector<std::byte> into(70'000);
            receiving whole(e.b.recv(into, 1));
            co_await e.a.send(pieces, 1);
            const received got = co_await whole;
            CHECK(got.bytes == 70'000);
            CHECK(into == from);
        },
        little());
}

TEST_CASE("what the link can't carry is refused: a tag of too many bits, a message that is too long") {
    with_ends([](ends& e) -> task<> {
        e.traits().tag_bits = 16;
        e.traits().longest = 1000;
        std::byte one{};
        const auto wide = co_await as_result(e.a.send(std::span(&one, 1), 0x10000));
        CHECK(wide.error() == errc::invalid_argument);
        const auto wanted = co_await as_result(e.b.recv(std::span(&one, 1), 0x10000));
        CHECK(wanted.error() == errc::invalid_argument);
        const std::vector<std::byte> data(1001);
        const auto large = co_await as_result(e.a.send(data));
        CHECK(large.error() == errc::message_too_long);
        // All that the link compares is compared.
        co_await e.a.send(std::span(&one, 1), 0xffff);
        const received exact = co_await e.b.recv(std::span(&one, 1), 0xffff);
        CHECK(exact.tag == 0xffff);
        co_await e.a.send(std::span(&one, 1), 0x1234);
        const received masked = co_await e.b.recv(std::span(&one, 1), tag_match(0x34, ~tag_type{0xff00}));
        CHECK(masked.tag == 0x1234);
        nothing_left(e);
    });
}

TEST_CASE("an endpoint whose receive is with its link is not attached to a mailbox") {
    with_ends([](ends& e) -> task<> {
        std::byte into[8];
        local_stop_source stop;
        auto waiting = start(as_result(with_stop(e.b.recv(into), stop.get_token())));
        mailbox<matching_loopback, list> box;
        std::error_code refused;
        try {
            box.attach(std::move(e.b));
        } catch (const error& why) {
            refused = why.code();
        }
        CHECK(refused == errc::invalid_argument);
        co_await turns(1);
        stop.request_stop();
        static_cast<void>(co_await waiting);
        nothing_left(e);
    });
}

// ---- the receiver's word

TEST_CASE("a matched word that finds no room is said when there is some, and the receive ends then") {
    with_ends([](ends& e) -> task<> {
        loopback_lane& words = e.b.connection().link().under().out();
        std::uint64_t values[3] = {};
        std::deque<sending> sends;
        std::deque<receiving> receives;
        for (auto& v : values) receives.emplace_back(e.b.recv(std::as_writable_bytes(std::span(&v, 1)), 1));
        words.room = 0;
        const std::uint64_t numbers[] = {1, 2, 3};
        for (const auto& n : numbers) sends.emplace_back(e.a.ssend(std::as_bytes(std::span(&n, 1)), 1));
        co_await turns(20);
        for (auto& s : sends) CHECK_FALSE(s.done());
        for (auto& r : receives) CHECK_FALSE(r.done());
        check_stage("recv", "is there, no room to say so", next_actor::device);
        words.room = loopback_lane::unlimited;
        for (auto& s : sends) co_await s;
        for (auto& r : receives) co_await r;
        CHECK(values[0] == 1);
        CHECK(values[2] == 3);
        nothing_left(e);
    });
}

TEST_CASE("more synchronous sends are canceled at once than may be asked back at a time: all end, none is "
          "received") {
    with_ends([](ends& e) -> task<> {
        constexpr std::size_t count = 3 * detail::most_withdrawals;
        std::byte one{1};
        for (const bool claimed : {false, true}) {
            local_stop_source stop;
            std::deque<started<decltype(as_result(with_stop(e.a.ssend({}), stop.get_token())))>> sends;
            for (std::size_t n = 0; n < count; ++n) {
                sends.emplace_back(as_result(with_stop(e.a.ssend(std::span(&one, 1), n), stop.get_token())));
            }
            if (claimed) co_await e.b.probe(count - 1);
            loopback_lane& words = e.a.connection().link().under().out();
            if (claimed) words.room = 0;
            stop.request_stop();
            if (claimed) {
                check_stage("ssend", "canceled, no room to say so", next_actor::device);
                words.room = loopback_lane::unlimited;
            } else {
                check_stage("ssend", "canceled, the peer has not answered", next_actor::peer_poll);
                check_stage("ssend", "canceled, others are asked back first", next_actor::peer_poll);
            }
            for (auto& s : sends) {
                const auto ended = co_await s;
                CHECK(ended.error() == errc::canceled);
            }
            co_await turns(5);
            nothing_left(e);
        }
        CHECK(e.lane().discarded == 2 * count);
        // Their places are used again.
        auto last = start(e.a.ssend(std::span(&one, 1), 5));
        co_await e.b.recv(std::span(&one, 1), 5);
        co_await last;
        nothing_left(e);
    });
}

namespace {

/// The least processor time, of three, to end so many synchronous sends that are canceled at once.
std::clock_t time_to_cancel(std::size_t count) {
    mailbox_options options;
    options.unexpected_bytes = 16 << 20;
    auto least = std::numeric_limits<std::clock_t>::max();
    for (int time = 0; time < 3; ++time) {
        with_ends(
            [count, &least](ends& e) -> task<> {
                std::byte one{1};
                local_stop_source stop;
                std::deque<started<decltype(as_result(with_stop(e.a.ssend({}), stop.get_token())))>> sends;
                for (std::size_t n = 0; n < count; ++n)
                    sends.emplace_back(
                        as_result(with_stop(e.a.ssend(std::span(&one, 1), n), stop.get_token())));
                co_await e.b.probe(count - 1);  // all have come, and none waits for credit
                CHECK(e.sent().credit_waits == 0);
                const std::clock_t begun = std::clock();
                stop.request_stop();
                std::size_t canceled = 0;
                for (auto& s : sends) {
                    const auto ended = co_await s;
                    if (ended.error() == errc::canceled) ++canceled;
                }
                least = std::min(least, std::clock() - begun);
                CHECK(canceled == count);
                co_await turns(5);
                nothing_left(e);
            },
            options);
    }
    return least;
}

}  // namespace

TEST_CASE(
    "thousands of synchronous sends that are canceled at once end in a time that grows as their number") {
    const auto of_few = time_to_cancel(1000);
    const auto of_many = time_to_cancel(8000);
    CAPTURE(of_few, of_many);
    CHECK(of_many < 24 * of_few);  // some 64 times where each looks at all
}

TEST_CASE("a send that is asked back when it was matched already ends with its value") {
    with_ends([](ends& e) -> task<> {
        std::byte one{1};
        for (int stage = 0; stage < 12; ++stage) {
            CAPTURE(stage);
            local_stop_source stop;
            receiving at_b(e.b.recv(std::span(&one, 1), 1));
            auto at_a = start(as_result(with_stop(e.a.ssend(std::span(&one, 1), 1), stop.get_token())));
            co_await turns(stage);
            stop.request_stop();
            const auto ended = co_await at_a;
            CHECK(ended.has_value());
            co_await at_b;
            co_await turns(6);
            nothing_left(e);
        }
    });
}

// ---- credit

TEST_CASE("credit comes back from the link's receives and from the mailbox's, for short and for long") {
    with_ends(
        [](ends& e) -> task<> {
            const auto data = pattern(200'000, 1);
            std::vector<std::byte> into(data.size());
            for (int n = 0; n < 100; ++n) {
                const std::size_t bytes = n % 3 == 0 ? 200'000 : n % 3 == 1 ? 4000 : 10;
                if (n % 4 == 0) {
                    sending s(e.a.send(std::span(data).first(bytes), 1));
                    const message m = co_await e.b.recv_lent(1);
                    CHECK(m.size() == bytes);
                    co_await s;
                } else if (n % 4 == 1) {
                    sending s(e.a.send(std::span(data).first(bytes), 1));
                    co_await e.b.probe(1);
                    const auto cut = co_await as_result(e.b.recv(std::span(into).first(9), 1));
                    CHECK(cut.error() == errc::truncated);
                    CHECK(cut.info() == bytes);
                    co_await s;
                } else {
                    sending s(e.a.send(std::span(data).first(bytes), 1));
                    co_await e.b.recv(into, 1);
                    co_await s;
                }
            }
            co_await turns(5);
            const detail::credit_account& from = e.a.connection().credits();
            const detail::credit_account& at = e.b.connection().credits();
            CHECK(from.peer_budget() - from.available() == at.payable());
            nothing_left(e);
        },
        little());
}

// ---- the end

TEST_CASE("a goodbye that overtakes the messages before it waits for them") {
    with_ends([](ends& e) -> task<> {
        e.lane().held = true;
        const auto data = pattern(3000, 1);
        for (tag_type tag = 0; tag < 5; ++tag) co_await e.a.send(data, tag);
        auto closing = start(e.a.close());
        co_await turns(20);
        CHECK_FALSE(closing.done());
        CHECK(e.b.is_open());
        std::vector<std::byte> into(3000);
        receiving early(e.b.recv(into, 2));
        co_await turns(5);
        CHECK_FALSE(early.done());
        e.lane().held = false;
        co_await early;
        co_await closing;
        for (const tag_type tag : {4u, 0u, 1u, 3u}) {
            const received got = co_await e.b.recv(into, tag);
            CHECK(got.bytes == 3000);
        }
        const auto over = co_await as_result(e.b.recv(into));
        CHECK(over.error() == errc::closed);
        nothing_left(e);
    });
}

TEST_CASE("a goodbye waits until it is said that a request to withdraw is void") {
    with_ends([](ends& e) -> task<> {
        auto& words_to_b = e.a.connection().link().under().out();
        auto& words_to_a = e.b.connection().link().under().out();
        words_to_a.held = true;
        std::byte one{1};
        receiving at_b(e.b.recv(std::span(&one, 1), 1));
        local_stop_source stop;
        auto at_a = start(as_result(with_stop(e.a.ssend(std::span(&one, 1), 1), stop.get_token())));
        co_await at_b;
        stop.request_stop();  // the message has met its receive, which this side has not heard
        co_await turns(3);
        words_to_b.room = 0;
        words_to_a.held = false;
        const auto ended = co_await at_a;
        CHECK(ended.has_value());
        auto closing = start(e.a.close());
        co_await turns(3);
        words_to_b.held = true;
        words_to_b.room = loopback_lane::unlimited;
        co_await turns(3);
        REQUIRE(words_to_b.packets.size() == 2);
        const auto kind_of = [](const auto& packet) {
            return static_cast<int>(detail::wire_header::load(packet.header).kind);
        };
        CHECK(kind_of(words_to_b.packets.front()) ==
              detail::first_policy_kind + static_cast<int>(detail::matched_word::settled));
        CHECK(kind_of(words_to_b.packets.back()) == static_cast<int>(detail::control_kind::goodbye));
        words_to_b.held = false;
        co_await closing;
        CHECK_FALSE(e.b.is_open());
        nothing_left(e);
    });
}

TEST_CASE("receives that are with the link end closed when the peer has said goodbye") {
    for (const bool late : {false, true}) {
        static bool withdraws_late;
        withdraws_late = late;
        with_ends([](ends& e) -> task<> {
            e.lane().withdraws_late = withdraws_late;
            std::byte into[8];
            receiving exact(e.b.recv(into, 1));
            receiving any(e.b.recv(into));
            co_await e.a.close();
            const auto first = co_await as_result(exact);
            CHECK(first.error() == errc::closed);
            const auto second = co_await as_result(any);
            CHECK(second.error() == errc::closed);
            nothing_left(e);
        });
    }
}

// ---- a peer that breaks the rules

namespace {

task<> ends_with_violation(ends& e, void (*breaks)(ends&)) {
    std::byte into[8];
    receiving waiting(e.b.recv(into, 12345));
    breaks(e);
    const auto ended = co_await as_result(waiting);
    CHECK(ended.error() == errc::protocol_violation);
    CHECK_FALSE(e.b.is_open());
    co_await turns(3);
    nothing_left(e);
}

}  // namespace

TEST_CASE("a word on a message that was never sent ends the link") {
    using detail::matched_word;
    static void (*const all[])(ends&) = {
        [](ends& e) { say(e.a, matched_word::matched, 1); },
        [](ends& e) { say(e.a, matched_word::matched, 0); },
        [](ends& e) { say(e.a, matched_word::withdrawn, 0xffffffff); },
        [](ends& e) { say(e.a, matched_word::matched, std::uint64_t{1} << 32); },
        [](ends& e) { say(e.a, matched_word::withdraw, 0); },
        [](ends& e) {
            for (tag_type n = 0; n <= detail::most_withdrawals; ++n) say(e.a, matched_word::withdraw, n + 1);
        },
        [](ends& e) {
            const std::byte more[1] = {};
            say(e.a, matched_word::settled, 1, more);
        },
    };
    static std::size_t which;
    for (which = 0; which < std::size(all); ++which) {
        CAPTURE(which);
        with_ends([](ends& e) -> task<> { co_await ends_with_violation(e, all[which]); });
    }
}

TEST_CASE("an answer that was not asked for, to a message that was sent, ends the link") {
    with_ends([](ends& e) -> task<> {
        std::byte one{};
        sending s(e.b.ssend(std::span(&one, 1), 1));  // its note: the first slot of generation 0
        say(e.a, detail::matched_word::withdrawn, 1);
        const auto ended = co_await as_result(s);
        CHECK(ended.error() == errc::protocol_violation);
        CHECK_FALSE(e.b.is_open());
    });
}

TEST_CASE("a word that comes twice ends the link") {
    with_ends([](ends& e) -> task<> {
        std::byte one{};
        sending s(e.b.ssend(std::span(&one, 1), 1));
        say(e.a, detail::matched_word::matched, 1);
        say(e.a, detail::matched_word::matched, 1);
        const auto ended = co_await as_result(s);
        CHECK(ended.has_value());
        co_await turns(2);
        CHECK_FALSE(e.b.is_open());
    });
}

TEST_CASE("last words that count fewer messages than have come, or come too often, end the link") {
    with_ends([](ends& e) -> task<> {
        std::byte one{};
        co_await e.a.send(std::span(&one, 1), 1);
        co_await e.b.recv(std::span(&one, 1), 1);
        co_await ends_with_violation(e, [](ends& with) { say(with.a, detail::control_kind::goodbye, 0); });
    });
    with_ends([](ends& e) -> task<> {
        co_await ends_with_violation(e, [](ends& with) {
            for (int n = 0; n < 3; ++n) say(with.a, detail::control_kind::goodbye, 10);
        });
    });
}

TEST_CASE("a peer that sends more than it was granted ends the link, matched by the link or claimed") {
    for (const bool claimed : {false, true}) {
        static bool by_claim;
        by_claim = claimed;
        with_ends(
            [](ends& e) -> task<> {
                std::byte into[8];
                std::deque<receiving> receives;
                std::optional<started<probe_operation<connection_type>>> probing;
                if (by_claim) probing.emplace(e.b.probe(777));
                e.b.connection().link().under().out().room = 0;  // no credit comes back
                // As if the account had more than the peer granted.
                completion unused{};
                const std::vector<std::byte> data(4000);
                for (int n = 0; n < 100; ++n) {
                    if (!by_claim) receives.emplace_back(e.b.recv(into, 5));
                    CHECK(e.a.connection().link().post_tagged(5, 0, data, unused) == post_result::done);
                }
                co_await turns(20);
                CHECK_FALSE(e.b.is_open());
                CHECK(e.b.connection().reason() == errc::protocol_violation);
                for (auto& r : receives) static_cast<void>(co_await as_result(r));
                if (probing) static_cast<void>(co_await as_result(*probing));
                CHECK(e.b.connection().mailbox().store().footprint() < std::size_t{1} << 20);
            },
            little());
    }
}

TEST_CASE("stored messages take no more memory than their sender was charged for, however short they are") {
    for (const bool synchronous : {false, true}) {
        static bool answered;
        answered = synchronous;
        with_ends(
            [](ends& e) -> task<> {
                detail::mailbox_base& box = e.b.connection().mailbox();
                const auto charged = [&] {
                    const detail::credit_account& from = e.a.connection().credits();
                    return (from.peer_budget() - from.available()) * detail::credit_bytes;
                };
                auto probing = start(e.b.probe(777));  // so that messages are claimed
                const auto data = pattern(64, 1);
                std::deque<sending> sends;
                for (int n = 0; n < 200; ++n) {
                    sends.emplace_back(answered ? e.a.ssend(data, 1) : e.a.send(data, 1));
                    co_await turns(2);
                    CHECK(box.store().footprint() <= charged());
                }
                CHECK(box.matching().unexpected() == 200);
                CHECK(box.store().footprint() > 0);
                std::byte into[64];
                for (int n = 0; n < 200; ++n) co_await e.b.recv(into, 1);
                for (sending& s : sends) co_await s;
                co_await e.a.send(data, 777);
                co_await probing;
                co_await e.b.recv(into, 777);
            },
            little());
    }
}

TEST_CASE("a long message that is to be stored whole, and was paid for in part, ends the link") {
    with_ends(
        [](ends& e) -> task<> {
            auto probing = start(as_result(e.b.probe(777)));
            const std::size_t unasked = detail::unasked_bytes(e.a.connection().credits().peer_budget());
            completion sent[2] = {};
            for (completion& c : sent) c.done = [](completion&, std::error_code) noexcept {};
            const std::vector<std::byte> fits(unasked);
            const std::vector<std::byte> longer(unasked + 1);
            CHECK(e.a.connection().link().post_tagged(5, 0, fits, sent[0]) == post_result::posted);
            co_await turns(20);
            CHECK(e.b.is_open());
            CHECK(e.b.connection().mailbox().matching().unexpected() == 1);
            CHECK(e.a.connection().link().post_tagged(5, 0, longer, sent[1]) == post_result::posted);
            co_await turns(20);
            CHECK(e.b.connection().reason() == errc::protocol_violation);
            CHECK(e.b.connection().mailbox().store().live() <= 1);
            static_cast<void>(co_await probing);
        },
        little());
}

// ---- anything

namespace {

/// A link that has little room, or ends things late, or neither.
void any_link_at_all(ends& e, std::mt19937& random) {
    for (tagged_lane& lane : e.a.connection().link().tagged().lanes) {
        if (random() % 2 == 0) lane.room = 1 + random() % 4;
        if (random() % 2 == 0) lane.posts = 1 + random() % 4;
        lane.refuses_claims = random() % 2 == 0;
        lane.defers = random() % 2 == 0;
        lane.answers_late = random() % 2 == 0;
        lane.withdraws_late = random() % 2 == 0;
        lane.piece = 10'000 + random() % 100'000;
    }
    if (random() % 2 == 0) e.b.connection().link().under().out().room = 1;
    if (random() % 2 == 0) e.a.connection().link().under().out().room = 1;
}

/// One side of a random program: each receive is told in advance which message it meets.
struct plan {
    struct message_plan {
        std::size_t bytes;
        tag_type tag;
        bool synchronous;
    };
    struct receive_plan {
        tag_match wanted;
        int kind;  // memory, memory in pieces, lent
        std::size_t meets;
    };
    std::vector<message_plan> messages;
    std::vector<receive_plan> receives;
};

plan random_plan(std::mt19937& random, std::size_t count) {
    plan made;
    std::vector<bool> taken(count, false);
    const std::size_t sizes[] = {0, 8, 1000, 4096, 4097, 150'000};
    for (std::size_t n = 0; n < count; ++n) {
        made.messages.push_back({sizes[random() % std::size(sizes)], random() % 4, random() % 4 == 0});
    }
    for (std::size_t n = 0; n < count; ++n) {
        // The source of the next receive decides which tags fit.
        std::size_t first = 0;
        while (taken[first]) ++first;
        tag_match wanted = any_tag;
        if (random() % 2 == 0) wanted = tag_match(made.messages[first].tag);
        if (random() % 4 == 0) {
            std::size_t other = first;
            for (std::size_t i = first; i < count; ++i) {
                if (!taken[i] && random() % 3 == 0) other = i;
            }
            wanted = tag_match(made.messages[other].tag & 1, 1);
        }
        std::size_t meets = 0;
        while (taken[meets] || !wanted.accepts(made.messages[meets].tag)) ++meets;
        taken[meets] = true;
        made.receives.push_back({wanted, static_cast<int>(random() % 3), meets});
    }
    return made;
}

task<> sends_all(peer_type* from, const plan* what, std::uint32_t seed) {
    std::mt19937 random(seed);
    task_group group;
    for (std::size_t n = 0; n < what->messages.size(); ++n) {
        auto one = [](peer_type* by, plan::message_plan m, std::size_t number) -> task<> {
            const auto data = pattern(m.bytes, number);
            if (m.synchronous) {
                co_await by->ssend(data, m.tag);
            } else {
                co_await by->send(data, m.tag);
            }
        };
        group.spawn(one, from, what->messages[n], n);
        co_await turns(static_cast<int>(random() % 4));
    }
    co_await group.join();
}

task<> receives_all(peer_type* at, const plan* what, std::uint32_t seed) {
    std::mt19937 random(seed);
    task_group group;
    for (const plan::receive_plan& r : what->receives) {
        auto one = [](peer_type* by, plan::receive_plan wants, plan::message_plan m) -> task<> {
            std::size_t bytes = 0;
            bool good = false;
            if (wants.kind == 2) {
                const message got = co_await by->recv_lent(wants.wanted);
                bytes = got.size();
                good = is_pattern(got.bytes(), wants.meets);
            } else {
                std::vector<std::byte> into(150'000);
                received got{};
                if (wants.kind == 0) {
                    got = co_await by->recv(into, wants.wanted);
                } else {
                    got = co_await by->recv(strided(into.data(), 10'000, 10'000, 15), wants.wanted);
                }
                bytes = got.bytes;
                good = is_pattern(std::span(into).first(got.bytes), wants.meets);
            }
            CHECK(bytes == m.bytes);
            CHECK(good);
        };
        group.spawn(one, at, r, what->messages[r.meets]);
        co_await turns(static_cast<int>(random() % 4));
        if (random() % 8 == 0) {
            local_stop_source stop;
            auto looking = start(as_result(with_stop(at->probe(tag_match(random() % 4)), stop.get_token())));
            co_await turns(static_cast<int>(random() % 3));
            stop.request_stop();
            static_cast<void>(co_await looking);
        }
    }
    co_await group.join();
}

}  // namespace

TEST_CASE(
    "random programs of sends, receives of all kinds and probes meet as planned, whatever the link does") {
    static std::uint32_t seed;
    for (seed = 1; seed <= 300; ++seed) {
        CAPTURE(seed);
        with_ends(
            [](ends& e) -> task<> {
                std::mt19937 random(seed);
                any_link_at_all(e, random);
                const plan there = random_plan(random, 40);
                const plan back = random_plan(random, 40);
                task_group group;
                group.spawn(sends_all, &e.a, &there, seed);
                group.spawn(receives_all, &e.b, &there, seed + 1000);
                group.spawn(sends_all, &e.b, &back, seed + 2000);
                group.spawn(receives_all, &e.a, &back, seed + 3000);
                co_await group.join();
                co_await turns(5);
                nothing_left(e);
                auto first = start(e.a.close());
                co_await e.b.close();
                co_await first;
            },
            little());
    }
}

namespace {

/// A random program whose sends and receives are stopped at any time, and what became of them.
struct stopped_program {
    struct fate {
        bool ended_well = false;
        bool canceled = false;
        int received = 0;
    };
    static constexpr tag_type marker = 99;
    std::vector<fate> messages;
    std::size_t receives_canceled = 0;
    local_stop_source everything;
    std::size_t sends_canceled = 0;
    std::size_t received = 0;

    static std::vector<std::byte> numbered(std::size_t n, std::size_t bytes) {
        std::vector<std::byte> data = pattern(bytes, n);
        std::memcpy(data.data(), &n, sizeof n);
        return data;
    }
    void heard(std::span<const std::byte> data) {
        std::size_t n = 0;
        REQUIRE(data.size() >= sizeof n);
        std::memcpy(&n, data.data(), sizeof n);
        REQUIRE(n < messages.size());
        CHECK(same_bytes(data, numbered(n, data.size())));
        ++messages[n].received;
    }

    task<> send(peer_type* from, std::size_t n, std::uint32_t seed) {
        std::mt19937 random(seed);
        const std::size_t sizes[] = {8, 900, 4096, 5000, 120'000};
        auto data = numbered(n, sizes[random() % std::size(sizes)]);
        const tag_type tag = random() % 3;
        const bool synchronous = random() % 3 == 0;
        local_stop_source stop;
        auto op = start(as_result(
            with_stop(synchronous ? from->ssend(data, tag) : from->send(data, tag), stop.get_token())));
        const bool stops = random() % 2 == 0;
        co_await wait(stops ? static_cast<int>(random() % 12) : 1'000'000, [&] { return op.done(); });
        stop.request_stop();
        const auto ended = co_await op;
        (ended ? messages[n].ended_well : messages[n].canceled) = true;
        if (!ended) CHECK(ended.error() == errc::canceled);
        std::fill(data.begin(), data.end(), std::byte{0xdd});
    }
    task<> receive(peer_type* at, std::uint32_t seed) {
        std::mt19937 random(seed);
        const tag_match wanted = random() % 3 == 0 ? tag_match(0, 1) : tag_match(random() % 3);
        const int limit = random() % 2 == 0 ? static_cast<int>(random() % 12) : 1'000'000;
        local_stop_source stop;
        std::error_code outcome;
        if (random() % 3 == 0) {
            auto op = start(as_result(with_stop(at->recv_lent(wanted), stop.get_token())));
            co_await wait(limit, [&] { return op.done(); });
            stop.request_stop();
            const auto got = co_await op;
            outcome = got.error();
            if (got) heard(got->bytes());
        } else {
            std::vector<std::byte> into(120'000);
            auto op = start(as_result(with_stop(at->recv(into, wanted), stop.get_token())));
            co_await wait(limit, [&] { return op.done(); });
            stop.request_stop();
            const auto got = co_await op;
            outcome = got.error();
            if (got) heard(std::span(into).first(got->bytes));
        }
        if (outcome) {
            CHECK(outcome == errc::canceled);
            ++receives_canceled;
        }
    }
    /// So many turns, or fewer: until something is so, or everything is stopped.
    template <class Until>
    task<> wait(int most, Until until) {
        for (int n = 0; n < most && !until() && !everything.stop_requested(); ++n) co_await yield();
    }

    task<> all(ends& e, std::uint32_t seed) {
        std::mt19937 random(seed);
        messages.resize(30);
        task_group group;
        for (std::size_t n = 0; n < messages.size(); ++n) {
            const auto send_seed = static_cast<std::uint32_t>(random());
            const auto receive_seed = static_cast<std::uint32_t>(random());
            group.spawn(&stopped_program::send, this, &e.a, n, send_seed);
            if (random() % 4 != 0) group.spawn(&stopped_program::receive, this, &e.b, receive_seed);
            co_await turns(static_cast<int>(random() % 6));
        }
        co_await turns(100);
        everything.request_stop();
        co_await group.join();
        // What waits is received; the marker comes last.
        const auto mark = numbered(0, 8);
        auto last = start(e.a.send(mark, marker));
        for (;;) {
            const message m = co_await e.b.recv_lent();
            if (m.tag() == marker) break;
            heard(m.bytes());
        }
        co_await last;
        std::size_t lost = 0;
        for (const fate& f : messages) {
            sends_canceled += f.canceled ? 1 : 0;
            received += static_cast<std::size_t>(f.received);
            CHECK(f.ended_well != f.canceled);
            CHECK(f.received <= 1);
            if (f.canceled) CHECK(f.received == 0);
            if (f.ended_well && f.received == 0) ++lost;
        }
        CHECK(lost <= receives_canceled);
        co_await turns(10);
        nothing_left(e);
        CHECK(e.a.is_open());
        CHECK(e.b.is_open());
    }
};

}  // namespace

TEST_CASE("random programs that are stopped anywhere: what is canceled is not received, the rest once") {
    static std::uint32_t seed;
    static struct {
        std::size_t sends_canceled, receives_canceled, received;
    } sum;
    sum = {};
    for (seed = 1; seed <= 300; ++seed) {
        CAPTURE(seed);
        with_ends(
            [](ends& e) -> task<> {
                std::mt19937 random(seed);
                any_link_at_all(e, random);
                stopped_program program;
                co_await program.all(e, seed + 7000);
                sum.sends_canceled += program.sends_canceled;
                sum.receives_canceled += program.receives_canceled;
                sum.received += program.received;
            },
            little());
    }
    CHECK(sum.sends_canceled > 300);
    CHECK(sum.receives_canceled > 300);
    CHECK(sum.received > 3000);
}

}  // namespace test_protocol_provider_matched
