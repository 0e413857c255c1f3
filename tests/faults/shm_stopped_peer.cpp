// A peer over shared memory that is stopped in the middle of a copy into this process's memory.
//
// The peer copies from memory with one page that it may not read. The handler of the fault stops the process there, by SIGSTOP, and
// makes the page readable when the process goes on: the copy is then completed.
#include <rdmacoro/rdmacoro.hpp>

#include "support/bytes.hpp"
#include "support/catch.hpp"
#include "support/child_process.hpp"
#include "support/pattern.hpp"
#include "support/run.hpp"
#include "support/shm_pair.hpp"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>

namespace test_faults_shm_stopped_peer {

using namespace rdmacoro;
using namespace rdmacoro::test;
using namespace std::chrono_literals;
using detail::shm::mark_patience;

namespace {

constexpr std::size_t fault_page = 4096;
constexpr std::size_t put_bytes = 32 * fault_page;  // one piece of a copy
constexpr std::size_t unreadable_at = 20 * fault_page;
constexpr std::size_t copied_before = 10 * fault_page;  // memcpy may write the first bytes last
constexpr std::byte their_byte{0xee};
constexpr std::byte our_byte{0x11};
constexpr tag_type put_tag = 1;
constexpr tag_type told_tag = 2;
constexpr tag_type goodbye_tag = 3;

using put_list = protocols<eager<up_to<1024>>, put_rendezvous<>>;
using end_of_link = endpoint<shm, put_list>;

void* unreadable_page = nullptr;

void stop_at_fault(int) {
    ::raise(SIGSTOP);
    if (::mprotect(unreadable_page, fault_page, PROT_READ | PROT_WRITE) != 0) ::_exit(3);
}

/// Memory from which a copy stops this process in the middle.
std::span<std::byte> memory_that_stops() {
    void* const mapped =
        ::mmap(nullptr, put_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapped == MAP_FAILED) ::_exit(3);
    const std::span<std::byte> memory(static_cast<std::byte*>(mapped), put_bytes);
    std::fill(memory.begin(), memory.end(), their_byte);
    unreadable_page = memory.data() + unreadable_at;
    struct sigaction caught{};
    caught.sa_handler = stop_at_fault;
    if (::mprotect(unreadable_page, fault_page, PROT_NONE) != 0 ||
        ::sigaction(SIGSEGV, &caught, nullptr) != 0)
        ::_exit(3);
    return memory;
}

/// Puts into a region of the other side's, or sends by a rendezvous for which this side puts.
void put_and_stop(const std::string& address, bool by_rendezvous) {
    scheduler on{idle::yield{}};
    on.run([](std::string to, bool sends) -> task<> {
        end_of_link end = co_await connect<shm, put_list>(to);
        remote_region there;
        if (!sends) co_await end.recv(std::as_writable_bytes(std::span(&there, 1)), told_tag);
        const std::span<std::byte> from = memory_that_stops();
        std::error_code how;
        if (sends) {
            auto sent = co_await as_result(end.send(from, put_tag));
            how = sent.error();
        } else {
            auto put = co_await as_result(end.rdma_put(from, there));
            how = put.error();
        }
        if (*static_cast<std::byte*>(unreadable_page) != their_byte) ::_exit(4);  // it was never stopped
        if (how) co_return;  // the link was given up meanwhile
        std::byte none{};
        static_cast<void>(co_await as_result(end.send(std::span(&none, 1), goodbye_tag)));
        static_cast<void>(co_await as_result(end.recv(std::span(&none, 1), goodbye_tag)));
    }(address, by_rendezvous));
}

/// Ends when the child stands still.
task<> until_stopped(child_process& child) {
    for (int status = 0;;) {
        if (::waitpid(child.pid(), &status, WNOHANG | WUNTRACED) == child.pid()) {
            REQUIRE(WIFSTOPPED(status));
            co_return;
        }
        co_await yield();
    }
}

/// Another link of the same domain, whose ends bounce a message while something else is watched.
struct link_beside {
    endpoint<shm> near;
    endpoint<shm> far;
    std::uint64_t rounds = 0;
    duration longest{};

