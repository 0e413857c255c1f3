#include <rdmacoro/transport/shm/link.hpp>

#include <rdmacoro/rdmacoro.hpp>

#include "support/catch.hpp"
#include "support/shm_links.hpp"
#include "support/shm_pair.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <fstream>
#include <latch>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace test_transport_shm_link {

using namespace rdmacoro;
using namespace rdmacoro::test;
using namespace std::chrono_literals;

static_assert(one_sided_link<shm::link<recording_sink>>);
static_assert(shared_copy_link<shm::link<recording_sink>>);

TEST_CASE("messages of every kind of record arrive in order") {
    shm_pair p;
    // One cell, several cells, a block, a whole block.
    const std::size_t sizes[] = {0, 48, 49, 1008, 1009, p.to_far->capabilities().max_message};
    recording_completion unused;
    for (std::uint64_t n = 0; n < 6; ++n) {
        const auto payload = pattern(sizes[n], static_cast<unsigned>(n));
        REQUIRE(p.to_far->post(header_of(n), const_buffers(std::span<const std::byte>(payload)), unused) ==
                post_result::done);
    }
    REQUIRE(p.until([&] { return p.at_far.count == 6; }));
    for (std::uint64_t n = 0; n < 6; ++n) {
        CHECK(p.at_far.messages[n].number == n);
        CHECK(p.at_far.messages[n].payload == pattern(sizes[n], static_cast<unsigned>(n)));
    }
    CHECK(unused.calls == 0);
}

TEST_CASE("a message that the sink defers is offered again before any behind it") {
    shm_pair p;
    p.at_far.refuse = 3;
    const std::vector<std::byte> short_one = pattern(8);
    const std::vector<std::byte> long_one = pattern(3000);
    REQUIRE(p.to_far->post_copied(header_of(1), const_buffers(std::span<const std::byte>(long_one))) ==
            post_result::done);
    REQUIRE(p.to_far->post_copied(header_of(2), const_buffers(std::span<const std::byte>(short_one))) ==
            post_result::done);
    REQUIRE(p.until([&] { return p.at_far.count == 2; }));
    CHECK(p.at_far.offers == 5);
    CHECK(p.at_far.messages[0].number == 1);
    CHECK(p.at_far.messages[1].number == 2);
}

