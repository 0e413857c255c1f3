#include <rdmacoro/transport/shm/domain.hpp>

#include <rdmacoro/coro/sleep_for.hpp>

#include "support/catch.hpp"
#include "support/child_process.hpp"
#include "support/death.hpp"
#include "support/held.hpp"
#include "support/run.hpp"
#include "support/shm_pair.hpp"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <limits>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

namespace test_transport_shm_domain {

using namespace rdmacoro;
using namespace rdmacoro::detail::shm;

namespace {

struct counting_handler : fd_handler {
    domain_base* domain = nullptr;
    fd_handler* unwatches = nullptr;
    unsigned calls = 0;
    duration takes{};
    unique_fd fd{::eventfd(1, EFD_NONBLOCK | EFD_CLOEXEC)};

    counting_handler() {
        ready = [](fd_handler& self, std::uint32_t) noexcept {
            auto& mine = static_cast<counting_handler&>(self);
            ++mine.calls;
            for (const auto end = std::chrono::steady_clock::now() + mine.takes; mine.takes.count() != 0;) {
                if (std::chrono::steady_clock::now() >= end) break;
            }
            if (mine.unwatches != nullptr) mine.domain->unwatch(*mine.unwatches);
        };
    }
};

/// From here on the kernel refuses this process one call: the seal that Linux has since 5.1, or epoll_create1.
void refuse(std::uint32_t call) {
    constexpr auto field = [](std::size_t offset) { return static_cast<std::uint32_t>(offset); };
    const bool seal = call == SYS_fcntl;
    sock_filter program[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, field(offsetof(seccomp_data, nr))),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 5),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS,
                 field(seal ? offsetof(seccomp_data, args[1]) : offsetof(seccomp_data, nr))),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, seal ? std::uint32_t{F_ADD_SEALS} : call, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS,
                 field(seal ? offsetof(seccomp_data, args[2]) : offsetof(seccomp_data, nr))),
        BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, seal ? std::uint32_t{F_SEAL_FUTURE_WRITE} : call, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EINVAL),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const sock_fprog filter{sizeof program / sizeof program[0], program};
    if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
        ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) != 0)
        throw std::runtime_error("seccomp");
}

/// The tables of regions that are mapped.
int mapped_tables() {
    int count = 0;
    std::ifstream maps("/proc/self/maps");
    for (std::string line; std::getline(maps, line);)
        count += line.find("rdmacoro-regions") != std::string::npos ? 1 : 0;
    return count;
}

}  // namespace

TEST_CASE(
    "watched descriptors are looked at when the scheduler has nothing else, and no more once unwatched") {
    scheduler on;
    domain_base domain(on, {});
    counting_handler handler;
    domain.watch(handler, handler.fd.get(), EPOLLIN);
    domain.arm();  // the next poll looks
    CHECK(domain.poll());
    CHECK(handler.calls == 1);
    domain.disarm();
    CHECK(domain.poll());
    CHECK(handler.calls == 2);
    domain.unwatch(handler);
    domain.unwatch(handler);
    domain.arm();
    CHECK_FALSE(domain.poll());
    domain.disarm();
    CHECK(handler.calls == 2);
}

TEST_CASE("a handler that another unwatches in the same round is not called") {
    scheduler on;
    domain_base domain(on, {});
    counting_handler handlers[2];
    for (int n = 0; n < 2; ++n) {
        handlers[n].domain = &domain;
        handlers[n].unwatches = &handlers[1 - n];
        domain.watch(handlers[n], handlers[n].fd.get(), EPOLLIN);
    }
    domain.arm();
    CHECK(domain.poll());
    domain.disarm();
    CHECK(handlers[0].calls + handlers[1].calls == 1);
    for (counting_handler& handler : handlers) domain.unwatch(handler);
}

TEST_CASE("handlers that take long are called in as many polls, each in its turn") {
    scheduler on;
    domain_base domain(on, {});
    counting_handler handlers[5];
    for (counting_handler& handler : handlers) {
        handler.takes = std::chrono::milliseconds(1);
        domain.watch(handler, handler.fd.get(), EPOLLIN);
    }
    const auto calls = [&] {
        unsigned all = 0;
        for (const counting_handler& handler : handlers) all += handler.calls;
        return all;
    };
    domain.arm();
    for (unsigned n = 1; n <= 4; ++n) {
        CHECK(domain.poll());
        CHECK(calls() == n);
    }
    for (const counting_handler& handler : handlers) CHECK(handler.calls <= 1);
    // One that is unwatched before its turn has none.
    counting_handler& last =
        *std::find_if(handlers, handlers + 5, [](const auto& each) { return each.calls == 0; });
    domain.unwatch(last);
    for (int n = 0; n < 5; ++n) {
        domain.arm();  // looks at once
        CHECK(domain.poll());
    }
    CHECK(last.calls == 0);
    CHECK(calls() == 8);
    for (const counting_handler& handler : handlers) CHECK(handler.calls == (&handler == &last ? 0u : 2u));
    domain.disarm();
    for (counting_handler& handler : handlers) domain.unwatch(handler);
}

