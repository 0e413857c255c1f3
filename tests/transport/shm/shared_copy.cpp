#include <rdmacoro/transport/shm/shared_copy.hpp>

#include <rdmacoro/coro/start.hpp>
#include <rdmacoro/transport/shm.hpp>

#include "support/catch.hpp"
#include "support/counting_new.hpp"
#include "support/recording_sink.hpp"
#include "support/run.hpp"

#include <algorithm>
#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <sys/mman.h>
#include <unistd.h>

namespace test_transport_shm_shared_copy {

using namespace rdmacoro;
using namespace rdmacoro::test;
using detail::shm::shared_claims;
using detail::shm::shared_copies_open;
using detail::shm::shared_copy_words;
using detail::shm::shared_pieces;

static_assert(shared_copy_link<shm::link<rdmacoro::detail::sink_archetype>>);
static_assert(shared_pieces(0).count == 0);
static_assert(shared_pieces(1).count == 1 && shared_pieces(1).offset(1) == 1);
static_assert(shared_pieces(256 << 10).count >= 8);
static_assert(shared_pieces((std::size_t{1} << 45) - 1).countable());
static_assert(shared_claims::load(shared_claims{3, 5}.store()).back == 5);

namespace {

constexpr std::size_t step = rdmacoro::detail::shm::copy_allowance::in_a_poll;
constexpr auto in_step = static_cast<std::uint32_t>(step / shared_pieces(8 * step).piece);  // pieces

/// A link that shows the words it shares.
struct open_link final : rdmacoro::detail::shm::link<recording_sink> {
    open_link(shm::connection made, recording_sink& sink)
        : rdmacoro::detail::shm::link<recording_sink>(made.release(), shm::static_capabilities, sink) {}
    shared_copy_words& opened_here(shared_copy_id id) { return channel_->out_copies[id]; }
};

struct end {
    recording_sink sink;
    std::unique_ptr<open_link> link;
};

/// A sender and a receiver, polled by hand.
struct copy_pair {
    scheduler on{impatient{}};
    shm::domain sending;
    shm::domain receiving;
    end sender;
    end receiver;

    explicit copy_pair(const shm_options& ours = {}, const shm_options& theirs = {})
        : sending(on, ours), receiving(on, theirs) {
        static int count = 0;
        on.run([](copy_pair& p, std::string name) -> task<> {
            auto listening = co_await p.receiving.listen(name);
            auto accepting = start(listening.accept());
            p.sender.link = std::make_unique<open_link>(co_await p.sending.connect(name), p.sender.sink);
            p.receiver.link = std::make_unique<open_link>(co_await accepting, p.receiver.sink);
        }(*this, "shared-copy-" + std::to_string(::getpid()) + "-" + std::to_string(++count)));
    }
    ~copy_pair() {
        sender.link.reset();
        receiver.link.reset();
    }
    template <class Done>
    bool until(Done done) {
        for (int n = 0; n < 100'000; ++n) {
            if (done()) return true;
            poll_sender();
            poll_receiver();
        }
        return false;
    }
    // As the domain does it in each of its polls.
    void poll_sender() {
        sending.copies().renew();
        sender.link->poll(64);
    }
    void poll_receiver() {
        receiving.copies().renew();
        receiver.link->poll(64);
    }
};

/// A block at a sender and room for it at a receiver, both with bytes around them that must stay unchanged.
struct block {
    static constexpr std::size_t margin = 77;

    copy_pair& p;
    std::size_t bytes;
    std::vector<std::byte> content;
    std::vector<std::byte> source;
    std::vector<std::byte> destination;
    region readable;
    region writable;
    shared_copy_id id;
    recording_completion front;
    recording_completion back;
    post_result front_answer = post_result::posted;
    post_result back_answer = post_result::posted;

