#include "conformance.hpp"

#include <rdmacoro/protocol/provider_matched.hpp>
#include <rdmacoro/protocol/segmented.hpp>

#include "support/counting_new.hpp"

#include <algorithm>
#include <deque>
#include <fstream>

#include <unistd.h>

namespace test_conformance_flow {

using namespace rdmacoro;
using namespace rdmacoro::test;

namespace {

constexpr std::size_t least_bytes = rdmacoro::detail::least_budget * rdmacoro::detail::credit_bytes;

/// The resident set of this process, in bytes.
std::size_t resident_bytes() {
    std::ifstream statm("/proc/self/statm");
    std::size_t all = 0;
    std::size_t resident = 0;
    statm >> all >> resident;
    return resident * static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
}

task<> sender_waits(two_domains& w) {
    auto p = co_await w.connected({}, least_memory());
    // Sends as many as it can; none is received.
    using send_type = started<any_operation<void>>;
    const auto data = pattern(1000, 1);
    std::deque<send_type> sends;
    for (int n = 0; n < 2000; ++n) sends.emplace_back(p.a.send(data, static_cast<tag_type>(n)));
    co_await p.b.probe(0);
    // However long it is given, it sends no more.
    std::size_t done = 0;
    for (int turns = 0; turns < 20000; ++turns) {
        co_await yield();
        while (done < sends.size() && sends[done].done()) {
            ++done;
            turns = 0;
        }
    }
    CHECK(done >= 100);                                              // the budget is there to be used
    CHECK(done * 1000 <= 2 * least_bytes + (std::size_t{1} << 20));  // some may still be in the network
    for (std::size_t n = done; n < sends.size(); ++n) CHECK_FALSE(sends[n].done());
    auto& store = p.b.connection().mailbox().store();
    CHECK(store.footprint() <= least_bytes);
    CHECK(p.a.counts().credit_waits + p.a.counts().room_waits > 0);
    // Receiving gives credit back, and all goes on in order.
    std::vector<std::byte> into(1000);
    for (int n = 0; n < 2000; ++n) {
        const received got = co_await p.b.recv(into);
        if (got.tag != static_cast<tag_type>(n)) FAIL_CHECK("message " << n << " has tag " << got.tag);
        if (n % 100 == 0) CHECK(store.footprint() <= 2 * least_bytes);  // with blocks that are used again
    }
    for (auto& s : sends) co_await s;
    CHECK(store.live() == 0);
}
CONFORMANCE_CASE("a sender without credit waits, and the receiver's memory stays within its budget",
                 every_transport) {
    conform(over, sender_waits);
}

task<> receives_behind_others(two_domains& w) {
    auto p = co_await w.connected({}, least_memory());
    using send_type = started<any_operation<void>>;
    const auto data = pattern(1000, 1);
    std::deque<send_type> sends;
    for (int n = 0; n < 2000; ++n) sends.emplace_back(p.a.send(data, 1));
    // However long it is given, the last does not go.
    for (int turns = 0; turns < 1000; ++turns) co_await yield();
    CHECK_FALSE(sends.back().done());
    CHECK(p.a.counts().credit_waits + p.a.counts().room_waits > 0);
    const std::uint64_t number = 77;
    auto last = start(p.a.send(bytes_of(number), 2));
    std::uint64_t got = 0;
    const received r = co_await p.b.recv(room_for(got), 2);
    CHECK(r.bytes == sizeof got);
    CHECK(got == number);
    std::vector<std::byte> into(data.size());
    for (std::size_t n = 0; n < sends.size(); ++n) {
        co_await p.b.recv(into, 1);
        if (!same_bytes(into, data)) FAIL_CHECK("message " << n << " is another");
    }
    for (auto& s : sends) co_await s;
    co_await last;
    CHECK(p.b.connection().mailbox().store().live() == 0);
}
CONFORMANCE_CASE("a receive ends although the messages before its own are not received, and their sends wait",
                 every_transport) {
    if (over.is().delegates_matching) SKIP_TEST("the provider matches: docs/guarantees.md");
    conform(over, receives_behind_others);
}

task<> a_million(two_domains& w) {
    auto p = co_await w.connected();
    const std::uint64_t messages = w.is().slowness == 1 ? 1'000'000 : 50'000;
    auto sender = [](peer& from, std::uint64_t count) -> task<> {
        // Many at a time, as a program in a hurry sends them.
        using send_type = started<any_operation<void>>;
        std::uint64_t numbers[50];
        for (std::uint64_t n = 0; n < count; n += std::size(numbers)) {
            std::deque<send_type> batch;
            for (std::size_t i = 0; i < std::size(numbers); ++i) {
                numbers[i] = n + i;
                batch.emplace_back(from.send(bytes_of(numbers[i]), numbers[i]));
            }
            for (send_type& sending : batch) co_await sending;
        }
        co_await from.send({}, count);
    };
    const std::uint32_t cost = rdmacoro::detail::message_cost(
        sizeof(std::uint64_t) + (w.is().delegates_matching ? rdmacoro::detail::claim_overhead : 0));
    const auto& from_here = p.a.connection().credits();
    const auto& granted_there = p.b.connection().credits();
    constexpr std::size_t budget = mailbox_options{}.unexpected_bytes;
    const std::size_t fit = from_here.peer_budget() / cost;
    CHECK(fit == budget / (cost * rdmacoro::detail::credit_bytes));
    CHECK(fit > 1000);
    // Each is unexpected: none is received before as many are there as the sender has credit for.
    auto& box = p.b.connection().mailbox();
    std::uint64_t wrong = 0;
    std::size_t largest = 0;
    std::size_t fullest = 0;
    int blocked = 0;
    std::size_t resident_first = 0;
    std::size_t resident_most = 0;
    const std::size_t resident_before = resident_bytes();
    task_group group;
    group.spawn(sender, std::ref(p.a), messages);
    for (std::uint64_t n = 0; n < messages;) {
        const std::uint64_t end = n + (granted_there.granted() - granted_there.payable()) / cost;
        co_await p.b.probe(std::min(end, messages) - 1);
        if (end <= messages) {
            // It has more to send, and however long it is given, it sends nothing.
            for (int turns = 0; turns < 100; ++turns) co_await yield();
            const std::uint64_t sent = p.a.counts().eager_sent + p.a.counts().provider_matched_sent;
            if (from_here.available() < cost && sent == end) ++blocked;
        }
        const std::size_t there = box.matching().unexpected();
        fullest = std::max(fullest, there);
        largest = std::max(largest, box.store().footprint());
        resident_most = std::max(resident_most, resident_bytes());
        if (resident_first == 0) resident_first = resident_most;
        for (std::size_t i = 0; i < there && n < messages; ++i, ++n) {
            std::uint64_t value = 0;
            const received got = co_await p.b.recv(room_for(value));
            if (value != n || got.tag != n) ++wrong;
        }
    }
    CHECK(wrong == 0);
    co_await p.b.recv({}, messages);
    co_await group.join();
    CHECK(p.b.counts().messages_received == messages + 1);
    CHECK(p.b.counts().unexpected >= messages);
    CHECK(fullest == fit);  // the whole budget was of use, and nothing beyond it was let in
    CHECK(blocked > 0);
    CHECK(p.a.counts().credit_waits + p.a.counts().room_waits > 0);
    CHECK(largest <= 2 * budget);  // with blocks that are used again
    CHECK(box.store().live() == 0);
    if (counts_allocations && !w.is().stored_by_library) {  // a sanitizer keeps freed memory
        CAPTURE(resident_before, resident_first, resident_most);
        CHECK(resident_first <= resident_before + 4 * budget);
        // Many budgets have gone through since it was first full; what may still grow is what the transport touches of its
        // rings as it goes around in them.
        CHECK(resident_most <= resident_first + budget);
    }
}
CONFORMANCE_CASE("a million unexpected messages are kept in order and in bounded memory",
                 every_real_transport) {
    conform(over, a_million);
}

task<> long_ones_wait(two_domains& w) {
    auto p = co_await w.connected({}, least_memory());
    // Far more than the budget, announced and not received: only bytes covered by credits may arrive.
    using send_type = started<any_operation<void>>;
    const auto data = pattern(2 << 20, 2);
    std::deque<send_type> sends;
    for (int n = 0; n < 20; ++n) sends.emplace_back(p.a.send(data, static_cast<tag_type>(n)));
    co_await p.b.probe(0);
    for (int turns = 0; turns < 200; ++turns) co_await yield();
    auto& store = p.b.connection().mailbox().store();
    CHECK(store.footprint() <= least_bytes);
    CHECK_FALSE(sends.back().done());
    std::vector<std::byte> into(2 << 20);
    for (int n = 0; n < 20; ++n) {
        const received got = co_await p.b.recv(into);
        CHECK(got.tag == static_cast<tag_type>(n));
        CHECK(same_bytes(into, data));
    }
    for (auto& s : sends) co_await s;
    CHECK(store.live() == 0);
}
CONFORMANCE_CASE("long messages that are not received stay with their sender", every_transport) {
    conform(over, long_ones_wait);
}

task<> one_way_credit(two_domains& w) {
    // Nothing but credit flows back.
    auto p = co_await w.connected({}, least_memory());
    auto sender = [](peer& from, int count) -> task<> {
        const auto data = pattern(500, 1);
        for (int n = 0; n < count; ++n) co_await from.send(data);
    };
    const int messages = 20000 / w.is().slowness;
    task_group group;
    group.spawn(sender, std::ref(p.a), messages);
    std::vector<std::byte> into(500);
    for (int n = 0; n < messages; ++n) co_await p.b.recv(into);
    co_await group.join();
    CHECK(p.b.counts().credit_messages > 0);
    CHECK(p.b.counts().credit_messages <
          static_cast<std::uint64_t>(messages) / 8);  // gathered, not one for each message
}
CONFORMANCE_CASE("credit flows back when nothing else is sent that way", every_transport) {
    conform(over, one_way_credit);
}

task<> one_way_credit_in_bulk(two_domains& w) {
    // Messages that each cost several times what one header can give back.
    const auto slowness = static_cast<std::size_t>(w.is().slowness);
    mailbox_options rich;
    rich.unexpected_bytes = (std::size_t{64} << 20) / slowness;
    auto p = co_await w.connected({}, rich);
    const auto data = pattern((std::size_t{16} << 20) / slowness, 1);
    auto sender = [](peer& from, std::span<const std::byte> what) -> task<> {
        for (int n = 0; n < 8; ++n) co_await from.send(what);
    };
    task_group group;
    group.spawn(sender, std::ref(p.a), std::span(data));
    std::vector<std::byte> into(data.size());
    for (int n = 0; n < 8; ++n) {
        co_await p.b.probe();
        co_await p.b.recv(into);
    }
    CHECK(same_bytes(into, data));
    co_await group.join();
}
CONFORMANCE_CASE("credit flows back in full however much a message cost", every_transport) {
    conform(over, one_way_credit_in_bulk);
}

task<> shorter_overtakes(two_domains& w) {
    auto [a, b] = co_await w.connected_with(list_name::eager_and_pieces);
    const auto slowness = static_cast<std::size_t>(w.is().slowness);
    const auto longer = pattern((std::size_t{64} << 20) / slowness, 1);
    const auto shorter = pattern((std::size_t{4} << 20) / slowness, 2);
    std::vector<std::byte> into_longer(longer.size());
    std::vector<std::byte> into_shorter(shorter.size());
    auto first = start(b.recv(into_longer, 1));
    auto second = start(b.recv(into_shorter, 2));
    auto sending = start(a.send(longer, 1));
    const capabilities& link = a.link_capabilities();
    const std::size_t piece =
        link.byte_stream ? link.segment_bytes
                         : std::min(link.segment_bytes, rdmacoro::detail::segmented_engine::ask_after);
    while (a.counts().segments_sent * piece < longer.size() / 8) co_await yield();
    const std::uint64_t before = a.counts().segments_sent;
    auto overtaking = start(a.send(shorter, 2));
    co_await second;
    const std::uint64_t during = a.counts().segments_sent - before;
    CHECK_FALSE(first.done());
    // Of the longer one as much as of the shorter has come meanwhile, and what was under way before.
    CAPTURE(piece, during);
    CHECK(during * piece < 4 * shorter.size() + 16 * piece);
    co_await first;
    co_await sending;
    co_await overtaking;
    CHECK(a.counts().segmented_sent == 2);
    CHECK(same_bytes(into_shorter, shorter));
    CHECK(same_bytes(into_longer, longer));
}
CONFORMANCE_CASE("a long message that begins in the middle of a longer one ends long before it",
                 every_transport) {
    conform(over, shorter_overtakes);
}

}  // namespace

}  // namespace test_conformance_flow