TEST_CASE("an arena that peers would refuse is refused when the domain opens") {
    scheduler on;
    for (const std::size_t bytes :
         {std::size_t{0}, detail::shm::arena::most_bytes + 1, std::numeric_limits<std::size_t>::max()}) {
        CAPTURE(bytes);
        shm_options options;
        options.arena_bytes = bytes;
        CHECK_THROWS_WITH(domain_base(on, options), test::contains("arena_bytes: 1 byte to 64 TiB"));
    }
    shm_options most;
    most.arena_bytes = detail::shm::arena::most_bytes;
    const domain_base opened(on, most);
    CHECK(opened.options().arena_bytes == detail::shm::arena::most_bytes);
}

TEST_CASE("a domain whose peers have no time for their hello is refused") {
    scheduler on;
    shm_options options;
    options.handshake_limit = GENERATE(duration::zero(), duration(-1));
    CHECK_THROWS_WITH(domain_base(on, options), test::contains("handshake_limit: more than 0"));
}

TEST_CASE("a domain that the system refuses a seal or an epoll leaves nothing mapped and nothing open") {
    const auto call = GENERATE(std::uint32_t{SYS_fcntl}, std::uint32_t{SYS_epoll_create1});
    CAPTURE(call);
    test::child_process child([&](const std::string&) {
        enum : int { nothing_left, no_table_seen, not_refused, mapping_left, descriptor_left };
        scheduler on;
        {
            const domain_base good(on, {});
            if (mapped_tables() != 1) ::_exit(no_table_seen);
        }
        refuse(call);
        const std::size_t open = test::open_descriptors();
        bool refused = false;
        try {
            const domain_base domain(on, {});
        } catch (const error& thrown) {
            refused = thrown.code() == std::error_code(EINVAL, std::system_category());
        }
        ::_exit(!refused                           ? not_refused
                : mapped_tables() != 0             ? mapping_left
                : test::open_descriptors() != open ? descriptor_left
                                                   : nothing_left);
    });
    child.tell("go");
    const int status = child.wait();
    REQUIRE(WIFEXITED(status));
    CHECK(WEXITSTATUS(status) == 0);
}

TEST_CASE("the table of regions has as many places as the options say, and peers can't write it") {
    scheduler on;
    shm_options few;
    few.max_regions = 2;
    domain_base domain(on, few);
    std::vector<std::byte> memory(8);
    const region one = domain.register_memory(memory);
    region other = domain.register_memory(memory);
    CHECK_THROWS_AS(static_cast<void>(domain.register_memory(memory)), error);
    CHECK_FALSE(domain.try_register(memory, access_rights::all));
    other.reset();
    CHECK(domain.try_register(memory, access_rights::all));
    void* writable = ::mmap(nullptr, page_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, domain.table_file(), 0);
    CHECK(writable == MAP_FAILED);
}

TEST_CASE("shared memory that is allocated or given back on another thread ends the process with a message") {
    for (const bool allocates : {true, false}) {
        CAPTURE(allocates);
        const test::death seen = test::dies([allocates] {
            scheduler on;
            domain_base domain(on, {});
            on.run([](domain_base& from, bool elsewhere) -> task<> {
                shared_memory memory;
                if (!elsewhere) memory = from.allocate_shared(1);
                std::thread([&] {
                    if (elsewhere) {
                        memory = from.allocate_shared(1);
                    } else {
                        memory.reset();
                    }
                }).join();
                co_return;
            }(domain, allocates));
        });
        CHECK(seen.aborted);
        CHECK_THAT(seen.said, test::contains("shared memory of scheduler") &&
                                  test::contains(allocates ? "was allocated" : "was given back"));
    }
}

namespace {

/// A link that counts what its domain asks of it.
struct counting_link final : pollable {
    unsigned polls = 0;
    unsigned waits = 0;
    unsigned notices_wanted = 0;
    unsigned looks = 0;      // by `wants_poll`
    unsigned quiets = 0;     // calls of `quiet`
    unsigned records = 0;    // that have come
    bool busy = false;       // reads a record between any two calls of `quiet`
    std::uint64_t mark = 0;  // that the peer has set
    std::uint32_t notice = 0;
    std::uint32_t touch_notice = 0;
    std::uint64_t awaited = 0;
    time_point awaited_until{};
    bool holds = false;       // memory that could be returned
    bool sent = true;         // something since `return_memory` was called last
    bool peer_keeps = false;  // that memory
    bool kept = false;        // it did when it was to be returned
    unsigned returns = 0;
    unsigned given_back = 0;
    domain_base* ends_in_poll_of = nullptr;

