// Programs that must end although the receiver's budget is short: over shm, tcp and sim.

#include <rdmacoro/messaging/connect.hpp>
#include <rdmacoro/messaging/mailbox.hpp>
#include <rdmacoro/protocol/protocols.hpp>

#include "conformance/transports.hpp"

#include "support/catch.hpp"
#include "support/pattern.hpp"

#include <cstddef>
#include <deque>
#include <memory>
#include <vector>

namespace test_protocol_starvation {

using namespace rdmacoro;
using namespace rdmacoro::test;

namespace {

using std::chrono::seconds;

#if RDMACORO_WITH_TCP
using transports = std::tuple<shm_as_it_comes, tcp_as_it_comes, sim_plain>;
#else
using transports = std::tuple<shm_as_it_comes, sim_plain>;
#endif

mailbox_options least_memory() { return {.unexpected_bytes = detail::least_budget * detail::credit_bytes}; }

/// Two ends with list `P` on one scheduler.
template <class Endpoint>
struct two_ends {
    Endpoint a;
    Endpoint b;
};
template <class P, class T>
task<two_ends<endpoint<T, P>>> connected(typename T::domain& here, typename T::domain& there,
                                         std::string address, mailbox_options options) {
    auto listening = co_await listen<T, P>(there, address, options);
    auto accepting = start(listening.accept());
    auto a = co_await connect<T, P>(here, listening.address(), options);
    auto b = co_await accepting;
    co_return two_ends<endpoint<T, P>>{std::move(a), std::move(b)};
}

/// Runs `program(a, b)`, which must end in time.
template <class Variant, class P = default_protocols<typename Variant::transport_type>, class Program>
void must_end(mailbox_options options, Program program) {
    using T = typename Variant::transport_type;
    scheduler on{impatient{}};
    auto here = Variant::open(on);
    auto there = Variant::open(on);
    on.run([](auto& one, auto& other, mailbox_options limits, Program what) -> task<> {
        auto ends = co_await connected<P, T>(one, other, Variant::address(), limits);
        co_await timeout(what(ends.a, ends.b), seconds(60));
    }(*here, *there, options, program));
}

template <class Endpoint>
task<> sends_many(Endpoint& from, int messages) {
    const auto data = pattern(500, 1);
    for (int n = 0; n < messages; ++n) co_await from.send(data, 1);
}

template <std::size_t Bytes>
using eager_to = eager<up_to<Bytes>>;

}  // namespace

// ---- messages that are long against the budget

TEMPLATE_LIST_TEST_CASE(
    "an eager message that costs more than a quarter of the peer's budget goes another way", "", transports) {
    must_end<TestType, protocols<eager_to<1_MiB>, segmented<>>>(
        least_memory(), [](auto& a, auto& b) -> task<> {
            for (const std::size_t bytes : {1_MiB, 300_KiB, 200_KiB, 65_KiB}) {
                const auto data = pattern(bytes, 1);
                std::vector<std::byte> into(bytes);
                auto sending = start(a.send(data, 7));
                co_await b.recv(into, 7);
                co_await sending;
                CHECK(into == data);
            }
            CHECK(a.counts().eager_sent == 0);
            CHECK(a.counts().segmented_sent == 4);
            const auto data = pattern(2000, 1);
            std::vector<std::byte> into(2000);
            auto sending = start(a.send(data, 7));
            co_await b.recv(into, 7);
            co_await sending;
            CHECK(a.counts().eager_sent == 1);
        });
}

TEST_CASE("where the list has no other way, an eager message may cost the whole budget, and a longer one is "
          "refused") {
    must_end<sim_plain, protocols<eager_to<1_MiB>>>({.unexpected_bytes = 1}, [](auto& a, auto& b) -> task<> {
        CHECK(a.link_capabilities().max_message < 256_KiB);
        const std::size_t most = std::min(detail::payload_stored_in(256_KiB), std::size_t{16384});
        const auto data = pattern(most, 1);
        std::vector<std::byte> into(most);
        co_await a.send(data, 7);
        co_await b.recv(into, 7);
        CHECK(into == data);
        const auto refused = co_await as_result(a.send(pattern(300_KiB, 1), 7));
        CHECK(refused.error() == errc::message_too_long);
    });
}

TEST_CASE("an ssend that the list has no way for, though a send of as many bytes has one, is unsupported") {
    must_end<sim_plain, protocols<eager_to<1000>>>(least_memory(), [](auto& a, auto& b) -> task<> {
        const auto data = pattern(1001, 1);
        const auto short_one = std::span(data).first(1);
        const auto synchronous = co_await as_result(a.ssend(short_one, 7));
        CHECK(synchronous.error() == errc::unsupported);
        const auto both = co_await as_result(a.ssend(data, 7));
        CHECK(both.error() == errc::message_too_long);
        const auto too_long = co_await as_result(a.send(data, 7));
        CHECK(too_long.error() == errc::message_too_long);
        std::string text;
        try {
            co_await a.ssend(short_one, 7);
        } catch (const error& refused) {
            text = refused.what();
        }
        CHECK_THAT(text, contains("ssend of 1 bytes") && contains("no protocol of the list"));
        co_await a.send(short_one, 7);  // the link goes on
        std::vector<std::byte> into(1);
        co_await b.recv(into, 7);
        CHECK(into[0] == data[0]);
    });
}

// ---- credit that an idle receiver owes

TEST_CASE("a receiver that owes less than half of the budget gives it back to a sender that waits") {
    // Over a link that takes 256 KiB in one message.
    struct long_messages : sim_plain {
        static std::unique_ptr<sim::domain> open(scheduler& on) {
            sim_options o;
            o.offered.max_message = o.offered.eager_bytes = 256_KiB;
            return std::make_unique<sim::domain>(on, o);
        }
    };
    must_end<long_messages, protocols<eager_to<256_KiB>>>(least_memory(), [](auto& a, auto& b) -> task<> {
        for (int n = 0; n < 500; ++n) {
            std::byte one{};
            auto sending = start(a.send(std::span(&one, 1), 1));
            co_await b.recv(std::span(&one, 1), 1);
            co_await sending;
        }
        CHECK(b.counts().credit_messages == 0);   // less than half is owed
        co_await a.send(pattern(200_KiB, 1), 2);  // nobody receives it yet
        CHECK(a.counts().credit_waits == 1);
        CHECK(b.counts().credit_messages == 1);
        std::vector<std::byte> into(200_KiB);
        co_await b.recv(into, 2);
        CHECK(into == pattern(200_KiB, 1));
    });
}

TEMPLATE_LIST_TEST_CASE(
    "200 KiB that nobody receives yet are sent after 500 short messages that were received: what an idle "
    "receiver owes of them comes back",
    "", transports) {
    must_end<TestType, protocols<eager_to<50_KiB>, segmented<>>>(
        least_memory(), [](auto& a, auto& b) -> task<> {
            for (int n = 0; n < 500; ++n) {
                std::byte one{};
                auto sending = start(a.send(std::span(&one, 1), 1));
                co_await b.recv(std::span(&one, 1), 1);
                co_await sending;
            }
            CHECK(b.counts().credit_messages == 0);  // less than half is owed
            // Messages of the whole budget but for what is owed.
            const std::size_t most = std::min<std::size_t>(50_KiB, a.link_capabilities().max_message);
            const auto data = pattern(most, 1);
            const std::size_t parts = 200_KiB / most;
            for (std::size_t n = 0; n < parts; ++n) co_await a.send(data, 2);
            CHECK(a.counts().eager_sent == 500 + parts);
            CHECK(a.counts().credit_waits == 1);
            CHECK(b.counts().credit_messages == 1);
            std::vector<std::byte> into(most);
            for (std::size_t n = 0; n < parts; ++n) {
                co_await b.recv(into, 2);
                CHECK(into == data);
            }
        });
}

TEST_CASE("a sender that waits for credit gets what comes free later, too, and not one message at a time") {
    must_end<sim_plain, protocols<eager_to<4096>>>(least_memory(), [](auto& a, auto& b) -> task<> {
        constexpr int messages = 5000;
        task_group group;
        group.spawn(sends_many<std::decay_t<decltype(a)>>, std::ref(a), messages);
        std::vector<std::byte> into(500);
        for (int n = 0; n < messages; ++n) {
            co_await b.recv(into, 1);
            for (int turn = 0; turn < 3; ++turn) co_await yield();  // slower than the sender
        }
        co_await group.join();
        CHECK(a.counts().credit_waits > 0);
        CHECK(b.counts().credit_messages > 0);
        CHECK(b.counts().credit_messages < messages / 8);
    });
}

// ---- turns

TEMPLATE_LIST_TEST_CASE("a long message that begins in the middle of a longer one ends long before it", "",
                        transports) {
    must_end<TestType, protocols<eager<>, segmented<>>>({}, [](auto& a, auto& b) -> task<> {
        const auto longer = pattern(64_MiB, 1);
        const auto shorter = pattern(4_MiB, 2);
        std::vector<std::byte> into_longer(longer.size());
        std::vector<std::byte> into_shorter(shorter.size());
        auto first = start(b.recv(into_longer, 1));
        auto second = start(b.recv(into_shorter, 2));
        auto sending = start(a.send(longer, 1));
        const std::size_t piece = a.link_capabilities().segment_bytes;
        while (a.counts().segments_sent * piece < 8_MiB) co_await yield();
        const std::uint64_t before = a.counts().segments_sent;
        auto overtaking = start(a.send(shorter, 2));
        co_await second;
        const std::uint64_t during = a.counts().segments_sent - before;
        CHECK_FALSE(first.done());
        // Of the longer one as much as of the shorter has come meanwhile, and a window more.
        CHECK(during * piece < 4 * shorter.size() + 16 * piece);
        co_await first;
        co_await sending;
        co_await overtaking;
        CHECK(into_shorter == shorter);
        CHECK(into_longer == longer);
    });
}

namespace {

/// How much of a message has arrived, wherever in it, to 64 KiB.
std::size_t arrived(std::span<const std::byte> into, std::span<const std::byte> sent) {
    std::size_t bytes = 0;
    for (std::size_t at = 0; at < sent.size(); at += 64_KiB)
        bytes += same_bytes(into.subspan(at, 64), sent.subspan(at, 64)) ? 64_KiB : 0;
    return bytes;
}

using lists_for_long_ones =
    std::tuple<default_protocols<shm>, protocols<eager<>, cooperative_rendezvous<>, segmented<>>>;

}  // namespace

TEMPLATE_LIST_TEST_CASE("over shared memory the same holds by default, and where both sides copy", "",
                        lists_for_long_ones) {
    must_end<shm_as_it_comes, TestType>({}, [](auto& a, auto& b) -> task<> {
        const auto longer = pattern(64_MiB, 1);
        const auto shorter = pattern(4_MiB, 2);
        std::vector<std::byte> into_longer(longer.size());
        std::vector<std::byte> into_shorter(shorter.size());
        auto first = start(b.recv(into_longer, 1));
        auto second = start(b.recv(into_shorter, 2));
        auto sending = start(a.send(longer, 1));
        while (arrived(into_longer, longer) < 8_MiB) co_await yield();
        const std::size_t before = arrived(into_longer, longer);
        auto overtaking = start(a.send(shorter, 2));
        co_await second;
        const std::size_t during = arrived(into_longer, longer) - before;
        CHECK_FALSE(first.done());
        CHECK(during < 4 * shorter.size() + 1_MiB);
        co_await first;
        co_await sending;
        co_await overtaking;
        CHECK(a.counts().segmented_sent + a.counts().cooperative_sent == 2);
        CHECK(into_shorter == shorter);
        CHECK(into_longer == longer);
    });
}

namespace {

/// Shared memory with blocks of half a MiB, the longest that two sides can agree on.
struct shm_long_blocks : shm_as_it_comes {
    static std::unique_ptr<shm::domain> open(scheduler& on) {
        shm_options options;
        options.shape = {.cells = 1024, .blocks = 16, .block_bytes = 1u << 19};
        return std::make_unique<shm::domain>(on, options);
    }
};

using stored_in_blocks = std::tuple<shm_as_it_comes, shm_long_blocks>;

}  // namespace

TEMPLATE_LIST_TEST_CASE(
    "over shared memory a short message finds no more than a window of pieces before it, whatever a block's "
    "length",
    "", stored_in_blocks) {
    must_end<TestType, protocols<eager<>, segmented<>>>({}, [](auto& a, auto& b) -> task<> {
        const auto longer = pattern(64_MiB, 1);
        std::vector<std::byte> into(longer.size());
        auto receiving = start(b.recv(into, 1));
        auto sending = start(a.send(longer, 1));
        int passed = 0;
        std::uint64_t most = 0;
        while (!receiving.done()) {
            std::uint64_t number = 0;
            const std::uint64_t before = b.counts().bytes_copied;
            auto short_one = start(a.send(bytes_of(number), 2));
            co_await b.recv(room_for(number), 2);
            co_await short_one;
            most = std::max(most, b.counts().bytes_copied - before);
            if (!receiving.done()) ++passed;
        }
        co_await receiving;
        co_await sending;
        CHECK(passed > 50);
        CHECK(most <= 64_KiB + 2 * 32_KiB);  // and what came in the turn in which it was sent
        CHECK(into == longer);
    });
}

// ---- receives that wait behind messages that nobody wants

TEMPLATE_LIST_TEST_CASE(
    "a short message behind four of 1 MiB that nobody receives reaches its receive, by default", "",
    transports) {
    must_end<TestType>({}, [](auto& a, auto& b) -> task<> {
        using sending = decltype(start(a.send(std::span<const std::byte>(), 1)));
        const auto data = pattern(1_MiB, 1);
        std::deque<sending> sends;
        for (int n = 0; n < 4; ++n) sends.emplace_back(a.send(data, 1));
        std::uint64_t number = 77;
        sends.emplace_back(a.send(bytes_of(number), 2));
        std::uint64_t got = 0;
        const received r = co_await b.recv(room_for(got), 2);
        CHECK(r.bytes == 8);
        CHECK(got == 77);
        std::vector<std::byte> into(1_MiB);
        for (int n = 0; n < 4; ++n) {
            co_await b.recv(into, 1);
            CHECK(same_bytes(into, data));
        }
        for (sending& s : sends) co_await s;
    });
}

TEMPLATE_LIST_TEST_CASE(
    "a message behind 17,000 short ones that nobody receives reaches its receive, and all are in order", "",
    transports) {
    must_end<TestType>({}, [](auto& a, auto& b) -> task<> {
        using sending = decltype(start(a.send(std::span<const std::byte>(), 1)));
        constexpr std::uint64_t many = 17'000;
        std::vector<std::uint64_t> numbers(many + 2);
        std::deque<sending> sends;
        for (std::uint64_t n = 0; n < many; ++n) {
            numbers[n] = n;
            sends.emplace_back(a.send(bytes_of(numbers[n]), 1));
        }
        numbers[many] = many;
        sends.emplace_back(a.send(bytes_of(numbers[many]), 2));
        const auto longer = pattern(300_KiB, 3);
        sends.emplace_back(a.send(longer, 3));
        std::uint64_t got = 0;
        co_await b.recv(room_for(got), 2);
        CHECK(got == many);
        CHECK(a.counts().sent_ahead == 1);
        std::vector<std::byte> into(longer.size());
        co_await b.recv(into, 3);
        CHECK(into == longer);
        CHECK(b.connection().mailbox().store().footprint() <= 6_MiB);
        std::uint64_t wrong = 0;
        for (std::uint64_t n = 0; n < many; ++n) {
            const received r = co_await b.recv(room_for(got), any_tag);
            if (got != n || r.tag != 1) ++wrong;
        }
        CHECK(wrong == 0);
        for (sending& s : sends) co_await s;
    });
}

TEST_CASE("a receive that is posted before its message is sent gets it, whatever else waits on both sides") {
    must_end<sim_plain>(least_memory(), [](auto& a, auto& b) -> task<> {
        using sending = decltype(start(a.send(std::span<const std::byte>(), 1)));
        using receiving = decltype(start(b.recv(std::span<std::byte>(), 1)));
        std::deque<sending> sends;
        const auto data = pattern(1000, 1);
        for (int n = 0; n < 400; ++n) sends.emplace_back(a.send(data, 1));
        for (int turn = 0; turn < 100; ++turn) co_await yield();
        CHECK_FALSE(sends.back().done());
        // Many receives for which there is nothing, and one.
        std::byte into[8];
        std::deque<receiving> vain;
        for (tag_type n = 0; n < 100; ++n) vain.emplace_back(b.recv(into, 1000 + n));
        auto wanted = start(b.recv(into, 2));
        for (tag_type n = 0; n < 100; ++n) vain.emplace_back(b.recv(into, 2000 + n));
        for (int turn = 0; turn < 1000; ++turn) co_await yield();
        CHECK_FALSE(wanted.done());
        std::uint64_t number = 5;
        sends.emplace_back(a.send(bytes_of(number), 2));
        const received got = co_await wanted;
        CHECK(got.tag == 2);
        CHECK(a.counts().sent_ahead == 1);
        b.abort();
        for (receiving& r : vain) static_cast<void>(co_await as_result(r));
        for (sending& s : sends) static_cast<void>(co_await as_result(s));
    });
}

TEMPLATE_LIST_TEST_CASE("a list with staged_get sends messages ahead of their turn", "", transports) {
    must_end<TestType, protocols<eager_to<1000>, staged_get<>, segmented<>>>(
        least_memory(), [](auto& a, auto& b) -> task<> {
            using sending = decltype(start(a.send(std::span<const std::byte>(), 1)));
            std::deque<sending> sends;
            const auto data = pattern(1000, 1);
            const auto longer = pattern(10'000, 2);
            for (int n = 0; n < 400; ++n) sends.emplace_back(a.send(data, 1));
            for (int n = 0; n < 100; ++n) sends.emplace_back(a.send(longer, 2));
            sends.emplace_back(a.send(longer, 3));
            std::vector<std::byte> into(10'000);
            co_await b.recv(into, 3);
            CHECK(into == longer);
            CHECK(a.counts().sent_ahead == 1);
            for (int n = 0; n < 100; ++n) co_await b.recv(into, 2);
            for (int n = 0; n < 400; ++n) co_await b.recv(into, 1);
            for (sending& s : sends) co_await s;
        });
}

TEMPLATE_LIST_TEST_CASE("a message that no policy of the list carries is not sent ahead of its turn either",
                        "", transports) {
    must_end<TestType, protocols<eager_to<1000>>>(least_memory(), [](auto& a, auto& b) -> task<> {
        using sending = decltype(start(a.send(std::span<const std::byte>(), 1)));
        std::deque<sending> sends;
        const auto data = pattern(1000, 1);
        const auto longer = pattern(1001, 2);
        for (int n = 0; n < 400; ++n) sends.emplace_back(a.send(data, 1));
        auto too_long = start(a.send(longer, 5));
        auto synchronous = start(a.ssend(data, 6));
        auto behind_it = start(a.send(data, 5));
        auto last = start(a.send(data, 7));
        std::vector<std::byte> into(2000);
        std::vector<std::byte> others(2000);
        auto sixth = start(b.recv(others, 6));
        const received fifth = co_await b.recv(into, 5);
        CHECK(fifth.bytes == 1000);
        co_await behind_it;
        co_await b.recv(into, 7);
        co_await last;
        CHECK(a.counts().sent_ahead == 2);
        CHECK_FALSE(sixth.done());
        for (int n = 0; n < 400; ++n) co_await b.recv(into, 1);
        for (sending& s : sends) co_await s;
        const auto refused = co_await as_result(too_long);
        CHECK(refused.error() == errc::message_too_long);
        const auto no_way = co_await as_result(synchronous);
        CHECK(no_way.error() == errc::unsupported);
        co_await a.send(data, 6);
        co_await sixth;
    });
}

TEST_CASE("over shared memory a message to many small pieces leaves others their turns meanwhile") {
    must_end<shm_as_it_comes, protocols<get_rendezvous<>>>({}, [](auto& a, auto& b) -> task<> {
        constexpr std::size_t pieces = 1 << 17;
        const auto data = pattern(8 * pieces, 1);
        std::vector<std::byte> into(64 * pieces);
        auto receiving = start(b.recv(strided(into.data(), 8, 64, pieces)));
        auto sending = start(a.send(data));
        int turns = 0;
        for (; !receiving.done(); ++turns) co_await yield();
        CHECK(turns > 1000);
        co_await receiving;
        co_await sending;
        CHECK(a.counts().get_sent == 1);
        std::size_t wrong = 0;
        for (std::size_t n = 0; n < data.size(); ++n) wrong += into[n / 8 * 64 + n % 8] != data[n];
        CHECK(wrong == 0);
    });
}

TEST_CASE("a mailbox's receive from any source gets a message that waits behind others at its sender") {
    must_end<sim_plain>(least_memory(), [](auto& a, auto& b) -> task<> {
        using sending = decltype(start(a.send(std::span<const std::byte>(), 1)));
        using transport_type = sim;
        std::deque<sending> sends;
        const auto data = pattern(1000, 1);
        mailbox<transport_type> box(detail::running_scheduler());
        const peer_id source = box.attach(std::move(b));
        for (int n = 0; n < 400; ++n) sends.emplace_back(a.send(data, 1));
        std::uint64_t number = 5;
        sends.emplace_back(a.send(bytes_of(number), 2));
        for (int turn = 0; turn < 1000; ++turn) co_await yield();
        std::uint64_t got = 0;
        const received r = co_await box.recv(room_for(got), 2, any_source);
        CHECK(r.source == source);
        CHECK(got == 5);
        CHECK(a.counts().sent_ahead == 1);
        a.abort();
        for (sending& s : sends) static_cast<void>(co_await as_result(s));
    });
}

}  // namespace test_protocol_starvation