TEST_CASE("a message at which the sink pauses is the last one of its poll, in a cell and in a block") {
    shm_pair p;
    p.at_far.pause = true;
    const std::vector<std::byte> short_one = pattern(8);
    const std::vector<std::byte> long_one = pattern(20'000);
    const auto post = [&](std::uint64_t number, const std::vector<std::byte>& what) {
        REQUIRE(p.to_far->post_copied(header_of(number), const_buffers(std::span<const std::byte>(what))) ==
                post_result::done);
    };
    for (std::uint64_t n = 0; n < 10; ++n) post(n, n / 3 % 2 == 0 ? short_one : long_one);
    for (std::uint64_t n = 0; n < 10; ++n) {
        CHECK(p.at_far.count == n);
        p.far.poll();
    }
    CHECK(p.at_far.count == 10);
    CHECK(p.at_far.offers == 10);
    for (std::uint64_t n = 0; n < 10; ++n) {
        CHECK(p.at_far.messages[n].number == n);
        CHECK(p.at_far.messages[n].payload == (n / 3 % 2 == 0 ? short_one : long_one));
    }
}

TEST_CASE("a get leaves one poll to the coroutines of messages that have come, and no second one") {
    shm_pair p;
    if (!p.to_far->capabilities().one_sided_offloaded) SKIP_TEST("this kernel forbids process_vm_readv");
    constexpr std::size_t bytes = 8 * detail::shm::copy_allowance::in_a_poll;
    std::vector<std::byte> there(bytes, std::byte{7});
    std::vector<std::byte> here(bytes);
    const auto moved = [&] {
        return static_cast<std::size_t>(std::find(here.begin(), here.end(), std::byte{0}) - here.begin());
    };
    const region open = p.far.register_memory(there);
    recording_completion got;
    REQUIRE(p.to_far->get(open.remote(), here, got) == post_result::posted);
    p.near.poll();
    for (std::uint64_t n = 0; n < 4; ++n) {
        const std::size_t before = moved();
        REQUIRE(before < bytes);
        REQUIRE(p.to_near->post_copied(header_of(n), {}) == post_result::done);
        p.near.poll();
        CHECK(p.at_near.count == n + 1);
        if (n % 2 == 0) {
            CHECK(moved() == before);
        } else {
            CHECK(moved() > before);
        }
    }
    REQUIRE(p.until([&] { return got.calls == 1; }));
    CHECK(here == there);
}

TEST_CASE(
    "one poll hands up no more long messages of many links than of a few; each link has its turn, and short "
    "messages of others do not wait for it") {
    using detail::shm::copy_allowance;
    constexpr std::size_t links = 20;
    constexpr std::uint64_t each = 12;
    shm_links l(links + 1, {});
    const std::size_t bytes = l.links[0]->to_far->capabilities().max_message;
    const auto post = [&](std::size_t to, std::uint64_t number, std::size_t length) {
        REQUIRE(l.links[to]->to_far->post_copied(
                    header_of(number), const_buffers(std::span<const std::byte>(pattern(length)))) ==
                post_result::done);
    };
    for (std::uint64_t n = 0; n < each; ++n) {
        for (std::size_t to = 0; to < links; ++to) post(to, n, bytes);
    }
    const auto count = [&](std::size_t of) { return l.links[of]->at_far.count; };
    const auto long_ones = [&] {
        std::uint64_t sum = 0;
        for (std::size_t n = 0; n < links; ++n) sum += count(n);
        return sum;
    };
    const std::uint64_t most = copy_allowance::in_a_poll / bytes + 1;
    std::uint64_t before = 0;
    std::uint64_t polls = 0;
    std::uint64_t until_all_began = 0;
    for (; before < links * each && polls < 1000; ++polls) {
        post(links, polls, 8);
        l.far.poll();
        CHECK(count(links) == polls + 1);
        const std::uint64_t now = long_ones();
        CHECK(now - before <= most);
        before = now;
        std::size_t begun = 0;
        while (begun < links && count(begun) != 0) ++begun;
        if (begun != links) until_all_began = polls + 1;
    }
    CHECK(before == links * each);
    CHECK(until_all_began >= links / most - 1);
    CHECK(until_all_began <= links);
    CHECK(polls <= 2 * links * each / (most - 1));  // each poll hands up what it may, or the next one does
}

TEST_CASE(
    "one poll hands up a bounded number of short messages of many links, and the next one goes on with the "
    "next link") {
    constexpr std::size_t links = 20;
    constexpr std::uint64_t each = 100;
    shm_links l(links, {});
    for (auto& link : l.links) {
        for (std::uint64_t n = 0; n < each; ++n)
            REQUIRE(link->to_far->post_copied(header_of(n), {}) == post_result::done);
    }
    std::uint64_t before = 0;
    for (std::uint64_t polls = 1; before < links * each; ++polls) {
        REQUIRE(polls < 100);
        l.far.poll();
        std::uint64_t now = 0;
        std::size_t begun = 0;
        for (auto& link : l.links) {
            now += link->at_far.count;
            begun += link->at_far.count != 0;
        }
        CHECK(now > before);
        CHECK(now - before <= detail::messages_of_a_poll + detail::messages_of_a_link);
        before = now;
        // The first poll looks at some of them twice: by their marks, and as they are hot then.
        CHECK(begun >= std::min<std::uint64_t>(links, (polls - 1) * detail::messages_of_a_poll /
                                                          detail::messages_of_a_link));
    }
}

TEST_CASE(
    "a peer that marks itself with each of its messages keeps no long message and no get of others waiting") {
    using detail::shm::copy_allowance;
    shm_links l(3, {});
    if (!l.links[0]->to_far->capabilities().one_sided_offloaded)
        SKIP_TEST("this kernel forbids process_vm_readv");
    // The first link's peer marks its own place on the board of the domain that is polled, though that looks at it anyway.
    auto* const board = l.far.shared_arena().board();
    REQUIRE(board != nullptr);
    const std::uint32_t place = l.links[0]->to_near->number() - 1;
    std::vector<std::byte> there(8 * copy_allowance::in_a_poll, std::byte{7});
    std::vector<std::byte> here(there.size());
    const region open = l.near.register_memory(there);
    recording_completion got;
    REQUIRE(l.links[2]->to_near->get(open.remote(), here, got) == post_result::posted);
    const std::vector<std::byte> long_one = pattern(l.links[1]->to_far->capabilities().max_message);
    std::uint64_t posted = 0;
    unsigned polls = 0;
    for (; polls < 200 && (got.calls == 0 || l.links[1]->at_far.count < 30); ++polls) {
        static_cast<void>(l.links[0]->to_far->post_copied(header_of(polls), {}));
        board->mark(place);
        while (posted < 30 && l.links[1]->to_far->post_copied(
                                  header_of(posted), const_buffers(std::span<const std::byte>(long_one))) ==
                                  post_result::done)
            ++posted;
        l.far.poll();
        l.near.poll();
    }
    CHECK(l.links[0]->at_far.count == polls);
    CHECK(l.links[1]->at_far.count == 30);
    CHECK(got.calls == 1);
    CHECK(here == there);
}

TEST_CASE("a get goes on beside long messages of its own link that never end") {
    using detail::shm::copy_allowance;
    shm_pair p;
    if (!p.to_far->capabilities().one_sided_offloaded) SKIP_TEST("this kernel forbids process_vm_readv");
    p.at_near.count_only = true;
    std::vector<std::byte> there(8 * copy_allowance::in_a_poll, std::byte{7});
    std::vector<std::byte> here(there.size());
    const region open = p.far.register_memory(there);
    const std::vector<std::byte> long_one = pattern(p.to_near->capabilities().max_message);
    recording_completion got;
    REQUIRE(p.to_far->get(open.remote(), here, got) == post_result::posted);
    unsigned polls = 0;
    for (; polls < 100 && got.calls == 0; ++polls) {
        while (p.to_near->post_copied(header_of(1), const_buffers(std::span<const std::byte>(long_one))) ==
               post_result::done) {}
        p.near.poll();
    }
    CHECK(got.calls == 1);
    CHECK(here == there);
    CHECK(p.at_near.count > polls);
}

TEST_CASE("a full ring answers retry, and the sink is notified when there is room") {
    shm_pair p;
    p.at_far.refuse_all = true;
    std::uint64_t posted = 0;
    while (p.to_far->post_copied(header_of(posted), {}) == post_result::done) ++posted;
    REQUIRE(posted > 0);
    CHECK(posted <= p.near.options().shape.cells);
    CHECK(p.at_near.writables == 0);
    p.at_far.refuse_all = false;
    REQUIRE(p.until([&] { return p.at_near.writables == 1; }));
    CHECK(p.to_far->post_copied(header_of(posted), {}) == post_result::done);
    REQUIRE(p.until([&] { return p.at_far.count == posted + 1; }));
    CHECK(p.at_far.messages.back().number == posted);
}

TEST_CASE("a link that is polled no more is seen to have a message though its mark was lost, and without its "
          "ring") {
    shm_pair p;
    REQUIRE(p.to_far->post_copied(header_of(0), {}) == post_result::done);
    REQUIRE(p.until([&] { return p.at_far.count == 1; }));
    p.to_near->want_notice(7);
    CHECK_FALSE(p.to_near->wants_poll());
    // Neither domain takes a turn: what marks the board is not read.
    REQUIRE(p.to_far->post_copied(header_of(1), {}) == post_result::done);
    CHECK(p.to_near->wants_poll());
    CHECK(p.to_near->poll(1) == 1);
    CHECK(p.at_far.count == 2);
    CHECK_FALSE(p.to_near->wants_poll());
    // While it is polled nothing is said.
    p.to_near->want_notice(0);
    REQUIRE(p.to_far->post_copied(header_of(2), {}) == post_result::done);
    CHECK_FALSE(p.to_near->wants_poll());
}

namespace {

/// Of this process, shared, in KiB.
long shared_memory_held() {
    std::ifstream status("/proc/self/status");
    long kib = 0;
    for (std::string word; status >> word;)
        if (word == "RssShmem:") status >> kib;
    return kib;
}

}  // namespace

TEST_CASE("a scheduler that sleeps is not woken again and again for memory that the peer keeps") {
    using std::chrono::milliseconds;
    constexpr std::size_t count = 30;
    constexpr std::size_t bytes = 32768;
    recording_sink at_near;
    recording_sink at_far;
    scheduler on;
    shm::domain near(on);
    shm::domain far(on);
    std::unique_ptr<shm_pair::link_type> to_far;
    std::unique_ptr<shm_pair::link_type> to_near;
    on.run([&](std::string name) -> task<> {
        auto listening = co_await far.listen(name);
        auto accepting = start(listening.accept());
        to_far = std::make_unique<shm_pair::link_type>(co_await near.connect(name), at_near);
        to_near = std::make_unique<shm_pair::link_type>(co_await accepting, at_far);
    }(shm_test_name()));
    const auto sleeps = [&](milliseconds time) {
        on.run([](milliseconds some) -> task<> { co_await sleep_for(some); }(time));
    };
    at_far.keep_with = [&] { return to_near->keep(); };
    const std::vector<std::byte> message(bytes, std::byte{1});
    for (std::size_t n = 0; n < count; ++n)
        REQUIRE(to_far->post_copied(header_of(n), const_buffers(std::span(message))) == post_result::done);
    sleeps(milliseconds(2500));
    REQUIRE(at_far.kept.size() == count);
    const std::uint64_t before = on.parks();
    sleeps(milliseconds(5000));
    CHECK(on.parks() - before <= 3);
    // What the peer gives back is returned within two seconds.
    const long held = shared_memory_held();
    at_far.kept.clear();
    sleeps(milliseconds(3000));
    CHECK(held - shared_memory_held() >= static_cast<long>(count * bytes / 1024));
}

TEST_CASE("a link that has sent nothing since it was asked last gives the memory of what was read back") {
    shm_pair p;
    const std::vector<std::byte> in_a_block = pattern(3000);
    std::uint64_t posted = 0;
    const auto post_many = [&] {
        for (int n = 0; n < 100; ++n)
            REQUIRE(p.to_far->post_copied(header_of(posted++), {}) == post_result::done);
    };
    REQUIRE(p.to_far->post_copied(header_of(posted++), const_buffers(std::span<const std::byte>(
                                                           in_a_block))) == post_result::done);
    post_many();
    REQUIRE(p.until([&] { return p.at_far.count == posted; }));
    CHECK(p.to_far->holds_memory());
    post_many();
    CHECK(p.to_far->return_memory());  // takes note of those
    CHECK(p.to_far->holds_memory());
    REQUIRE(p.until([&] { return p.at_far.count == posted; }));
    p.to_near->give_back();  // as its domain does when it is quiet
    static_cast<void>(p.to_far->return_memory());
    CHECK_FALSE(p.to_far->holds_memory());
    // Messages after that arrive whole.
    REQUIRE(p.to_far->post_copied(header_of(posted++), const_buffers(std::span<const std::byte>(
                                                           in_a_block))) == post_result::done);
    post_many();
    REQUIRE(p.until([&] { return p.at_far.count == posted; }));
    CHECK(p.at_far.messages[201].payload == in_a_block);
    for (std::uint64_t n = 0; n < posted; ++n)
        if (p.at_far.messages[n].number != n) FAIL_CHECK("message " << n);
}

TEST_CASE("a peer announces that it touches memory once its link's mark is looked at no longer") {
    shm_pair p;
    const auto* const board = p.far.shared_arena().touch_board();
    REQUIRE(board != nullptr);
    std::vector<std::byte> there(100);
    std::vector<std::byte> here(100);
    recording_completion got;
    // From the first end of a region on.
    region open = p.far.register_memory(there);
    if (p.to_far->get(open.remote(), here, got) != post_result::done)
        SKIP_TEST("the owner of memory serves it here");
    CHECK(board->marked_groups.load() == 0);
    open.reset();
    open = p.far.register_memory(there);
    CHECK(board->marked_groups.load() == 0);
    CHECK(p.to_far->get(open.remote(), here, got) == post_result::done);
    CHECK(board->marked_groups.load() != 0);
    // The next one has seen it, and rests the link again.
    open.reset();
    CHECK(board->marked_groups.load() == 0);
    open = p.far.register_memory(there);
    CHECK(p.to_far->get(open.remote(), here, got) == post_result::done);
    CHECK(board->marked_groups.load() != 0);
}

TEST_CASE("a payload in a block can be lent, one in a cell can't") {
    shm_pair p;
    p.at_far.keep_with = [&] { return p.to_near->keep(); };
    const std::vector<std::byte> short_one = pattern(8);
    const std::vector<std::byte> long_one = pattern(3000);
    REQUIRE(p.to_far->post_copied(header_of(1), const_buffers(std::span<const std::byte>(short_one))) ==
            post_result::done);
    REQUIRE(p.to_far->post_copied(header_of(2), const_buffers(std::span<const std::byte>(long_one))) ==
            post_result::done);
    REQUIRE(p.until([&] { return p.at_far.count == 2; }));
    REQUIRE(p.at_far.kept.size() == 1);
    CHECK(p.at_far.messages[0].payload == short_one);
    // It stays readable when the link is gone.
    p.to_near.reset();
    const auto lent = p.at_far.kept[0].bytes();
    CHECK(std::vector<std::byte>(lent.begin(), lent.end()) == long_one);
}

TEST_CASE("the lines of a block are unshared as its message is taken, or as what was lent is given back") {
    shm_pair p;
    const std::vector<std::byte> long_one = pattern(3000);
    const auto post = [&] {
        REQUIRE(p.to_far->post_copied(header_of(1), const_buffers(std::span<const std::byte>(long_one))) ==
                post_result::done);
        const std::uint64_t before = p.at_far.count;
        REQUIRE(p.until([&] { return p.at_far.count == before + 1; }));
    };
    p.at_far.keep_with = [&] { return p.to_near->keep(); };
    post();
    REQUIRE(p.at_far.kept.size() == 1);
    const std::span<const std::byte> block = p.at_far.kept[0].bytes();
    const auto unshared = [&] {
        std::size_t lines = 0;
        for (std::size_t at = 0; at < block.size(); at += 64) {
            constexpr std::array<std::byte, 4> word{};
            lines +=
                std::equal(word.begin(), word.end(), block.begin() + static_cast<std::ptrdiff_t>(at)) ? 1 : 0;
        }
        return lines;
    };
    CHECK(unshared() == 0);
    p.at_far.kept.clear();
    CHECK(unshared() == 47);
    // The block that was given back last is the next one to be written.
    p.at_far.keep_with = nullptr;
    post();
    CHECK(unshared() == 47);
    CHECK(p.at_far.messages.back().payload == long_one);
    CHECK(
        std::equal(block.begin() + 4, block.begin() + 64, long_one.begin() + 4));  // this one was in it, too
}

TEST_CASE("closing ends what was begun, notifies this sink at once and the other when it has read all") {
    shm_pair p;
    const std::vector<std::byte> data = pattern(8);
    REQUIRE(p.to_far->post_copied(header_of(1), const_buffers(std::span<const std::byte>(data))) ==
            post_result::done);
    p.to_far->close(make_error_code(errc::closed));
    CHECK(p.at_near.downs == 1);
    CHECK(p.at_near.reason == errc::closed);
    CHECK(p.to_far->post_copied(header_of(2), {}) == post_result::failed);
    REQUIRE(p.until([&] { return p.at_far.downs == 1; }));
    CHECK(p.at_far.reason == errc::peer_lost);
    CHECK(p.at_far.count == 1);
    CHECK_FALSE(p.at_far.after_down);
    p.to_far->close(make_error_code(errc::closed));
    CHECK(p.at_near.downs == 1);
}

namespace {
/// Sends until one waits; what is said about that one.
task<> send_until_one_waits(std::string name, std::latch& done, std::string& stage, next_actor& next) {
    auto peer = co_await connect<shm>(name, {.retry_for = 10s});
    const std::vector<std::byte> data(100);
    std::uint64_t answer = 0;
    co_await peer.recv(bytes_of(answer));
    for (bool waits = false; !waits;) {
        auto sending = start(peer.send(data, 1));
        for (int n = 0; n < 100 && !sending.done(); ++n) co_await yield();
        if (!sending.done()) {
            const description all = scheduler::current()->describe();
            for (const pending_operation& one : all.operations()) {
                if (one.what != "send") continue;
                stage = one.stage;
                next = one.next;
            }
            waits = true;
            done.count_down();
        }
        static_cast<void>(co_await as_result(sending));
    }
}
}  // namespace

TEST_CASE(
    "a send that has no credit left because its peer stands still is said to wait for the peer's scheduler") {
    const std::string name = shm_test_name();
    std::latch done(1);
    std::thread other([&] {
        scheduler on{idle::yield{}};
        endpoint<shm> end;
        on.run([](const std::string& at, endpoint<shm>& into) -> task<> {
            mailbox_options small;
            small.unexpected_bytes = 16 * 1024;  // less than the ring takes
            auto listening = co_await listen<shm>(at, small);
            into = co_await listening.accept();
            const std::uint64_t hello = 1;
            co_await into.send(bytes_of(hello));  // the scheduler polls no more after it
        }(name, end));
        done.wait();
        end.abort();
    });
    std::string stage;
    next_actor next{};
    scheduler on{impatient{}};
    on.run(send_until_one_waits(name, done, stage, next));
    other.join();
    CHECK(stage == "waits for credit, and the peer has not taken what was sent");
    CHECK(next == next_actor::peer_poll);
}

}  // namespace test_transport_shm_link