    ~counting_link() = default;
    unsigned poll(unsigned) noexcept final {
        ++polls;
        if (ends_in_poll_of != nullptr) std::exchange(ends_in_poll_of, nullptr)->remove_link(*this);
        return std::exchange(records, 0);
    }
    void want_notice(std::uint32_t word) noexcept final {
        ++notices_wanted;
        notice = word;
    }
    bool quiet() noexcept final {
        ++quiets;
        return records == 0 && !busy;
    }
    void give_back() noexcept final { ++given_back; }
    bool wants_poll() noexcept final {
        ++looks;
        return records != 0 || busy;
    }
    void want_touch_notice(std::uint32_t word) noexcept final { touch_notice = word; }
    bool touched(std::uint64_t key) noexcept final { return mark != 0 && (key == 0 || mark == key); }
    void wait_until_untouched(std::uint64_t key, std::span<std::byte>, mark_wait& wait) noexcept final {
        ++waits;
        while (touched(key) && !wait.over()) {}
    }
    void await_untouched(std::uint64_t key, std::span<std::byte>, time_point until) noexcept final {
        awaited = key;
        awaited_until = until;
    }
    bool awaits_untouched(time_point now) noexcept final {
        if (awaited != 0 && touched(awaited) && now < awaited_until) return true;
        awaited = 0;
        return false;
    }
    bool holds_memory() noexcept final { return holds && (sent || !kept || !peer_keeps); }
    bool return_memory() noexcept final {
        ++returns;
        if (std::exchange(sent, false)) return true;
        kept = peer_keeps;
        if (!kept) holds = false;
        return false;
    }
    /// As a peer does: marks, and announces where that is wanted.
    void touch(domain_base& of, std::uint64_t key) {
        mark = key;
        if (touch_notice != 0) of.shared_arena().touch_board()->keep_marked(touch_notice - 1);
    }
};

struct many_counting_links {
    scheduler on;
    domain_base domain{on, {}};
    std::vector<std::unique_ptr<counting_link>> links;

    explicit many_counting_links(std::size_t count) {
        domain.shared_arena().open();  // as the first handshake does
        for (std::size_t n = 0; n < count; ++n) {
            links.push_back(std::make_unique<counting_link>());
            domain.add_link(*links.back());
        }
    }
    ~many_counting_links() {
        for (auto& link : links) domain.remove_link(*link);
    }
    /// A whole round.
    void cool() {
        while (domain.cool()) {}
    }
    [[nodiscard]] unsigned polls() const {
        unsigned all = 0;
        for (const auto& link : links) all += link->polls;
        return all;
    }
    [[nodiscard]] unsigned waits() const {
        unsigned all = 0;
        for (const auto& link : links) all += link->waits;
        return all;
    }
    [[nodiscard]] unsigned looks() const {
        unsigned all = 0;
        for (const auto& link : links) all += link->looks;
        return all;
    }
    [[nodiscard]] unsigned quiets() const {
        unsigned all = 0;
        for (const auto& link : links) all += link->quiets;
        return all;
    }
    [[nodiscard]] unsigned notices_wanted() const {
        unsigned all = 0;
        for (const auto& link : links) all += link->notices_wanted;
        return all;
    }
};

}  // namespace

TEST_CASE("a turn polls the links that had news lately, not the idle ones") {
    many_counting_links many(1000);
    many.links[7]->busy = true;
    many.cool();
    CHECK(many.domain.hot_links() == 1);
    CHECK(many.links[7]->notice == 0);
    CHECK(many.links[8]->notice == many.links[8]->number());
    const unsigned before = many.polls();
    const unsigned before_active = many.links[7]->polls;
    for (int n = 0; n < 10; ++n) many.domain.poll();
    CHECK(many.polls() - before == many.links[7]->polls - before_active);
    CHECK(many.links[7]->polls > before_active);
}

TEST_CASE(
    "links become cold a few in each poll, however many are hot, and each is looked at once in a round") {
    many_counting_links many(3000);
    for (std::size_t n = 0; n < many.links.size(); n += 3) many.links[n]->busy = true;
    many.links[5]->busy = true;
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    unsigned most = 0;
    while (many.domain.hot_links() > 1001 && std::chrono::steady_clock::now() < limit) {
        const unsigned before = many.quiets();
        many.domain.poll();
        most = std::max(most, many.quiets() - before);
    }
    CHECK(many.domain.hot_links() == 1001);
    CHECK(most <= 2 * 64);  // those that seem quiet once more when they have asked for notice
    // One that goes away in the middle of a round has no part in who has had a look.
    while (many.domain.cool()) {}
    for (const auto& link : many.links) link->quiets = 0;
    CHECK(many.domain.cool());
    CHECK(many.quiets() == 64);
    many.domain.remove_link(*many.links[5]);
    many.links.erase(many.links.begin() + 5);
    many.cool();
    CHECK(std::all_of(many.links.begin(), many.links.end(),
                      [](const auto& link) { return link->quiets == (link->busy ? 1u : 0u); }));
}

