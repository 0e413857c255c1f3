// The memory of an idle link, with very many of them: one process has one end of each, a second the other.
//
// Descriptors are the limit: an shm end takes two (its socket, and the peer's process), a tcp end one. The soft limit of
// RLIMIT_NOFILE is raised to the hard one, and there are as many links as that allows, up to the number asked for; where
// that is less, the case says that it was skipped, and with how many it ran. An shm end also takes five mappings, of which a process has 65,530 by default (vm.max_map_count). Links that carried much before are idle like
// the others once they have been quiet for a second or two: then the memory of what they carried is the system's again.
#include <rdmacoro/rdmacoro.hpp>
#if RDMACORO_WITH_TCP
#include <rdmacoro/transport/tcp.hpp>
#endif

#include "support/bytes.hpp"
#include "support/catch.hpp"
#include "support/child_process.hpp"
#include "support/counting_new.hpp"
#include "support/run.hpp"
#include "support/shm_pair.hpp"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <ctime>
#include <fstream>
#include <stdexcept>
#include <string>
#include <vector>

#include <malloc.h>
#include <sys/resource.h>

namespace test_faults_idle_links {

using namespace rdmacoro;
using namespace rdmacoro::test;
using namespace std::chrono_literals;

namespace {

/// Memory of this process, in KiB, or of each of its links.
struct pages {
    double anonymous = 0;  // not what it has freed and the allocator keeps
    double shared = 0;
    double tables = 0;  // the kernel's page tables