    task<> bounce() {
        const time_point begin = scheduler::current()->now();
        const std::uint64_t sent = ++rounds;
        std::uint64_t got = 0;
        auto receiving = start(far.recv(room_for(got), 1));
        co_await near.send(bytes_of(sent), 1);
        co_await receiving;
        if (got != sent) FAIL("another message came");
        longest = std::max(longest, scheduler::current()->now() - begin);
    }
};

struct stopped_in_a_put {
    child_process& child;
    shm::domain& domain;
    end_of_link peer;
    link_beside other;
    shared_memory piece;
    region open;
};

/// The child has connected, and there is another link.
task<stopped_in_a_put> stopped_in_a_put_over(child_process& child, shm::domain& in, shm::domain& beside) {
    stopped_in_a_put made{child, in, {}, {}, in.allocate_shared(put_bytes), {}};
    auto listening = co_await listen<shm, put_list>(in, shm_test_name());
    child.tell(listening.address());
    made.peer = co_await listening.accept();
    auto others = co_await listen<shm>(in, shm_test_name());
    auto accepting = start(others.accept());
    made.other.near = co_await connect<shm>(beside, others.address());
    made.other.far = co_await accepting;
    co_return made;
}

void run_with_stopping(child_process& child, task<> (*body)(stopped_in_a_put&)) {
    scheduler on{impatient{}};
    shm::domain in(on);
    shm::domain beside(on);
    on.run([](child_process& of, shm::domain& one, shm::domain& two,
              task<> (*what)(stopped_in_a_put&)) -> task<> {
        auto made = co_await stopped_in_a_put_over(of, one, two);
        co_await timeout(what(made), 50s);
    }(child, in, beside, body));
}

void let_go_on(const child_process& child) { REQUIRE(::kill(child.pid(), SIGCONT) == 0); }

}  // namespace

TEST_CASE("a peer that is stopped in mid-put, and goes on when the memory is closed, writes to no memory of "
          "another's") {
    child_process child([](const std::string& address) { put_and_stop(address, false); });
    run_with_stopping(child, [](stopped_in_a_put& w) -> task<> {
        w.open = w.domain.register_memory(w.piece.bytes(), access_rights::remote_write);
        const remote_region there = w.open.remote();
        co_await w.peer.send(std::as_bytes(std::span(&there, 1)), told_tag);
        co_await until_stopped(w.child);
        const std::span<std::byte> was = w.piece.bytes();
        CHECK(was[copied_before] == their_byte);
        CHECK(all_are(std::byte{0}, was.subspan(unreadable_at + fault_page)));
        const time_point begin = scheduler::current()->now();
        w.open.reset();
        CHECK(scheduler::current()->now() - begin >= mark_patience::most / 2);
        const auto lost = co_await as_result(w.peer.recv({}, goodbye_tag));
        CHECK(lost.error() == errc::protocol_violation);
        w.piece.reset();
        shared_memory next = w.domain.allocate_shared(put_bytes);
        CHECK(next.bytes().data() != was.data());
        std::fill(next.bytes().begin(), next.bytes().end(), our_byte);
        let_go_on(w.child);
        CHECK(w.child.wait() == 0);
        CHECK(all_are(their_byte, was.subspan(unreadable_at)));  // it did go on
        CHECK(all_are(our_byte, next.bytes()));
        const shared_memory again = w.domain.allocate_shared(put_bytes);  // it has ended
        CHECK(again.bytes().data() == was.data());
        CHECK(all_are(std::byte{0}, again.bytes()));
    });
}

TEST_CASE(
    "a receive that is canceled while its sender is stopped in mid-put waits for it, and nothing else does") {
    child_process child([](const std::string& address) { put_and_stop(address, true); });
    run_with_stopping(child, [](stopped_in_a_put& w) -> task<> {
        local_stop_source stop;
        auto receiving = start(as_result(with_stop(w.peer.recv(w.piece.bytes(), put_tag), stop.get_token())));
        co_await until_stopped(w.child);
        CHECK(w.piece.bytes()[copied_before] == their_byte);
        stop.request_stop();
        for (int n = 0; n < 500; ++n) co_await w.other.bounce();
        CHECK(w.other.longest < mark_patience::most / 2);
        CHECK_FALSE(receiving.done());
        let_go_on(w.child);
        const auto ended = co_await receiving;
        CHECK(ended.error() == errc::canceled);
        std::fill(w.piece.bytes().begin(), w.piece.bytes().end(), our_byte);
        // The link goes on: the next word of its sender comes over it.
        std::byte none{};
        co_await w.peer.recv(std::span(&none, 1), goodbye_tag);
        co_await w.peer.send(std::span<const std::byte>(&none, 1), goodbye_tag);
        CHECK(all_are(our_byte, w.piece.bytes()));
        CHECK(w.child.wait() == 0);
    });
}

TEST_CASE(
    "a sender that stays stopped in mid-put loses its link after a while, in which nothing else waits") {
    child_process child([](const std::string& address) { put_and_stop(address, true); });
    run_with_stopping(child, [](stopped_in_a_put& w) -> task<> {
        local_stop_source stop;
        auto receiving = start(as_result(with_stop(w.peer.recv(w.piece.bytes(), put_tag), stop.get_token())));
        co_await until_stopped(w.child);
        stop.request_stop();
        const time_point begin = scheduler::current()->now();
        while (!receiving.done()) co_await w.other.bounce();
        const duration took = scheduler::current()->now() - begin;
        CHECK(took >= mark_patience::most / 2);
        CHECK(took < 5 * mark_patience::most);
        CHECK(w.other.rounds > 100);
        CHECK(w.other.longest < mark_patience::most / 2);
        const auto ended = co_await receiving;
        CHECK(ended.error() == errc::protocol_violation);
        // What it may be writing to is given to nothing else before it goes on or ends.
        const std::byte* const was = w.piece.bytes().data();
        w.piece.reset();
        {
            const shared_memory next = w.domain.allocate_shared(put_bytes);
            CHECK(next.bytes().data() != was);
        }
        w.child.kill();
        static_cast<void>(w.child.wait());
        const shared_memory again = w.domain.allocate_shared(put_bytes);
        CHECK(again.bytes().data() == was);
    });
}

}  // namespace test_faults_shm_stopped_peer