TEST_CASE("the last hot link stays hot, and it is the one that was active last") {
    many_counting_links many(3);
    many.links[1]->busy = true;
    many.cool();
    many.links[1]->busy = false;
    many.domain.heat(*many.links[2]);
    many.links[1]->busy = true;
    many.cool();
    many.links[1]->busy = false;
    many.cool();
    CHECK(many.domain.hot_links() == 1);
    CHECK(many.links[1]->notice == 0);
    CHECK(many.links[2]->notice != 0);
}

TEST_CASE("a mark, or an operation that waits, makes a link hot, and marks without sense do nothing") {
    many_counting_links many(100);
    many.cool();
    counting_link& marked = *many.links[50];
    REQUIRE(marked.notice == marked.number());
    marked.records = 3;
    marked.busy = true;  // else it may be cold again before this looks
    const unsigned before = marked.polls;
    many.domain.shared_arena().board()->mark(marked.number() - 1);
    CHECK(many.domain.poll());
    CHECK(marked.polls > before);
    CHECK(marked.notice == 0);
    CHECK(marked.records == 0);
    many.domain.heat(*many.links[60]);
    CHECK(many.links[60]->notice == 0);
    CHECK(many.domain.hot_links() <= 3);
    many.domain.shared_arena().board()->mark(notice_board::most_links - 1);
    many.domain.shared_arena().board()->mark(100);
    many.domain.poll();
    CHECK(many.domain.hot_links() <= 3);
}

TEST_CASE("marks without cause cost one look each, and make no link hot") {
    many_counting_links many(1000);
    many.cool();
    many.links[500]->records = 1;
    many.links[501]->holds = true;  // its peer may have given back what it holds
    many.domain.arm();              // else some become cold again
    const unsigned before = many.polls();
    for (const auto& link : many.links) many.domain.shared_arena().board()->mark(link->number() - 1);
    for (int n = 0; n < 20; ++n) many.domain.poll();
    CHECK(many.domain.hot_links() == 3);
    CHECK(many.links[500]->records == 0);
    CHECK(many.polls() - before <= 1000 + 20 * 4 * 3);
    many.domain.disarm();
    CHECK(many.links[499]->notice == many.links[499]->number());
    CHECK(many.links[500]->notice == 0);
    CHECK(many.links[501]->notice == 0);
}

TEST_CASE("a link that is marked may end in the poll for that") {
    many_counting_links many(10);
    many.cool();
    REQUIRE(many.links[9]->notice == 0);  // stays hot
    for (std::size_t n = 0; n < 9; ++n) {
        many.links[n]->ends_in_poll_of = &many.domain;
        many.links[n]->records = n % 2;
        many.domain.shared_arena().board()->mark(many.links[n]->number() - 1);
    }
    many.domain.poll();
    CHECK(many.domain.cold_links() == 0);
    CHECK(many.domain.hot_links() == 1);
    many.links.erase(many.links.begin(), many.links.begin() + 9);
}

TEST_CASE(
    "while it sleeps each link has a way to wake it, and a link that closes gives its number to the next") {
    many_counting_links many(10);
    many.cool();
    many.domain.arm();
    for (const auto& link : many.links) CHECK(link->notice == link->number());
    many.domain.heat(*many.links[5]);
    CHECK(many.links[5]->notice != 0);
    many.domain.disarm();
    CHECK(many.links[5]->notice == 0);
    CHECK(many.domain.hot_links() == 2);
    const std::uint32_t freed = many.links.back()->number();
    many.domain.remove_link(*many.links.back());
    many.links.back() = std::make_unique<counting_link>();
    many.domain.add_link(*many.links.back());
    CHECK(many.links.back()->number() == freed);
}

TEST_CASE("to sleep and to wake up asks only the hot links for notice, however many are idle") {
    many_counting_links many(1000);
    many.cool();
    REQUIRE(many.domain.hot_links() == 1);
    const auto asked_by = [&](auto&& step) {
        const unsigned before = many.notices_wanted();
        step();
        return many.notices_wanted() - before;
    };
    CHECK(asked_by([&] { many.domain.arm(); }) == 1);
    for (const auto& link : many.links) CHECK(link->notice == link->number());
    CHECK(asked_by([&] { many.domain.disarm(); }) == 1);
    many.domain.heat(*many.links[10]);
    many.domain.heat(*many.links[20]);
    REQUIRE(many.domain.hot_links() == 3);
    CHECK(asked_by([&] { many.domain.arm(); }) == 3);
    CHECK(asked_by([&] { many.domain.disarm(); }) == 3);
}

