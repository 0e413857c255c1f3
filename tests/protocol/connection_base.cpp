#include <rdmacoro/protocol/connection_base.hpp>

#include <rdmacoro/coro/task_group.hpp>

#include "support/catch.hpp"
#include "support/run.hpp"

#include <cstring>
#include <vector>

namespace test_protocol_connection_base {

using namespace rdmacoro;
using namespace rdmacoro::test;
using detail::connection_base;
using detail::mailbox_base;
using detail::message_store;
using detail::unexpected_message;

namespace {

mailbox_options little() {
    mailbox_options o;
    o.unexpected_bytes = 1;
    o.lent_bytes = 500;
    return o;
}

/// A connection whose link takes everything, and whose engines do nothing.
class bare final : public connection_base {
public:
    explicit bare(mailbox_base& of) : connection_base(of, 7, {1, [] { return std::string("bare"); }}) {
        phase_ = phase::open;
    }
    void matched(unexpected_message&, detail::receive_request&) noexcept override { ++matches; }
    bool forget_receive(detail::receive_request&) noexcept override { return true; }
    unsigned poll(unsigned) noexcept override { return 0; }
    std::string peer_name() const override { return "nobody"; }
    const capabilities& capabilities_in_force() const noexcept override { return link_; }
    post_result post_kind(std::uint8_t, std::uint8_t, tag_type, const const_buffers&, detail::send_request&,
                          bool) noexcept override {
        return post_result::done;
    }

    int matches = 0;
    int credit_messages = 0;
    std::error_code closed_with{};

private:
    post_result post_raw(const message_header& raw, const const_buffers&) noexcept override {
        if (detail::wire_header::load(raw).kind == static_cast<int>(detail::control_kind::credit))
            ++credit_messages;
        return post_result::done;
    }
    bool revoke_posted(completion&) noexcept override { return true; }
    lent_buffer lend_payload() noexcept override { return {}; }
    void close_link(std::error_code why) noexcept override {
        closed_with = why;
        link_down(why);
    }
    void notify_engines(engine_event, std::error_code) noexcept override {}
    start_result begin_queued(detail::send_request&) noexcept override { return start_result::begun; }
    void cancel_in_engine(detail::send_request&) noexcept override {}
    void describe_engines(detail::connection_description&) noexcept override {}

    capabilities link_{};
};

struct receive final : detail::receive_request {
    explicit receive(mutable_buffers into, detail::loan* place = nullptr)
        : receive_request(nullptr, tag_match(3), any_source, into, place) {}
};

struct fixture {
    virtual_time world;
    mailbox_base box{world.on, little(), true};
    bare at{box};

