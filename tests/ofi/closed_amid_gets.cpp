// Links that are closed while a peer in another process reads or is read: what ended owns its memory again, and other links go on.

#include <rdmacoro/transport/ofi.hpp>

#include "support/catch.hpp"
#include "support/child_process.hpp"
#include "support/sanitizer.hpp"

#include <rdmacoro/coro/as_result.hpp>
#include <rdmacoro/coro/start.hpp>
#include <rdmacoro/coro/task_group.hpp>
#include <rdmacoro/coro/timeout.hpp>
#include <rdmacoro/coro/yield.hpp>
#include <rdmacoro/messaging/connect.hpp>

#include <chrono>
#include <cstddef>
#include <cstring>
#include <functional>
#include <random>
#include <stdexcept>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

namespace test_ofi_closed_amid_gets {

using namespace rdmacoro;
using namespace rdmacoro::test;
using namespace std::chrono_literals;

namespace {

using over_tcp = ofi<provider::tcp>;
using over_shm = ofi<provider::shm>;

constexpr std::size_t megabyte = 1 << 20;
constexpr unsigned rounds = under_sanitizer ? 60 : 600;
constexpr int sent = 0x11;
constexpr int reused = 0xee;

/// Sends a message and writes over it when the send has ended, however it did.
task<> send_and_reuse(endpoint<over_tcp>& peer, std::vector<std::byte>& memory) {
    static_cast<void>(co_await as_result(peer.send(memory)));
    std::memset(memory.data(), reused, memory.size());
}

/// Connects, sends, and has no time to close.
void close_in_a_hurry(const std::string& address) {
    scheduler on;
    on.run([](std::string to) -> task<> {
        std::mt19937 random(1);
        std::vector<std::byte> memory(megabyte);
        for (unsigned round = 0; round < rounds; ++round) {
            endpoint<over_tcp> peer = co_await connect<over_tcp>(to, {.retry_for = 5s});
            std::memset(memory.data(), sent, memory.size());
            task_group sending;
            sending.spawn([&] { return send_and_reuse(peer, memory); });
            const auto then = std::chrono::steady_clock::now() + std::chrono::microseconds(random() % 1500);
            while (std::chrono::steady_clock::now() < then) co_await yield();
            static_cast<void>(co_await as_result(timeout(peer.close(), 10us)));
            co_await sending.join();
        }
    }(address));
}

struct seen {
    unsigned whole = 0;
    unsigned wrong = 0;
    unsigned failed = 0;
};
task<> receive_one(endpoint<over_tcp> peer, seen& found) {
    std::vector<std::byte> into(megabyte);
    const auto got = co_await as_result(peer.recv(into));
    const bool right =
        into[0] == std::byte{sent} && std::memcmp(into.data(), into.data() + 1, into.size() - 1) == 0;
    ++(!got ? found.failed : right ? found.whole : found.wrong);
}
task<> receive_all(child_process& child, seen& found) {
    auto listening = co_await listen<over_tcp>("ofi+tcp://127.0.0.1:0");
    child.tell(listening.address());
    task_group receiving;
    for (unsigned round = 0; round < rounds; ++round) {
        endpoint<over_tcp> peer = co_await listening.accept();
        receiving.spawn([](endpoint<over_tcp> of, seen& into) { return receive_one(std::move(of), into); },
                        std::move(peer), std::ref(found));
    }
    co_await receiving.join();
}

}  // namespace

TEST_CASE("a message that is received well is as it was sent, though its sender closed while it was read") {
    child_process child([](const std::string& address) { close_in_a_hurry(address); });
    seen found;
    scheduler on;
    on.run([](child_process& by, seen& into) -> task<> {
        co_await timeout(receive_all(by, into), 50s);
    }(child, found));
    CHECK(child.wait() == 0);
    CHECK(found.wrong == 0);
    CHECK(found.whole > 0);
    CHECK(found.whole + found.failed == rounds);
}

namespace {

constexpr unsigned closings = 60;
constexpr std::size_t much = 32 * megabyte;

/// Gets, and closes amid that, beside a link that stays.
void get_and_close(const std::string& address) {
    scheduler on;
    on.run([](scheduler& mine, std::string to) -> task<> {
        over_shm::domain domain(mine);
        endpoint<over_shm> stays = co_await connect<over_shm>(domain, to, {.retry_for = 5s});
        remote_region at_stays;
        co_await stays.recv(bytes_of(at_stays));
        std::mt19937 random(1);
        std::vector<std::byte> into(much);
        unsigned ended_early = 0;
        for (unsigned round = 0; round < closings; ++round) {
            endpoint<over_shm> peer = co_await connect<over_shm>(domain, to, {.retry_for = 5s});
            remote_region there;
            co_await peer.recv(bytes_of(there));
            auto getting = start(as_result(peer.rdma_get(there, into)));
            for (unsigned turns = static_cast<unsigned>(random() % 100); turns != 0; --turns)
                co_await yield();
            static_cast<void>(
                co_await as_result(timeout(peer.close(), std::chrono::microseconds(random() % 500))));
            const auto got = co_await getting;
            if (!got) ++ended_early;
        }
        if (ended_early == 0) throw std::runtime_error("no get was under way");
        if (domain.counts().reopened != 0) throw std::runtime_error("the endpoint was closed");
        co_await stays.rdma_get(at_stays, into);
        co_await stays.close();
    }(on, address));
}

task<> show_memory(endpoint<over_shm> peer, remote_region shown) {
    co_await peer.send(bytes_of(shown));
    static_cast<void>(co_await as_result(peer.recv(mutable_buffers())));  // until it has ended
}
task<> show_to_all(scheduler& mine, child_process& child) {
    over_shm::domain domain(mine);
    std::vector<std::byte> memory(much);
    const region open = domain.register_memory(memory, access_rights::remote_read);
    auto listening = co_await listen<over_shm>(domain, "ofi+shm://127.0.0.1:0");
    child.tell(listening.address());
    task_group showing;
    for (unsigned n = 0; n < closings + 1; ++n) {
        endpoint<over_shm> peer = co_await listening.accept();
        showing.spawn(
            [](endpoint<over_shm> to, remote_region what) { return show_memory(std::move(to), what); },
            std::move(peer), open.remote());
    }
    co_await showing.join();
}

}  // namespace

TEST_CASE("a link that is closed amid a get that its peer serves ends no other link of the domain") {
    child_process child([](const std::string& address) { get_and_close(address); });
    scheduler on;
    on.run([](scheduler& mine, child_process& by) -> task<> {
        co_await timeout(show_to_all(mine, by), 50s);
    }(on, child));
    CHECK(child.wait() == 0);
}

namespace {

/// What became of the closings.
struct closed {
    unsigned before_any = 0;   // the peer had closed before this side knew its memory
    unsigned ended_early = 0;  // gets
};

/// Of one side, for all rounds.
struct both_memories {
    std::vector<std::byte> shown = std::vector<std::byte>(much);
    std::vector<std::byte> into = std::vector<std::byte>(much);
};

/// Gets what the peer shows, several at a time, and closes amid that, at about the same time as the peer does.
task<> get_and_close_both(over_shm::domain& domain, endpoint<over_shm> peer, both_memories& memory,
                          unsigned pause, closed& ends) {
    const region open = domain.register_memory(memory.shown, access_rights::remote_read);
    const remote_region own = open.remote();
    remote_region there;
    std::vector<std::byte>& into = memory.into;
    {
        task_group both;
        both.spawn([&]() -> task<> { co_await peer.send(bytes_of(own)); });
        both.spawn([&]() -> task<> { co_await peer.recv(bytes_of(there)); });
        const auto known = co_await as_result(both.join());
        if (!known) {
            // A peer that has this side's memory gets, and closes, though its own message may not have been received here.
            if (known.error() != errc::peer_lost) throw std::system_error(known.error());
            ++ends.before_any;
            co_return;
        }
    }
    task_group getting;
    constexpr std::size_t pieces = 16;
    for (std::size_t n = 0; n < pieces; ++n) {
        getting.spawn([&, n]() -> task<> {
            constexpr std::size_t each = much / pieces;
            remote_region part = there;
            part.address += n * each;
            part.length = each;
            const auto got = co_await as_result(peer.rdma_get(part, std::span(into).subspan(n * each, each)));
            if (!got) ++ends.ended_early;
        });
    }
    for (; pause != 0; --pause) co_await yield();
    peer.abort();
    co_await getting.join();
}
void close_in_turn(const std::string& address, unsigned credits) {
    scheduler on;
    on.run([](scheduler& mine, std::string to, unsigned granted) -> task<> {
        ofi_options o;
        o.credits = granted;
        over_shm::domain domain(mine, o);
        endpoint<over_shm> stays = co_await connect<over_shm>(domain, to, {.retry_for = 5s});
        both_memories memory;
        closed ends;
        std::mt19937 random(2);
        for (unsigned round = 0; round < closings; ++round) {
            endpoint<over_shm> peer = co_await connect<over_shm>(domain, to, {.retry_for = 5s});
            co_await get_and_close_both(domain, std::move(peer), memory, static_cast<unsigned>(random() % 30),
                                        ends);
        }
        if (ends.ended_early == 0) throw std::runtime_error("no get was under way");
        if (domain.counts().reopened != 0) throw std::runtime_error("the endpoint was closed");
        co_await stays.send({});
        co_await stays.close();
    }(on, address, credits));
}

}  // namespace

TEST_CASE(
    "links that both sides close amid gets that the other one serves end no other link of either domain") {
    const unsigned credits = GENERATE(64U, 8U);
    CAPTURE(credits);
    child_process child([credits](const std::string& address) { close_in_turn(address, credits); });
    scheduler on;
    on.run([](scheduler& mine, child_process& by, unsigned granted) -> task<> {
        ofi_options o;
        o.credits = granted;
        over_shm::domain domain(mine, o);
        auto listening = co_await listen<over_shm>(domain, "ofi+shm://127.0.0.1:0");
        by.tell(listening.address());
        endpoint<over_shm> stays = co_await listening.accept();
        both_memories memory;
        closed ends;
        std::mt19937 random(3);
        for (unsigned round = 0; round < closings; ++round) {
            endpoint<over_shm> peer = co_await timeout(listening.accept(), 20s);
            co_await get_and_close_both(domain, std::move(peer), memory, static_cast<unsigned>(random() % 30),
                                        ends);
        }
        co_await timeout(stays.recv(mutable_buffers()), 20s);
        CHECK(ends.ended_early != 0);
        CHECK(ends.before_any < closings / 2);
        CHECK(domain.counts().reopened == 0);
    }(on, child, credits));
    CHECK(child.wait() == 0);
}

}  // namespace test_ofi_closed_amid_gets