TEST_CASE(
    "a doorbell without a mark makes the domain look at every link, a few at a time, whatever was marked "
    "before it") {
    const bool others_marked = GENERATE(false, true);
    CAPTURE(others_marked);
    many_counting_links many(100);
    many.cool();
    if (others_marked) {  // and none rang for that, as the domain was awake
        many.links[7]->records = 1;
        many.domain.shared_arena().board()->mark(many.links[7]->number() - 1);
        many.domain.poll();
        REQUIRE(many.links[7]->records == 0);
    }
    // Another peer has cleared the marks of both, which are cold.
    many.links[98]->records = 1;
    many.links[50]->records = 1;
    many.domain.rung(*many.links[50]);
    std::vector<unsigned> before;
    for (const auto& link : many.links) before.push_back(link->looks);
    many.domain.arm();
    unsigned most = 0;
    for (int n = 0; n < 20; ++n) {
        const unsigned seen = many.looks();
        many.domain.poll();
        most = std::max(most, many.looks() - seen);
    }
    many.domain.disarm();
    CHECK(many.links[98]->records == 0);
    CHECK(most > 0);
    CHECK(most <= 16);
    std::size_t looked_at = 0;
    for (std::size_t n = 0; n < many.links.size(); ++n) {
        INFO(n);
        CHECK(many.links[n]->looks - before[n] <= 1);
        looked_at += many.links[n]->looks - before[n];
    }
    CHECK(looked_at >= many.links.size() - 2);  // the others are hot
}

namespace {

/// The socket of a link over which the peer has rung.
struct ringing_handler : fd_handler {
    domain_base& domain;
    pollable& link;
    unique_fd fd{::eventfd(1, EFD_NONBLOCK | EFD_CLOEXEC)};

    ringing_handler(domain_base& of, pollable& over) : domain(of), link(over) {
        ready = [](fd_handler& self, std::uint32_t) noexcept {
            auto& mine = static_cast<ringing_handler&>(self);
            mine.domain.rung(mine.link);
            mine.domain.heat(mine.link);
            mine.domain.unwatch(mine);
        };
        domain.watch(*this, fd.get(), EPOLLIN);
    }
};

}  // namespace

TEST_CASE("doorbells of peers that have left their marks make the domain look at no other link") {
    const bool marked = GENERATE(true, false);
    const std::size_t ringers = GENERATE(std::size_t{2}, std::size_t{40});  // more than one look serves
    CAPTURE(marked, ringers);
    many_counting_links many(1000);
    many.cool();
    std::vector<std::unique_ptr<ringing_handler>> handlers;
    for (std::size_t n = 0; n < ringers; ++n) {
        handlers.push_back(std::make_unique<ringing_handler>(many.domain, *many.links[n]));
        many.links[n]->records = 1;
        if (marked) many.domain.shared_arena().board()->mark(many.links[n]->number() - 1);
    }
    many.domain.arm();  // else the clock looks at some, too
    const unsigned before = many.looks();
    for (int n = 0; n < 200; ++n) many.domain.poll();
    const unsigned looks = many.looks() - before;
    CHECK(looks <= (marked ? ringers : many.links.size() + ringers));
    CHECK(looks >= (marked ? 0 : many.domain.cold_links()));
    for (const auto& handler : handlers) CHECK(handler->watched < 0);
    many.domain.disarm();
}

TEST_CASE("the end of memory that one peer was told of looks at that peer alone, and does not wait") {
    many_counting_links many(100);
    std::vector<std::byte> memory(8);
    region told = many.domain.register_for(*many.links[3], memory, access_rights::all);
    const std::uint64_t key = told.remote().key;
    many.links[3]->touch(many.domain, key);
    many.links[4]->touch(many.domain, key);  // lies: it cannot know it
    const auto began = std::chrono::steady_clock::now();
    told.reset();
    CHECK(std::chrono::steady_clock::now() - began < mark_patience::most / 2);
    CHECK(many.waits() == 0);
    CHECK(many.links[3]->awaited == key);
    CHECK(many.links[4]->awaited == 0);
    // The link is asked until it is over.
    many.on.turn();
    CHECK(many.links[3]->awaited == key);
    many.links[3]->mark = 0;
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (many.links[3]->awaited != 0 && std::chrono::steady_clock::now() < limit) many.on.turn();
    CHECK(many.links[3]->awaited == 0);
    // A region that nothing touches.
    region untouched = many.domain.register_for(*many.links[5], memory, access_rights::all);
    untouched.reset();
    CHECK(many.links[5]->awaited == 0);
}

TEST_CASE("memory that was told to one peer, which has gone, is not the next one's with its number") {
    many_counting_links many(2);
    std::vector<std::byte> memory(8);
    region told = many.domain.register_for(*many.links[1], memory, access_rights::all);
    const std::uint32_t gone = many.links[1]->serial();
    CHECK(many.domain.check_served(gone, told.remote(), access_rights::remote_read) == errc::ok);
    const std::uint32_t number = many.links[1]->number();
    many.domain.remove_link(*many.links[1]);
    many.links[1] = std::make_unique<counting_link>();
    many.domain.add_link(*many.links[1]);
    REQUIRE(many.links[1]->number() == number);
    CHECK(many.domain.check_served(many.links[1]->serial(), told.remote(), access_rights::remote_read) ==
          errc::bad_key);
    many.links[1]->mark = told.remote().key;
    told.reset();
    CHECK(many.links[1]->awaited == 0);
}