    unexpected_message& kept(std::size_t bytes, int value) {
        unexpected_message* m = box.store().make(bytes);
        REQUIRE(m != nullptr);
        m->from = &at;
        m->source = at.source();
        m->tag = 3;
        m->bytes = m->stored = bytes;
        m->cost = detail::message_cost(bytes);
        m->complete = true;
        REQUIRE(at.credits().charge(m->cost));
        std::memset(m->payload(), value, bytes);
        return *m;
    }
};

}  // namespace

TEST_CASE("a kept message is copied to a receive that it fits, and its credit is owed") {
    fixture f;
    unexpected_message& m = f.kept(100, 5);
    const std::uint32_t cost = m.cost;
    std::vector<std::byte> into(200);
    receive r{mutable_buffers(into)};
    connection_base::match(m, r);
    CHECK_FALSE(std::error_code(r.code_));
    CHECK(r.got_.bytes == 100);
    CHECK(r.got_.source == 7);
    CHECK(into[99] == std::byte{5});
    CHECK(into[100] == std::byte{0});
    CHECK(f.at.credits().payable() == cost);
    CHECK(f.box.store().live() == 0);
    CHECK(f.at.counts().payload_copies == 1);
}

TEST_CASE("a kept message that is too long ends its receive truncated, with its length, and is gone") {
    fixture f;
    unexpected_message& m = f.kept(100, 5);
    std::vector<std::byte> into(99);
    receive r{mutable_buffers(into)};
    connection_base::match(m, r);
    CHECK(std::error_code(r.code_) == errc::truncated);
    CHECK(r.info_ == 100);
    CHECK(into == std::vector<std::byte>(99));
    CHECK(f.box.store().live() == 0);
}

TEST_CASE("a kept message whose peer is gone is still received, and owes no credits") {
    fixture f;
    unexpected_message& m = f.kept(100, 5);
    m.from = nullptr;
    std::vector<std::byte> into(100);
    receive r{mutable_buffers(into)};
    connection_base::match(m, r);
    CHECK(into[0] == std::byte{5});
    CHECK(f.at.credits().payable() == 0);
}

TEST_CASE("a lent message is the user's until the loan ends, and costs the peer nothing meanwhile") {
    fixture f;
    unexpected_message& m = f.kept(100, 5);
    const std::uint32_t cost = m.cost;
    detail::loan loan;
    receive r(mutable_buffers(), &loan);
    connection_base::match(m, r);
    CHECK(loan.bytes().size() == 100);
    CHECK(loan.bytes()[99] == std::byte{5});
    CHECK(f.at.credits().payable() == cost);
    CHECK(f.box.store().live() == 1);
    loan.release();
    CHECK(f.box.store().live() == 0);
}

TEST_CASE("a short message of a lent receive is copied to it, and leaves the store at once") {
    fixture f;
    for (const std::size_t bytes : {std::size_t{0}, std::size_t{1}, detail::loan::longest_here}) {
        const std::uint64_t copies = f.at.counts().payload_copies;
        detail::loan loan;
        receive r(mutable_buffers(), &loan);
        connection_base::match(f.kept(bytes, 5), r);
        CHECK(f.box.store().live() == 0);
        CHECK(r.got_.bytes == bytes);
        CHECK(loan.bytes().size() == bytes);
        if (bytes != 0) CHECK(loan.bytes().back() == std::byte{5});
        CHECK(f.at.counts().payload_copies == copies + (bytes != 0 ? 1 : 0));
    }
}

TEST_CASE("a message that is still coming is its connection's affair") {
    fixture f;
    unexpected_message& m = f.kept(100, 5);
    m.complete = false;
    receive r{mutable_buffers()};
    connection_base::match(m, r);
    CHECK(f.at.matches == 1);
    f.at.free(m);
}

TEST_CASE("an offered message goes to the receive that waits, else probes and receives can find it") {
    fixture f;
    f.at.offer(f.kept(10, 1));
    CHECK(f.box.matching().unexpected() == 1);
    CHECK(f.at.counts().unexpected == 1);
    f.at.withdraw(*f.box.matching().find(any_source, any_tag));
    CHECK(f.box.matching().unexpected() == 0);
    std::vector<std::byte> into(10);
    receive r{mutable_buffers(into)};
    f.box.matching().post(r);
    f.at.offer(f.kept(10, 2));
    CHECK(f.box.matching().unexpected() == 0);
    CHECK(into[9] == std::byte{2});
    CHECK(f.box.store().live() == 0);
}

TEST_CASE("credit is said in a message of its own once half of the budget is owed, not before") {
    fixture f;
    f.at.give_back(detail::least_budget / 2 - 1);
    CHECK(f.at.credit_messages == 0);
    f.at.give_back(1);
    CHECK(f.at.credit_messages == 1);
}

TEST_CASE("a receive is filled piece by piece, in the user's memory or in a block that is lent") {
    fixture f;
    const std::vector<std::byte> piece(30, std::byte{4});
    std::vector<std::byte> into(100);
    receive plain{mutable_buffers(into)};
    REQUIRE(f.at.begin_fill(plain, 60));
    CHECK(plain.filling_ == &f.at);
    CHECK(f.at.space(plain, 10, 20).data() == into.data() + 10);
    CHECK(f.at.space(plain, 10, 20).size() == 20);
    f.at.fill(plain, 30, piece);
    f.at.end_fill(plain, 3, 60);
    CHECK(plain.got_.bytes == 60);
    CHECK(plain.filling_ == nullptr);
    CHECK(into[29] == std::byte{0});
    CHECK(into[59] == std::byte{4});

    detail::loan loan;
    receive lent(mutable_buffers(), &loan);
    REQUIRE(f.at.begin_fill(lent, 90));
    for (const std::size_t at : {0U, 30U, 60U}) f.at.fill(lent, at, piece);
    f.at.end_fill(lent, 3, 90);
    CHECK(f.box.store().live() == 1);
    CHECK(loan.bytes().size() == 90);
    CHECK(loan.bytes()[89] == std::byte{4});

    detail::loan here;  // a short one needs no block
    receive short_one(mutable_buffers(), &here);
    REQUIRE(f.at.begin_fill(short_one, 60));
    CHECK(f.at.space(short_one, 40, 30).size() == 20);
    f.at.fill(short_one, 0, piece);
    f.at.fill(short_one, 30, piece);
    f.at.end_fill(short_one, 3, 60);
    CHECK(f.box.store().live() == 1);
    CHECK(here.bytes().size() == 60);
    CHECK(here.bytes()[59] == std::byte{4});
}

TEST_CASE("a fill that does not fit, or ends early, leaves no memory behind") {
    fixture f;
    std::vector<std::byte> into(10);
    receive small{mutable_buffers(into)};
    CHECK_FALSE(f.at.begin_fill(small, 11));
    CHECK(std::error_code(small.code_) == errc::truncated);
    CHECK(small.info_ == 11);
    detail::loan loan;
    receive huge(mutable_buffers(), &loan);
    CHECK_FALSE(f.at.begin_fill(huge, 501));  // lent_bytes
    CHECK(std::error_code(huge.code_) == errc::truncated);
    receive half(mutable_buffers(), &loan);
    REQUIRE(f.at.begin_fill(half, 400));
    CHECK(f.box.store().live() == 1);
    f.at.fail_fill(half, make_error_code(errc::peer_lost));
    CHECK(std::error_code(half.code_) == errc::peer_lost);
    CHECK(f.box.store().live() == 0);
}

TEST_CASE("a message is left in the network for a few turns, while coroutines wait for theirs") {
    fixture f;
    CHECK_FALSE(f.at.better_to_defer());  // no receive waits
    f.world.run([](bare& at) -> task<> {
        task_group others;
        others.spawn([]() -> task<> { co_return; });
        int later = 0;
        while (at.better_to_defer()) ++later;
        CHECK(later == 8);
        co_await others.join();
    }(f.at));
}

TEST_CASE("the end of the only peer ends what was posted for it, with the reason") {
    fixture f;
    for (const peer_id source : {7u, 8u}) REQUIRE(f.box.matching().add_source(source));
    std::vector<std::byte> into(10);
    receive r{mutable_buffers(into)};
    r.source_ = 7;
    receive of_another{mutable_buffers(into)};
    of_another.source_ = 8;
    f.box.matching().post(r);
    f.box.matching().post(of_another);
    f.at.link_down(make_error_code(errc::peer_lost));
    CHECK(std::error_code(r.code_) == errc::peer_lost);
    CHECK(f.box.matching().posted() == 1);
    f.box.matching().withdraw(of_another);
}

}  // namespace test_protocol_connection_base
