#include <rdmacoro/transport/shm/domain.hpp>

#include "support/catch.hpp"
#include "support/run.hpp"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

using namespace rdmacoro;
using namespace rdmacoro::detail::shm;

namespace {

struct counting_handler : fd_handler {
    domain_base* domain = nullptr;
    fd_handler* unwatches = nullptr;
    unsigned calls = 0;
    unique_fd fd{::eventfd(1, EFD_NONBLOCK | EFD_CLOEXEC)};

    counting_handler() {
        ready = [](fd_handler& self, std::uint32_t) noexcept {
            auto& mine = static_cast<counting_handler&>(self);
            ++mine.calls;
            if (mine.unwatches != nullptr) mine.domain->unwatch(*mine.unwatches);
        };
    }
};

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

namespace {

/// A link that counts what its domain asks of it.
struct counting_link final : pollable {
    unsigned polls = 0;
    unsigned waits = 0;
    unsigned records = 0;  // that have come
    bool busy = false;     // reads a record between any two calls of `quiet`
    std::uint32_t notice = 0;

    ~counting_link() = default;
    unsigned poll(unsigned) noexcept final {
        ++polls;
        return std::exchange(records, 0);
    }
    void want_notice(std::uint32_t word) noexcept final { notice = word; }
    bool quiet() noexcept final { return records == 0 && !busy; }
    void wait_until_untouched(std::uint64_t, std::span<std::byte>, mark_wait&) noexcept final { ++waits; }
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
    [[nodiscard]] unsigned polls() const {
        unsigned all = 0;
        for (const auto& link : links) all += link->polls;
        return all;
    }
};

}  // namespace

TEST_CASE("a turn polls the links that had news lately, not the idle ones") {
    many_counting_links many(1000);
    many.links[7]->busy = true;
    many.domain.cool();
    CHECK(many.domain.hot_links() == 1);
    CHECK(many.links[7]->notice == 0);
    CHECK(many.links[8]->notice == many.links[8]->number());
    const unsigned before = many.polls();
    const unsigned before_active = many.links[7]->polls;
    for (int n = 0; n < 10; ++n) many.domain.poll();
    CHECK(many.polls() - before == many.links[7]->polls - before_active);
    CHECK(many.links[7]->polls > before_active);
}

TEST_CASE("the last hot link stays hot, and it is the one that was active last") {
    many_counting_links many(3);
    many.links[1]->busy = true;
    many.domain.cool();
    many.links[1]->busy = false;
    many.domain.heat(*many.links[2]);
    many.links[1]->busy = true;
    many.domain.cool();
    many.links[1]->busy = false;
    many.domain.cool();
    CHECK(many.domain.hot_links() == 1);
    CHECK(many.links[1]->notice == 0);
    CHECK(many.links[2]->notice != 0);
}

TEST_CASE("a mark, or an operation that waits, makes a link hot, and marks without sense do nothing") {
    many_counting_links many(100);
    many.domain.cool();
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

TEST_CASE(
    "while it sleeps each link has a way to wake it, and a link that closes gives its number to the next") {
    many_counting_links many(10);
    many.domain.cool();
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

TEST_CASE("a doorbell without a mark makes the domain look at every link, a few at a time") {
    many_counting_links many(100);
    many.domain.cool();
    many.links[99]->records = 1;  // its mark was cleared by another peer
    many.domain.rung();
    many.domain.arm();
    for (int n = 0; n < 20 && many.links[99]->records != 0; ++n) many.domain.poll();
    many.domain.disarm();
    CHECK(many.links[99]->records == 0);
}

TEST_CASE("deregistering memory that one peer was told of waits for that peer alone") {
    many_counting_links many(100);
    std::vector<std::byte> memory(8);
    region told = many.domain.register_for(*many.links[3], memory, access_rights::all);
    region open = many.domain.register_memory(memory);
    const auto waits = [&] {
        unsigned all = 0;
        for (const auto& link : many.links) all += link->waits;
        return all;
    };
    told.reset();
    CHECK(many.links[3]->waits == 1);
    CHECK(waits() == 1);
    region later = many.domain.register_memory(memory);  // in the same place of the table
    later.reset();
    CHECK(waits() == 101);
    open.reset();
    CHECK(waits() == 201);
}

namespace {

/// A link of a peer that leaves its mark standing. Hands up a message that ends a region.
struct marked_link final : pollable {
    region* to_end = nullptr;
    bool marked = true;

    unsigned poll(unsigned) noexcept override {
        if (to_end != nullptr) std::exchange(to_end, nullptr)->reset();
        return 0;
    }
    void want_notice(std::uint32_t) noexcept override {}
    bool quiet() noexcept override { return false; }
    void wait_until_untouched(std::uint64_t, std::span<std::byte>, mark_wait& wait) noexcept override {
        while (marked && !wait.over()) {}
    }
};

}  // namespace

TEST_CASE("a region that ends on the way of a message waits for an interrupted peer, and all waits share one "
          "account") {
    scheduler on;
    domain_base domain(on, {});
    domain.shared_arena().open();
    marked_link links[2];
    for (marked_link& link : links) domain.add_link(link);
    std::vector<std::byte> memory(10);
    region open = domain.register_memory(memory);
    links[0].to_end = &open;
    const auto began = std::chrono::steady_clock::now();
    domain.poll();
    CHECK_FALSE(open);
    CHECK(std::chrono::steady_clock::now() - began > mark_patience::least * 10);
    // The account is used up: the next one waits little.
    region other = domain.register_memory(memory);
    const auto later = std::chrono::steady_clock::now();
    other.reset();
    CHECK(std::chrono::steady_clock::now() - later < mark_patience::most / 2);
    for (marked_link& link : links) domain.remove_link(link);
}