TEST_CASE("the end of memory that any peer may have been told of looks at the links over which something was "
          "touched") {
    many_counting_links many(1000);
    std::vector<std::byte> memory(8);
    const auto end_one = [&] {
        const unsigned before = many.waits();
        region open = many.domain.register_memory(memory);
        open.reset();
        return many.waits() - before;
    };
    CHECK(end_one() == 1000);  // each once: none of them has been asked to announce what it touches
    CHECK(end_one() == 0);
    for (const auto& link : many.links) CHECK(link->touch_notice == link->number());
    // Two that touch something else now, and one that did.
    many.links[7]->touch(many.domain, 1);
    many.links[700]->touch(many.domain, 1);
    many.links[8]->touch(many.domain, 1);
    many.links[8]->mark = 0;
    CHECK(end_one() == 3);
    CHECK(many.links[7]->touch_notice == 0);
    CHECK(many.links[8]->touch_notice != 0);
    CHECK(end_one() == 2);  // they still do
    many.links[7]->mark = many.links[700]->mark = 0;
    CHECK(end_one() == 2);
    CHECK(end_one() == 0);
}

TEST_CASE("a peer that touches the memory is waited for, whether it announced that or was looked at before") {
    const bool announces = GENERATE(false, true);
    many_counting_links many(10);
    std::vector<std::byte> memory(8);
    if (announces) {
        region first = many.domain.register_memory(memory);
        first.reset();
        REQUIRE(many.links[6]->touch_notice != 0);
    }
    region open = many.domain.register_memory(memory);
    many.links[6]->touch(many.domain, open.remote().key);
    const auto began = std::chrono::steady_clock::now();
    open.reset();
    // It never lets go: all that there is to wait is used up.
    CHECK(std::chrono::steady_clock::now() - began >= mark_patience::most / 2);
    const auto later = std::chrono::steady_clock::now();
    region other = many.domain.register_memory(memory);
    many.links[6]->touch(many.domain, other.remote().key);
    other.reset();
    CHECK(std::chrono::steady_clock::now() - later < mark_patience::most / 2);
}

namespace {

/// A link over a real channel that waits for its peer as long as that takes.
struct patient_link final : pollable {
    explicit patient_link(channel_ref connected) : channel(std::move(connected)) {}

    unsigned poll(unsigned) noexcept override { return 0; }
    void want_notice(std::uint32_t) noexcept override {}
    bool quiet() noexcept override { return true; }
    void give_back() noexcept override {}
    bool wants_poll() noexcept override { return false; }
    void want_touch_notice(std::uint32_t word) noexcept override { channel->in.want_touch_notice(word); }
    bool touched(std::uint64_t key) noexcept override {
        const std::uint64_t marked = channel->in.region_in_use();
        return marked != 0 && (key == 0 || marked == key);
    }
    void wait_until_untouched(std::uint64_t key, std::span<std::byte>, mark_wait&) noexcept override {
        for (unsigned spins = 1; touched(key); ++spins) {
            if (spins % 64 == 0) std::this_thread::yield();
        }
    }
    void await_untouched(std::uint64_t, std::span<std::byte>, time_point) noexcept override {}
    bool awaits_untouched(time_point) noexcept override { return false; }
    bool holds_memory() noexcept override { return false; }
    bool return_memory() noexcept override { return false; }

    channel_ref channel;
};

/// Touches memory of another domain on a thread of its own, as soon as it is told of it, and until that is closed.
struct touching_peer {
    channel_ref own;
    std::unique_ptr<patient_link> at_owner;
    alignas(64) std::atomic<std::uint64_t> touches{0};  // the key of the memory
    std::atomic<std::uint64_t> times{0};

    void touch(remote_region there, const std::atomic<std::uint64_t>& key, const std::atomic<bool>& stop) {
        while (!stop.load(std::memory_order_relaxed)) {
            there.key = key.load(std::memory_order_relaxed);
            static_cast<void>(own->touch(there, access_rights::remote_read, [&]() noexcept {
                touches.store(there.key, std::memory_order_relaxed);
                times.fetch_add(1, std::memory_order_relaxed);
                for (int n = 0; n < 20; ++n) std::atomic_signal_fence(std::memory_order_seq_cst);
                touches.store(0, std::memory_order_relaxed);
                return errc::ok;
            }));
        }
    }
};

}  // namespace