    [[nodiscard]] double resident() const { return anonymous + shared; }
};

pages held_by(const std::string& process) {
    std::ifstream status("/proc/" + process + "/status");
    pages all;
    for (std::string word; status >> word;) {
        if (word == "RssAnon:") status >> all.anonymous;
        if (word == "RssShmem:") status >> all.shared;
        if (word == "VmPTE:") status >> all.tables;
    }
    return all;
}

pages held() {
    ::malloc_trim(0);
    return held_by("self");
}

double resident() { return held().resident(); }

/// What it holds once links are idle: their rings' pages go back to the system after they were quiet for a second or two.
task<pages> settled() {
    constexpr auto quiet_for = 2500ms;
    const time_point limit = scheduler::current()->now() + 20s;
    pages now = held();
    for (time_point changed = scheduler::current()->now();
         scheduler::current()->now() < std::min(changed + quiet_for, limit);) {
        co_await sleep_for(50ms);
        const pages later = held();
        if (later.resident() < now.resident()) changed = scheduler::current()->now();
        now = later;
    }
    co_return now;
}

constexpr std::size_t others = 64;  // descriptors that are no links

std::size_t allowed(std::size_t wanted, std::size_t descriptors) {
    rlimit limit{};
    REQUIRE(::getrlimit(RLIMIT_NOFILE, &limit) == 0);
    limit.rlim_cur = limit.rlim_max;
    REQUIRE(::setrlimit(RLIMIT_NOFILE, &limit) == 0);
    return std::min<std::size_t>(wanted,
                                 (std::max<rlim_t>(limit.rlim_cur, 2 * others) - others) / descriptors);
}

std::string too_few(std::size_t links, std::size_t wanted, std::size_t descriptors) {
    return "ran with " + std::to_string(links) + " links; for " + std::to_string(wanted) + " it needs " +
           std::to_string(wanted * descriptors + others) + " descriptors (ulimit -Hn)";
}

constexpr std::size_t warm = 50;

template <class T>
task<> connects(std::string address, std::size_t links) {
    std::vector<endpoint<T>> ends;
    ends.reserve(links);
    for (std::size_t n = 0; n < links; ++n) {
        if (n == warm) co_await ends.front().recv(std::span<std::byte>());  // the others' memory is measured
        ends.push_back(co_await connect<T>(address));
    }
    // Each hears its number, and answers.
    for (std::size_t n = 0; n < links; ++n) {
        std::uint64_t number = 0;
        co_await ends[n].recv(room_for(number));
        ++number;
        co_await ends[n].send(bytes_of(number));
    }
    std::byte none{};
    static_cast<void>(
        co_await as_result(ends.front().recv(std::span(&none, 1))));  // until the other side is done
}

// The traffic of each link, each way, before it is idle: more than a ring's memory is worth, and several blocks.
constexpr std::uint64_t short_messages = 400;
constexpr std::size_t long_message = 200'000;
constexpr tag_type short_one_tag = 1;
constexpr tag_type long_one_tag = 2;

/// Sends all that, or takes it.
template <class T>
task<> carries(endpoint<T>& over, std::vector<std::byte>& memory, bool sends, std::size_t& wrong) {
    for (std::uint64_t n = 0; n < short_messages; ++n) {
        std::uint64_t number = n;
        if (sends) {
            co_await over.send(bytes_of(number), short_one_tag);
        } else {
            co_await over.recv(room_for(number), short_one_tag);
            if (number != n) ++wrong;
        }
    }
    if (sends) {
        co_await over.send(memory, long_one_tag);
    } else {
        co_await over.recv(memory, long_one_tag);
    }
}

template <class T>
task<> connects_and_carries(std::string address, std::size_t links) {
    std::vector<endpoint<T>> ends;
    ends.reserve(links);
    for (std::size_t n = 0; n < links; ++n) ends.push_back(co_await connect<T>(address));
    std::vector<std::byte> memory(long_message);
    std::size_t wrong = 0;
    for (auto& end : ends) {
        co_await carries(end, memory, true, wrong);
        co_await carries(end, memory, false, wrong);
    }
    if (wrong != 0) throw std::runtime_error("other messages came");
    for (auto& end : ends) {  // the first when the other side has measured
        co_await carries(end, memory, false, wrong);
        co_await carries(end, memory, true, wrong);
    }
    if (wrong != 0) throw std::runtime_error("other messages came after the pause");
}

/// The memory in use, in KiB for each link, and the rest of it once the links are idle.
struct memory_of_links {
    double used = 0;
    double idle = 0;
};

template <class T>
task<> accepts_and_carries(child_process& other, std::string where, std::size_t links, memory_of_links& kib) {
    auto listening = co_await listen<T>(where);
    other.tell(listening.address());
    std::vector<endpoint<T>> ends;
    ends.reserve(links);
    std::vector<std::byte> memory(long_message);
    double before = 0;
    while (ends.size() < links) {
        if (ends.size() == warm) before = resident();
        ends.push_back(co_await listening.accept());
    }
    std::size_t wrong = 0;
    for (auto& end : ends) {
        co_await carries(end, memory, false, wrong);
        co_await carries(end, memory, true, wrong);
    }
    CHECK(wrong == 0);
    const auto for_each = [&] { return (resident() - before) / static_cast<double>(links - warm); };
    kib.used = for_each();
    const time_point limit = scheduler::current()->now() + 20s;
    do {
        for (int n = 0; n < 1000; ++n) co_await yield();
        kib.idle = for_each();
    } while (counts_allocations && kib.idle > 16 && scheduler::current()->now() < limit);
    for (auto& end : ends) {  // they work as before
        co_await carries(end, memory, true, wrong);
        co_await carries(end, memory, false, wrong);
    }
    CHECK(wrong == 0);
}

/// What idle links cost.
struct costs {
    pages of_each;
    double opening = 0;  // of all: seconds of this process's processor time
};

template <class T>
task<> accepts(child_process& other, std::string where, std::size_t links, costs& found) {
    auto listening = co_await listen<T>(where);
    other.tell(listening.address());
    std::vector<endpoint<T>> ends;
    ends.reserve(links);
    pages before;
    std::clock_t first = 0;
    while (ends.size() < links) {
        if (ends.size() == warm) {
            before = co_await settled();
            co_await ends.front().send(std::span<const std::byte>());
            first = std::clock();
        }
        ends.push_back(co_await listening.accept());
    }
    found.opening = static_cast<double>(std::clock() - first) / CLOCKS_PER_SEC;
    const pages after = co_await settled();
    const auto for_each = [&](double pages::* kind) {
        return (after.*kind - before.*kind) / static_cast<double>(links - warm);
    };
    found.of_each = {for_each(&pages::anonymous), for_each(&pages::shared), for_each(&pages::tables)};
    std::size_t wrong = 0;
    for (std::uint64_t n = 0; n < links; ++n) {
        std::uint64_t back = 0;
        co_await ends[n].send(bytes_of(n));
        co_await ends[n].recv(room_for(back));
        if (back != n + 1) ++wrong;
    }
    CHECK(wrong == 0);
}

/// What a link may cost, in all: also for page tables.
constexpr double most_kib = 16;
// An shm link opens in about a millisecond. Where sockets are looked at after so many polls, and each polls all links, a thousand take
// 7 to 15 s.
constexpr double most_opening = 5;  // of a thousand

constexpr std::size_t shm_descriptors = 2;
constexpr std::size_t tcp_descriptors = 1;

template <class T>
void costs_little(std::size_t wanted, std::size_t descriptors, const std::string& where) {
    const std::size_t links = allowed(wanted, descriptors);
    CAPTURE(links);
    CHECK(links > 2 * warm);
    child_process other([&](const std::string& address) {
        scheduler on{idle::yield{}};
        on.run(connects<T>(address, links));
    });
    costs found;
    {
        scheduler on{idle::yield{}};
        on.run([](child_process& of, const std::string& at, std::size_t count, costs& into) -> task<> {
            co_await timeout(accepts<T>(of, at, count, into), 60s);
        }(other, where, links, found));
    }
    CHECK(other.wait() == 0);
    std::printf(
        "%zu links, %.1f KiB for each end (%.1f private, %.1f shared), %.1f KiB of page tables, open in "
        "%.2f s of a processor\n",
        links, found.of_each.resident(), found.of_each.anonymous, found.of_each.shared, found.of_each.tables,
        found.opening);
    if (counts_allocations) {
        CHECK(found.of_each.resident() + found.of_each.tables <= most_kib);
        CHECK(found.opening <= most_opening * static_cast<double>(std::max<std::size_t>(links, 1000)) / 1000);
    }
    if (links < wanted) SKIP_TEST(too_few(links, wanted, descriptors));
}

template <class T>
void costs_little_after_use(std::size_t wanted, std::size_t descriptors, const std::string& where,
                            double used_at_least) {
    const std::size_t links = allowed(wanted, descriptors);
    CAPTURE(links);
    CHECK(links > 2 * warm);
    child_process other([&](const std::string& address) {
        scheduler on{idle::yield{}};
        on.run(connects_and_carries<T>(address, links));
    });
    memory_of_links kib;
    {
        scheduler on{idle::yield{}};
        on.run([](child_process& of, const std::string& at, std::size_t count,
                  memory_of_links& found) -> task<> {
            co_await timeout(accepts_and_carries<T>(of, at, count, found), 60s);
        }(other, where, links, kib));
    }
    CHECK(other.wait() == 0);
    std::printf("%zu links, used %.1f KiB for each end, idle after that %.1f KiB\n", links, kib.used,
                kib.idle);
    if (counts_allocations) {
        CHECK(kib.used > used_at_least);  // else there was nothing to return
        CHECK(kib.idle <= 16);
    }
    if (links < wanted) SKIP_TEST(too_few(links, wanted, descriptors));
}

/// Under a sanitizer memory is not what it is without: fewer show that nothing goes wrong.
constexpr std::size_t many(std::size_t links) { return counts_allocations ? links : links / 4; }

// ---- links that were idle, and of which one side only sends, gets or puts

constexpr std::size_t one_sided = 300;
constexpr std::size_t half_a_kib = 512;
/// Of a ring, which the peer does not read while it is stopped. Less than an eighth of it.
constexpr int unread_messages = 18;
constexpr tag_type last_tag = 3;

/// Receives what comes over one link; answers messages that ask for it.
task<> takes_all(endpoint<shm>& over) {
    std::byte memory[half_a_kib];
    for (;;) {
        const auto got = co_await as_result(over.recv(memory));
        if (!got) co_return;
        if (got->tag == last_tag) co_await over.send(std::span<const std::byte>(), last_tag);
    }
}

task<> serves(std::string address) {
    std::uint64_t word = 42;
    shm::domain in(*scheduler::current());
    const region exposed = in.register_memory(std::span(&word, 1));
    std::vector<endpoint<shm>> ends;
    ends.reserve(one_sided);
    for (std::size_t n = 0; n < one_sided; ++n) ends.push_back(co_await connect<shm>(in, address));
    const remote_region key = exposed.remote();
    co_await ends.front().send(bytes_of(key));
    task_group receivers;
    for (auto& end : ends) receivers.spawn(takes_all, std::ref(end));
    co_await receivers.join();
}

enum class use : int { messages, gets, messages_to_a_stopped_peer };

/// Shared memory in KiB for each end, beyond that of links that were never used.
struct extra_memory {
    double used = 0;
    double left = 0;
    double left_to_peer = 0;
};

task<> uses_one_side(child_process& other, use how, extra_memory& found) {
    auto listening = co_await listen<shm>(shm_test_name());
    other.tell(listening.address());
    std::vector<endpoint<shm>> ends;
    ends.reserve(one_sided);
    for (std::size_t n = 0; n < one_sided; ++n) ends.push_back(co_await listening.accept());
    remote_region there;
    co_await ends.front().recv(room_for(there));
    const std::string peer = std::to_string(other.pid());
    const std::vector<std::byte> message(half_a_kib);
    // It sleeps, so that nothing but the domain's own timer wakes it.
    constexpr auto quiet_for = 3s;
    co_await sleep_for(quiet_for);
    const double before = held().shared;
    const double peer_before = held_by(peer).shared;
    const auto for_each = [](double kib) { return kib / static_cast<double>(one_sided); };
    std::size_t wrong = 0;
    if (how == use::messages_to_a_stopped_peer) {
        for (auto& end : ends) {  // one each way, so that this side polls the links
            co_await end.send(message, last_tag);
            co_await end.recv(std::span<std::byte>(), last_tag);
        }
        ::kill(other.pid(), SIGSTOP);
    }
    for (int n = 0; n < (how == use::messages_to_a_stopped_peer ? unread_messages : 1); ++n) {
        for (auto& end : ends) {
            if (how == use::gets) {
                std::uint64_t word = 0;
                co_await end.rdma_get(there, room_for(word));
                if (word != 42) ++wrong;
            } else {
                co_await end.send(message);
            }
        }
    }
    CHECK(wrong == 0);
    found.used = for_each(held().shared - before);
    co_await sleep_for(quiet_for);
    if (how == use::messages_to_a_stopped_peer) {
        ::kill(other.pid(), SIGCONT);
        co_await sleep_for(quiet_for);
    }
    found.left = for_each(held().shared - before);
    found.left_to_peer = for_each(held_by(peer).shared - peer_before);
}

void gives_back_what_one_side_took(use how, double used_at_least) {
    if (allowed(one_sided, shm_descriptors) < one_sided) SKIP_TEST(too_few(0, one_sided, shm_descriptors));
    child_process other([](const std::string& address) {
        scheduler on;
        on.run(serves(address));
    });
    extra_memory kib;
    {
        scheduler on;
        on.run([](child_process& of, use way, extra_memory& found) -> task<> {
            co_await timeout(uses_one_side(of, way, found), 60s);
        }(other, how, kib));
    }
    CHECK(other.wait() == 0);
    std::printf("%zu links, shared memory for each end beyond that of idle ones: used %.1f KiB, idle after "
                "that %.1f KiB, the peer's %.1f KiB\n",
                one_sided, kib.used, kib.left, kib.left_to_peer);
    if (!counts_allocations) return;
    CHECK(kib.used > used_at_least);  // else there was nothing to return
    CHECK(kib.left <= 1);
    // A page of a link that the peer still polled when it fell asleep, and looked at when it woke up.
    CHECK(kib.left_to_peer <= 4.5);
}

}  // namespace

TEST_CASE(
    "an idle shm link gives back the memory that one side took by sending, while its scheduler sleeps") {
    gives_back_what_one_side_took(use::messages, 4);
}

TEST_CASE("an idle shm link gives back the memory that one side took by gets, while its scheduler sleeps") {
    gives_back_what_one_side_took(use::gets, 2);
}

TEST_CASE(
    "an idle shm link gives back the memory of messages that a stopped peer has read after it went on") {
    gives_back_what_one_side_took(use::messages_to_a_stopped_peer, 8);
}

TEST_CASE("each of a thousand idle shm links takes 16 KiB of memory at most, and works, and they open within "
          "seconds") {
    costs_little<shm>(1000, shm_descriptors, shm_test_name());
}

TEST_CASE("shm links that carried much take 16 KiB each again when they are idle") {
    costs_little_after_use<shm>(many(500), shm_descriptors, shm_test_name(), 100);
}

TEST_CASE("each of ten thousand idle shm links takes 16 KiB of memory at most, and works", "[nightly]") {
    costs_little<shm>(10000, shm_descriptors, shm_test_name());
}

#if RDMACORO_WITH_TCP
TEST_CASE("each of a thousand idle tcp links takes 16 KiB of memory at most, and works") {
    costs_little<tcp>(1000, tcp_descriptors, "tcp://127.0.0.1:0");
}

TEST_CASE("tcp links that carried much take 16 KiB each when they are idle") {
    costs_little_after_use<tcp>(many(2000), tcp_descriptors, "tcp://127.0.0.1:0", 0);
}

TEST_CASE("each of ten thousand idle tcp links takes 16 KiB of memory at most, and works", "[nightly]") {
    costs_little<tcp>(10000, tcp_descriptors, "tcp://127.0.0.1:0");
}
#endif

}  // namespace test_faults_idle_links