    block(copy_pair& pair, std::size_t length, unsigned seed = 1)
        : p(pair),
          bytes(length),
          content(pattern(length + 2 * margin, seed)),
          source(content),
          destination(length + 2 * margin, std::byte{0xa5}),
          readable(p.sending.register_memory(source, access_rights::remote_read)),
          writable(p.receiving.register_memory(destination, access_rights::remote_write)),
          id(p.sender.link->open_shared_copy(length)) {
        REQUIRE(id != no_shared_copy);
    }
    block(const block&) = delete;
    block& operator=(const block&) = delete;
    /// Transfers under way refer to the completions here.
    ~block() {
        const bool over = front_over() && back_over();
        if (!over) p.sender.link->close(make_error_code(errc::closed));
        if (!over) p.receiver.link->close(make_error_code(errc::closed));
    }
    void begin_front() {
        p.receiving.copies().renew();
        front_answer = p.receiver.link->copy_from_front(id, readable.remote().part(margin, bytes),
                                                        std::span(destination).subspan(margin, bytes), front);
    }
    void begin_back() {
        p.sending.copies().renew();
        back_answer = p.sender.link->copy_from_back(id, std::span(source).subspan(margin, bytes),
                                                    writable.remote().part(margin, bytes), back);
    }
    shared_claims claims() { return shared_claims::load(p.sender.link->opened_here(id).claimed.load()); }
    [[nodiscard]] bool front_over() const { return front_answer == post_result::done || front.calls == 1; }
    [[nodiscard]] bool back_over() const { return back_answer == post_result::done || back.calls == 1; }
    [[nodiscard]] bool arrived() const {
        const auto kept = [](std::byte b) { return b == std::byte{0xa5}; };
        return std::equal(content.begin() + margin, content.end() - margin, destination.begin() + margin) &&
               std::all_of(destination.begin(), destination.begin() + margin, kept) &&
               std::all_of(destination.end() - margin, destination.end(), kept) && source == content;
    }
};

shm_options without_process_vm() {
    shm_options made;
    made.use_process_vm = false;
    return made;
}

}  // namespace

TEST_CASE("the pieces of a block cover it without a gap, for every length") {
    for (std::size_t bytes = 0; bytes < 3'000'000; bytes += 1 + bytes / 7) {
        const shared_pieces pieces(bytes);
        REQUIRE(pieces.offset(0) == 0);
        REQUIRE(pieces.offset(pieces.count) == bytes);
        for (std::uint64_t n = 0; n < pieces.count; ++n) REQUIRE(pieces.offset(n) < pieces.offset(n + 1));
    }
}

TEST_CASE("both ends copy a block until they meet, in turns") {
    copy_pair p;
    const auto bytes = GENERATE(std::size_t{4} << 20, std::size_t{5'000'001}, (std::size_t{64} << 20) + 3);
    CAPTURE(bytes);
    block b(p, bytes);
    b.begin_front();
    b.begin_back();
    REQUIRE(b.front_answer == post_result::posted);
    REQUIRE(p.until([&] { return b.front_over() && b.back_over(); }));
    CHECK_FALSE(b.front.outcome);
    CHECK_FALSE(b.back.outcome);
    CHECK(b.arrived());
    CHECK(b.claims().front > 0);
    CHECK(b.claims().back > 0);
    CHECK(b.claims().both() == shared_pieces(bytes).count);
    p.sender.link->close_shared_copy(b.id);
}

TEST_CASE("a link that is quiet keeps no memory of blocks that were copied") {
    if (!counts_allocations) SKIP_TEST("allocations are not counted in this build");
    copy_pair p;
    const auto allocated_by_one = [&] {
        block b(p, 8 * step);
        const std::size_t before = allocations();
        b.begin_front();
        const std::size_t allocated = allocations() - before;
        REQUIRE(b.front_answer == post_result::posted);
        REQUIRE(p.until([&] { return b.front_over(); }));
        b.begin_back();
        REQUIRE(b.back_over());
        p.sender.link->close_shared_copy(b.id);
        return allocated;
    };
    allocated_by_one();
    CHECK(allocated_by_one() == 0);
    CHECK(p.receiver.link->holds_memory());
    for (int n = 0; n < 3 && p.receiver.link->return_memory(); ++n) {}
    CHECK_FALSE(p.receiver.link->holds_memory());
    CHECK(allocated_by_one() == 1);
}

TEST_CASE("short and odd lengths are copied by whoever comes first") {
    copy_pair p;
    const auto bytes =
        GENERATE(std::size_t{0}, std::size_t{1}, std::size_t{16383}, std::size_t{16385}, step - 1, step);
    const bool back_first = GENERATE(false, true);
    CAPTURE(bytes, back_first);
    block b(p, bytes);
    if (back_first) b.begin_back();
    b.begin_front();
    if (!back_first) b.begin_back();
    CHECK(b.front_answer == post_result::done);
    CHECK(b.back_answer == post_result::done);
    CHECK(b.arrived());
    CHECK((b.claims().front == 0) == (back_first || bytes == 0));
}

TEST_CASE("the front copies all when the back never does") {
    copy_pair p;
    block b(p, 5'000'001);
    b.begin_front();
    for (int n = 0; n < 40 && !b.front_over(); ++n) p.poll_receiver();
    CHECK(b.front.calls == 1);
    CHECK(b.arrived());
    // A back that comes too late finds nothing.
    b.begin_back();
    CHECK(b.back_answer == post_result::done);
    CHECK(b.claims().back == 0);
}

TEST_CASE("the front completes though the back never looks again") {
    copy_pair p;
    block b(p, 5'000'001);
    b.begin_back();
    REQUIRE(b.back_answer == post_result::posted);
    b.begin_front();
    for (int n = 0; n < 40 && !b.front_over(); ++n) p.poll_receiver();
    CHECK(b.front.calls == 1);
    CHECK(b.back.calls == 0);
    CHECK(b.claims().back > 0);
    CHECK(b.arrived());
    p.poll_sender();
    CHECK(b.back.calls == 1);
}

TEST_CASE("two threads copy one block after another") {
    copy_pair p;
    const std::uint32_t seed = rdmacoro::test::seed();
    CAPTURE(seed);
    for (unsigned round = 0; round < 40; ++round) {
        const std::size_t bytes =
            round % 10 == 9 ? 20'000'003 : 1 + (seed + round * 7919u) * 977u % 4'000'000;
        CAPTURE(round, bytes);
        block b(p, bytes, round);
        std::atomic<int> arrived{0};
        std::thread sender([&] {
            ++arrived;
            while (arrived.load() != 2) continue;
            b.begin_back();
            for (int n = 0; n < 1'000'000 && !b.back_over(); ++n) p.poll_sender();
        });
        ++arrived;
        while (arrived.load() != 2) continue;
        b.begin_front();
        const auto since = std::chrono::steady_clock::now();
        while (!b.front_over() && std::chrono::steady_clock::now() - since < std::chrono::seconds(20))
            p.poll_receiver();
        sender.join();
        REQUIRE(b.front_over());
        REQUIRE(b.back_over());
        CHECK_FALSE(b.front.outcome);
        CHECK_FALSE(b.back.outcome);
        CHECK(b.arrived());
        p.sender.link->close_shared_copy(b.id);
    }
}

TEST_CASE("a revoked front leaves the rest to the back, and is not called") {
    copy_pair p;
    block b(p, 8 * step);
    b.begin_front();
    b.begin_back();
    CHECK_FALSE(p.receiver.link->revoke(b.front));
    REQUIRE(p.until([&] { return b.back_over(); }));
    CHECK_FALSE(b.back.outcome);
    CHECK(b.front.calls == 0);
    CHECK(b.arrived());  // between two polls nothing is half done
    CHECK(p.receiver.sink.downs == 0);
}

TEST_CASE("a revoked back leaves the rest to the front, and is not called") {
    copy_pair p;
    block b(p, 8 * step);
    b.begin_back();
    b.begin_front();
    CHECK_FALSE(p.sender.link->revoke(b.back));
    REQUIRE(p.until([&] { return b.front_over(); }));
    CHECK_FALSE(b.front.outcome);
    CHECK(b.back.calls == 0);
    CHECK(b.claims().back > 0);
    CHECK(b.arrived());
    CHECK(p.sender.sink.downs == 0);
}

TEST_CASE("a completion may revoke another copy") {
    copy_pair p;
    block first(p, 4 * step, 1);
    block second(p, 8 * step, 2);
    first.begin_front();
    second.begin_front();
    struct revoking : completion {
        open_link* link;
        completion* other;
        int calls = 0;
    } c;
    p.receiver.link->revoke(first.front);
    p.sender.link->close_shared_copy(first.id);
    block third(p, 3 * step, 3);
    c.link = p.receiver.link.get();
    c.other = &second.front;
    c.done = [](completion& self, std::error_code) noexcept {
        auto& mine = static_cast<revoking&>(self);
        ++mine.calls;
        mine.link->revoke(*mine.other);
    };
    REQUIRE(p.receiver.link->copy_from_front(third.id, third.readable.remote().part(77, third.bytes),
                                             std::span(third.destination).subspan(77, third.bytes),
                                             c) == post_result::posted);
    REQUIRE(p.until([&] { return c.calls == 1; }));
    for (int n = 0; n < 20; ++n) p.poll_receiver();
    CHECK(c.calls == 1);
    CHECK(second.front.calls == 0);
    CHECK(third.arrived());
}

TEST_CASE("a source that is revoked in the middle ends the front with bad_key and leaves the link usable") {
    copy_pair p;
    block b(p, 8 * step);
    b.begin_front();
    b.begin_back();
    b.readable.reset();
    REQUIRE(p.until([&] { return b.front_over() && b.back_over(); }));
    CHECK(b.front.outcome == errc::bad_key);
    CHECK_FALSE(b.back.outcome);
    block again(p, 3 * step, 5);
    again.begin_front();
    again.begin_back();
    REQUIRE(p.until([&] { return again.front_over() && again.back_over(); }));
    CHECK(again.arrived());
}

TEST_CASE("a destination that is revoked in the middle ends the back with bad_key and delays no other copy") {
    copy_pair p;
    block b(p, 8 * step);
    b.begin_front();
    b.begin_back();
    b.writable.reset();
    REQUIRE(p.until([&] { return b.front_over() && b.back_over(); }));
    CHECK(b.back.outcome == errc::bad_key);
    CHECK_FALSE(b.front.outcome);
    CHECK(b.arrived());
}

TEST_CASE("access that is not granted ends either side with its own code") {
    copy_pair p;
    block b(p, 3 * step);
    region wrong = p.sending.register_memory(b.source, access_rights::remote_write);
    const post_result front = p.receiver.link->copy_from_front(
        b.id, wrong.remote().part(0, b.bytes), std::span(b.destination).first(b.bytes), b.front);
    CHECK(front == post_result::posted);
    const post_result back =
        p.sender.link->copy_from_back(b.id, std::span(b.source).first(b.bytes),
                                      b.writable.remote().part(2 * block::margin + 1, b.bytes), b.back);
    CHECK(back == post_result::posted);
    REQUIRE(p.until([&] { return b.front.calls == 1 && b.back.calls == 1; }));
    CHECK(b.front.outcome == errc::access_denied);
    CHECK(b.back.outcome == errc::out_of_bounds);
    CHECK(std::all_of(b.destination.begin(), b.destination.end(),
                      [](std::byte x) { return x == std::byte{0xa5}; }));
    CHECK(p.receiver.sink.downs == 0);
    CHECK(p.sender.sink.downs == 0);
}

TEST_CASE("the front copies what a back has claimed and can't write") {
    copy_pair p;
    constexpr std::size_t bytes = 3 * step;
    void* mapped = ::mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    REQUIRE(mapped != MAP_FAILED);
    const std::span<std::byte> into(static_cast<std::byte*>(mapped), bytes);
    std::vector<std::byte> source = pattern(bytes, 3);
    {
        region readable = p.sending.register_memory(source, access_rights::remote_read);
        region writable = p.receiving.register_memory(into, access_rights::remote_write);
        const shared_copy_id id = p.sender.link->open_shared_copy(bytes);
        recording_completion front;
        recording_completion back;
        CHECK(p.sender.link->copy_from_back(id, source, writable.remote(), back) == post_result::posted);
        REQUIRE(p.until([&] { return back.calls == 1; }));
        CHECK(back.outcome == errc::out_of_bounds);
        REQUIRE(::mprotect(mapped, bytes, PROT_READ | PROT_WRITE) == 0);
        CHECK(p.receiver.link->copy_from_front(id, readable.remote(), into, front) == post_result::posted);
        REQUIRE(p.until([&] { return front.calls == 1; }));
        CHECK_FALSE(front.outcome);
        CHECK(std::equal(source.begin(), source.end(), into.begin()));
        CHECK(shared_claims::load(p.sender.link->opened_here(id).claimed.load()).back ==
              shared_pieces::share_of(shared_pieces(bytes).count));
    }
    ::munmap(mapped, bytes);
}

TEST_CASE("where the kernel forbids it the back claims nothing and the front's block is served") {
    const bool sender_may = GENERATE(false, true);
    const bool receiver_may = GENERATE(false, true);
    if (sender_may && receiver_may) return;
    CAPTURE(sender_may, receiver_may);
    copy_pair p(sender_may ? shm_options{} : without_process_vm(),
                receiver_may ? shm_options{} : without_process_vm());
    block b(p, 3'000'001);
    if (!sender_may) {
        b.begin_back();
        CHECK(b.back_answer == post_result::done);
        CHECK(b.claims().back == 0);
    }
    b.begin_front();
    if (!receiver_may) {
        CHECK(b.claims().front == shared_pieces(b.bytes).count);
    }
    if (sender_may) b.begin_back();
    REQUIRE(p.until([&] { return b.front_over() && b.back_over(); }));
    CHECK_FALSE(b.front.outcome);
    CHECK(b.arrived());
}

TEST_CASE("a front that is served can be revoked, and gets the code of a bad key") {
    copy_pair p(without_process_vm(), without_process_vm());
    block b(p, 3'000'001);
    b.begin_front();
    for (int n = 0; n < 3; ++n) {
        p.poll_sender();
        p.poll_receiver();
    }
    CHECK_FALSE(p.receiver.link->revoke(b.front));
    block c(p, 2'000'001, 7);
    c.begin_front();
    c.readable.reset();
    REQUIRE(p.until([&] { return c.front_over(); }));
    CHECK(c.front.outcome == errc::bad_key);
    block d(p, 2'000'001, 8);
    d.begin_front();
    REQUIRE(p.until([&] { return d.front_over(); }));
    CHECK_FALSE(d.front.outcome);
    CHECK(d.arrived());
    CHECK(b.front.calls == 0);
}

TEST_CASE("blocks in the domains' shared arenas are copied by both without the kernel") {
    copy_pair p(without_process_vm(), without_process_vm());
    constexpr std::size_t bytes = 6'000'001;
    const shared_memory source = p.sending.allocate_shared(bytes + 5);
    const shared_memory destination = p.receiving.allocate_shared(bytes + 5);
    const auto content = pattern(bytes, 9);
    std::copy(content.begin(), content.end(), source.bytes().begin() + 5);
    region readable = p.sending.register_memory(source.bytes());
    region writable = p.receiving.register_memory(destination.bytes());
    const shared_copy_id id = p.sender.link->open_shared_copy(bytes);
    recording_completion front;
    recording_completion back;
    CHECK(p.receiver.link->copy_from_front(id, readable.remote().part(5, bytes),
                                           destination.bytes().subspan(1, bytes),
                                           front) == post_result::posted);
    CHECK(p.sender.link->copy_from_back(id, source.bytes().subspan(5, bytes),
                                        writable.remote().part(1, bytes), back) == post_result::posted);
    REQUIRE(p.until([&] { return front.calls == 1 && back.calls == 1; }));
    CHECK(std::equal(content.begin(), content.end(), destination.bytes().begin() + 1));
    CHECK(destination.bytes()[0] == std::byte{0});
    CHECK(shared_claims::load(p.sender.link->opened_here(id).claimed.load()).back > 0);
}

TEST_CASE("claims that can't be end the link of whoever reads them") {
    struct lie {
        const char* what;
        shared_claims claims;
    };
    const std::uint32_t all = static_cast<std::uint32_t>(shared_pieces(8 * step).count);
    SECTION("the front's side") {
        const auto told = GENERATE_COPY(lie{"more than there are", {in_step, all}},
                                        lie{"the front's own count, higher", {all, 0}},
                                        lie{"the front's own count, lower", {0, 0}},
                                        lie{"the back goes backwards", {in_step, in_step - 1}},
                                        lie{"all bits", {0xffffffff, 0xffffffff}});
        CAPTURE(told.what);
        copy_pair p;
        block b(p, 8 * step);
        b.begin_back();
        b.begin_front();
        REQUIRE(b.claims().front == in_step);
        REQUIRE(b.claims().back == in_step);
        p.sender.link->opened_here(b.id).claimed.store(told.claims.store());
        p.poll_receiver();
        CHECK(b.front.calls == 1);
        CHECK(b.front.outcome == errc::protocol_violation);
        CHECK(p.receiver.sink.downs == 1);
        CHECK(p.receiver.sink.reason == errc::protocol_violation);
    }
    SECTION("the back's side") {
        const auto told = GENERATE_COPY(lie{"more than there are", {all, in_step}},
                                        lie{"the back's own count, lower", {in_step, 0}},
                                        lie{"the front goes backwards", {in_step - 1, in_step}});
        CAPTURE(told.what);
        copy_pair p;
        block b(p, 8 * step);
        b.begin_front();
        b.begin_back();
        p.sender.link->opened_here(b.id).claimed.store(told.claims.store());
        p.poll_sender();
        CHECK(b.back.calls == 1);
        CHECK(b.back.outcome == errc::protocol_violation);
        CHECK(p.sender.sink.reason == errc::protocol_violation);
    }
}

TEST_CASE("a back that says it has copied more than it claimed, or takes it back, ends the link") {
    const auto finished = GENERATE(std::uint64_t{in_step + 1}, std::uint64_t{1} << 33, ~std::uint64_t{0});
    CAPTURE(finished);
    copy_pair p;
    block b(p, 2 * step);
    b.begin_back();
    REQUIRE(b.claims().back == in_step);
    p.sender.link->opened_here(b.id).finished.store(finished);
    b.begin_front();  // comes to the end at once, and looks
    CHECK(b.front_answer == post_result::posted);
    p.poll_receiver();
    CHECK(b.front.outcome == errc::protocol_violation);
    CHECK(p.receiver.sink.reason == errc::protocol_violation);
}

TEST_CASE("a back that takes back what it has said ends the link") {
    copy_pair p;
    block b(p, 2 * step);
    b.begin_back();
    shared_copy_words& words = p.sender.link->opened_here(b.id);
    words.finished.store(in_step - 1);
    b.begin_front();
    p.poll_receiver();
    REQUIRE(b.front.calls == 0);  // one is on its way, as far as it knows
    words.finished.store(in_step - 2);
    p.poll_receiver();
    CHECK(b.front.outcome == errc::protocol_violation);
}

TEST_CASE("a back that gives up what it never claims again is made good by the front") {
    copy_pair p;
    block b(p, 2 * step);
    b.begin_back();
    p.sender.link->opened_here(b.id).finished.store((in_step - 1) | std::uint64_t{1} << 32);
    b.begin_front();
    REQUIRE(p.until([&] { return b.front_over(); }));
    CHECK_FALSE(b.front.outcome);
    CHECK(b.arrived());
}

TEST_CASE("the name of a block that there can't be ends the link") {
    const auto name = GENERATE(shared_copy_id{shared_copies_open}, no_shared_copy);
    copy_pair p;
    block b(p, 1000);
    b.id = name;
    b.begin_front();
    CHECK(b.front_answer == post_result::posted);
    p.poll_receiver();
    CHECK(b.front.outcome == errc::protocol_violation);
    CHECK(p.receiver.sink.downs == 1);
    p.sender.link->close_shared_copy(name);  // changes nothing
}

TEST_CASE("a close in the middle ends both sides") {
    const bool sender_closes = GENERATE(false, true);
    CAPTURE(sender_closes);
    copy_pair p;
    block b(p, 8 * step);
    b.begin_front();
    b.begin_back();
    (sender_closes ? p.sender : p.receiver).link->close(make_error_code(errc::closed));
    recording_completion& own = sender_closes ? b.back : b.front;
    recording_completion& other = sender_closes ? b.front : b.back;
    CHECK(own.calls == 1);
    CHECK(own.outcome == errc::closed);
    REQUIRE(p.until([&] { return other.calls == 1; }));
    CHECK(other.outcome == errc::peer_lost);
    CHECK(p.sender.link->open_shared_copy(1) == (sender_closes ? no_shared_copy : 1));
}

TEST_CASE("there are so many names, and one that is given back is used again") {
    copy_pair p;
    std::vector<shared_copy_id> names;
    for (unsigned n = 0; n < shared_copies_open; ++n) {
        names.push_back(p.sender.link->open_shared_copy(step));
        REQUIRE(names.back() < shared_copies_open);
        REQUIRE(std::count(names.begin(), names.end(), names.back()) == 1);
    }
    CHECK(p.sender.link->open_shared_copy(1) == no_shared_copy);
    // The other direction has its own.
    CHECK(p.receiver.link->open_shared_copy(1) != no_shared_copy);
    p.sender.link->opened_here(names[17]).claimed.store(~std::uint64_t{0});
    p.sender.link->close_shared_copy(names[17]);
    block b(p, 5 * step);
    CHECK(b.id == names[17]);
    CHECK(b.claims().both() == 0);
    b.begin_front();
    b.begin_back();
    REQUIRE(p.until([&] { return b.front_over() && b.back_over(); }));
    CHECK(b.arrived());
}

TEST_CASE("many blocks at once, in both directions, beside messages") {
    copy_pair p;
    std::vector<std::unique_ptr<block>> blocks;
    for (unsigned n = 0; n < 12; ++n) {
        blocks.push_back(std::make_unique<block>(p, 1'500'000 + n * 100'003, n));
        blocks.back()->begin_front();
        if (n % 3 != 0) blocks.back()->begin_back();
    }
    const auto content = pattern(3 * step, 99);
    std::vector<std::byte> there = content;
    std::vector<std::byte> into(there.size());
    region readable = p.receiving.register_memory(there, access_rights::remote_read);
    recording_completion reverse;
    const shared_copy_id id = p.receiver.link->open_shared_copy(there.size());
    REQUIRE(p.sender.link->copy_from_front(id, readable.remote(), into, reverse) == post_result::posted);
    recording_completion sent;
    REQUIRE(p.sender.link->post(header_of(5), const_buffers{}, sent) == post_result::done);
    REQUIRE(p.until([&] {
        return reverse.calls == 1 && std::all_of(blocks.begin(), blocks.end(), [](auto& b) {
                   return b->front_over() && (b->back_over() || b->back_answer == post_result::posted);
               });
    }));
    for (auto& b : blocks) CHECK(b->arrived());
    CHECK(into == content);
    CHECK(p.receiver.sink.count == 1);
}

}  // namespace test_transport_shm_shared_copy