TEST_CASE("no touch is missed by a domain that closes memory while peers touch it on threads of their own") {
    constexpr int rounds = 50'000;
    scheduler on{test::impatient{}};
    shm::domain owner(on);
    shm::domain theirs(on);
    touching_peer peers[2];
    on.run([](shm::domain& in, shm::domain& from, std::span<touching_peer> all) -> task<> {
        const std::string name = test::shm_test_name();
        auto listening = co_await in.listen(name);
        for (touching_peer& peer : all) {
            auto accepting = start(listening.accept());
            shm::connection made = co_await from.connect(name);
            peer.own = made.release();
            shm::connection accepted = co_await accepting;
            peer.at_owner = std::make_unique<patient_link>(accepted.release());
            in.add_link(*peer.at_owner);
        }
    }(owner, theirs, peers));
    std::vector<std::byte> memory(8);
    region open = owner.register_memory(memory);
    std::atomic<std::uint64_t> key{open.remote().key};
    std::atomic<bool> stop{false};
    std::vector<std::thread> threads;
    for (touching_peer& peer : peers)
        threads.emplace_back([&, there = open.remote()] { peer.touch(there, key, stop); });
    // On a busy machine a thread may begin late.
    const auto patience = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    for (const touching_peer& peer : peers) {
        while (peer.times.load() == 0 && std::chrono::steady_clock::now() < patience)
            std::this_thread::yield();
    }
    int caught = 0;
    const std::uint64_t touched_before = peers[0].times.load() + peers[1].times.load();
    // There, a round takes as long as a peer that has lost its core within a touch.
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(5);
    for (int round = 0; round < rounds && caught == 0; ++round) {
        if (round % 16 == 0) std::this_thread::yield();
        if (round % 16 == 0 && std::chrono::steady_clock::now() > limit) break;
        open.reset();
        for (const touching_peer& peer : peers)
            caught += peer.touches.load(std::memory_order_relaxed) == key.load(std::memory_order_relaxed);
        open = owner.register_memory(memory);
        key.store(open.remote().key, std::memory_order_relaxed);
    }
    const std::uint64_t touched = peers[0].times.load() + peers[1].times.load() - touched_before;
    stop = true;
    for (std::thread& each : threads) each.join();
    open.reset();
    for (touching_peer& peer : peers) owner.remove_link(*peer.at_owner);
    CHECK(caught == 0);
    CHECK(touched > 100);
}

namespace {

/// A link that hands up a message that ends a region.
struct ending_link : pollable {
    region* to_end = nullptr;
    std::uint64_t mark = 0;
    bool awaits = false;

    unsigned poll(unsigned) noexcept override {
        if (to_end != nullptr) std::exchange(to_end, nullptr)->reset();
        return 0;
    }
    void want_notice(std::uint32_t) noexcept override {}
    bool quiet() noexcept override { return false; }
    void give_back() noexcept override {}
    bool wants_poll() noexcept override { return true; }
    void want_touch_notice(std::uint32_t) noexcept override {}
    bool touched(std::uint64_t) noexcept override { return mark != 0; }
    void wait_until_untouched(std::uint64_t, std::span<std::byte>, mark_wait& wait) noexcept override {
        while (mark != 0 && !wait.over()) {}
    }
    void await_untouched(std::uint64_t, std::span<std::byte>, time_point) noexcept override { awaits = true; }
    bool awaits_untouched(time_point) noexcept override { return mark != 0; }
    bool holds_memory() noexcept override { return false; }
    bool return_memory() noexcept override { return false; }
};

}  // namespace

TEST_CASE("a rendezvous that ends on the way of a message waits for no peer that stands still in the middle "
          "of a copy") {
    scheduler on;
    domain_base domain(on, {});
    domain.shared_arena().open();
    ending_link link;
    domain.add_link(link);
    std::vector<std::byte> memory(10);
    region told = domain.register_for(link, memory, access_rights::all);
    link.mark = told.remote().key;
    link.to_end = &told;
    const auto began = std::chrono::steady_clock::now();
    domain.poll();
    CHECK(std::chrono::steady_clock::now() - began < mark_patience::most / 2);
    CHECK_FALSE(told);
    CHECK(link.awaits);
    // Its own region is the program's business, which gives the memory away next: that one waits, as long as all of them together may.
    region own = domain.register_memory(memory);
    link.mark = own.remote().key;
    link.to_end = &own;
    const auto later = std::chrono::steady_clock::now();
    domain.poll();
    CHECK_FALSE(own);
    CHECK(std::chrono::steady_clock::now() - later >= mark_patience::most / 2);
    domain.remove_link(link);
}

namespace {

/// Hands up as many messages as a poll may, or one that removes another link.
struct removing_link final : ending_link {
    domain_base* domain = nullptr;
    pollable* to_remove = nullptr;

    unsigned poll(unsigned) noexcept override {
        if (to_remove == nullptr) return 0;
        domain->remove_link(*std::exchange(to_remove, nullptr));
        return 1000;
    }
};

}  // namespace

TEST_CASE("a poll that ends as it has handed up enough goes on although the next link was removed in it") {
    scheduler on;
    domain_base domain(on, {});
    removing_link first;
    removing_link second;
    domain.add_link(first);
    domain.add_link(second);
    first.domain = &domain;
    first.to_remove = &second;
    CHECK(domain.poll());
    CHECK(domain.hot_links() == 1);
    CHECK_FALSE(domain.poll());
    domain.remove_link(first);
}

TEST_CASE("memory of links that were quiet for a second is returned, a few links at a time") {
    many_counting_links many(100);
    for (const auto& link : many.links) link->holds = true;
    many.links[1]->holds = false;
    many.links[2]->peer_keeps = true;
    many.links[3]->busy = true;
    many.cool();
    const auto began = std::chrono::steady_clock::now();
    const auto returned = [&] {
        std::size_t count = 0;
        for (const auto& link : many.links) count += link->holds ? 0 : 1;
        return count;
    };
    CHECK(many.links[0]->returns == 1);  // takes note of what was sent
    CHECK(many.links[1]->returns == 0);
    CHECK(many.links[3]->returns == 0);
    CHECK(returned() == 1);
    const auto limit = began + std::chrono::seconds(20);
    std::size_t before = returned();
    std::size_t most = 0;
    while (returned() < 98 && std::chrono::steady_clock::now() < limit) {
        many.on.turn();
        most = std::max(most, returned() - before);
        before = returned();
    }
    CHECK(returned() == 98);
    CHECK(std::chrono::steady_clock::now() - began >= std::chrono::seconds(1));
    CHECK(most > 1);
    CHECK(most <= 16);
    CHECK(many.links[3]->holds);  // it was busy
    CHECK(many.links[2]->holds);
    CHECK(many.links[2]->returns == 2);
    many.links[2]->peer_keeps = false;
    while (many.links[2]->holds && std::chrono::steady_clock::now() < limit) many.on.turn();
    CHECK_FALSE(many.links[2]->holds);
}

TEST_CASE("memory of links is returned also when their scheduler sleeps") {
    many_counting_links many(3);
    for (const auto& link : many.links) link->holds = true;
    many.domain.arm();
    for (const auto& link : many.links) CHECK(link->returns == 1);  // takes note of what was sent
    many.domain.disarm();
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    const auto any_holds = [&] {
        return std::any_of(many.links.begin(), many.links.end(),
                           [](const auto& link) { return link->holds; });
    };
    while (any_holds() && std::chrono::steady_clock::now() < limit) many.on.turn();
    CHECK_FALSE(any_holds());
}

TEST_CASE("memory that a cold link takes by sending is found by the clock, and returned") {
    many_counting_links many(100);
    many.cool();
    REQUIRE(many.domain.cold_links() == 99);
    for (const auto& link : many.links) CHECK(link->returns == 0);
    for (const auto& link : many.links) link->holds = true;
    many.links[70]->peer_keeps = true;
    const auto began = std::chrono::steady_clock::now();
    const auto holding = [&] {
        return std::count_if(many.links.begin(), many.links.end(),
                             [](const auto& link) { return link->holds; });
    };
    while (holding() > 1 && std::chrono::steady_clock::now() < began + std::chrono::seconds(20))
        many.on.turn();
    CHECK(holding() == 1);
    CHECK(std::chrono::steady_clock::now() - began >= std::chrono::seconds(1));
    CHECK(many.links[70]->holds);
    for (const auto& link : many.links)
        if (!link->holds && link->returns != 2) FAIL_CHECK("was asked " << link->returns << " times");
    // Looks see it again and again, and do not ask before the peer has given something back.
    const auto later = std::chrono::steady_clock::now() + std::chrono::milliseconds(1500);
    while (std::chrono::steady_clock::now() < later) many.on.turn();
    CHECK(many.links[70]->returns == 2);
}

TEST_CASE("memory that a cold link takes by sending is returned when its scheduler sleeps, which then sleeps "
          "until something comes") {
    constexpr auto long_enough = std::chrono::milliseconds(3500);
    many_counting_links many(1000);
    many.cool();
    REQUIRE(many.domain.cold_links() == 999);
    const auto asked = [&] {
        unsigned all = 0;
        for (const auto& link : many.links) all += link->returns;
        return all;
    };
    many.on.run([](many_counting_links& all, duration time) -> task<> {
        co_await sleep_for(std::chrono::milliseconds(1));
        for (const auto& link : all.links) link->holds = true;
        co_await sleep_for(time);
    }(many, long_enough));
    CHECK(std::none_of(many.links.begin(), many.links.end(), [](const auto& link) { return link->holds; }));
    CHECK(asked() == 2000);
    // The links are looked at once for the coroutine that has run, and not again.
    const std::uint64_t before = many.on.parks();
    many.on.run([](duration time) -> task<> { co_await sleep_for(time); }(long_enough));
    CHECK(many.on.parks() - before <= 3);
    CHECK(asked() == 2000);
}

TEST_CASE("a link that is quiet gives its peer all back that was read, also the one that stays hot") {
    many_counting_links many(3);
    many.links[1]->busy = true;
    many.cool();
    many.cool();
    CHECK(many.links[0]->given_back != 0);
    CHECK(many.links[1]->given_back == 0);
    many.links[1]->busy = false;
    many.cool();
    CHECK(many.domain.hot_links() == 1);
    CHECK(many.links[1]->notice == 0);
    CHECK(many.links[1]->given_back == 1);
}

}  // namespace test_transport_shm_domain
