#include <rdmacoro/transport/detail/inbox.hpp>

#include "support/catch.hpp"

#include <cstring>
#include <functional>
#include <vector>

namespace test_transport_detail_inbox {

using namespace rdmacoro;

namespace {

constexpr std::size_t word = 4;
constexpr std::size_t frame = word + message_header_bytes;

struct slot {
    slot* next = nullptr;
    std::byte* data = nullptr;
    std::uint32_t bytes = 0;
    std::byte memory[frame + 8]{};

    explicit slot(unsigned char number) noexcept : data(memory), bytes(sizeof memory) {
        memory[frame] = std::byte{number};
    }
};
using inbox = detail::inbox<slot, word>;

struct owner {
    std::vector<slot*> recycled;
    std::vector<slot*> credited;
    void recycle(slot& s) noexcept { recycled.push_back(&s); }
    void consumed(slot& s) noexcept { credited.push_back(&s); }
};

struct lender {
    bool may = true;
    int back = 0;
    bool lend(slot&) noexcept { return may; }
    void give_back_lent(slot&) noexcept { ++back; }
};

/// Notes the first byte of each payload, and answers as it is told.
struct listener : detail::session_listener {
    std::vector<unsigned> got;
    std::function<delivery()> answer = [] { return delivery::taken; };
    delivery deliver(const message_header&, std::span<const std::byte> payload) noexcept override {
        got.push_back(std::to_integer<unsigned>(payload.front()));
        return answer();
    }
    void writable() noexcept override {}
    void link_down(std::error_code) noexcept override {}
};

}  // namespace

TEST_CASE("messages are delivered in order, up to a budget, and their slots consumed") {
    inbox in;
    owner of;
    listener to;
    slot a(1);
    slot b(2);
    slot c(3);
    for (slot* s : {&a, &b, &c}) in.push(*s);
    CHECK(in.deliver(9, of) == 0);  // nothing listens yet
    in.attach(to);
    CHECK(in.deliver(2, of) == 2);
    CHECK(to.got == std::vector<unsigned>{1, 2});
    CHECK(of.credited == std::vector<slot*>{&a, &b});
    CHECK(in.deliver(9, of) == 1);
    CHECK(in.empty());
    CHECK(of.recycled.empty());
}

TEST_CASE("a deferred message is delivered again first, and its slot is held") {
    inbox in;
    owner of;
    listener to;
    slot a(1);
    slot b(2);
    in.push(a);
    in.push(b);
    in.attach(to);
    to.answer = [] { return delivery::defer; };
    CHECK(in.deliver(9, of) == 0);
    CHECK_FALSE(in.empty());
    to.answer = [] { return delivery::taken; };
    CHECK(in.deliver(9, of) == 2);
    CHECK(to.got == std::vector<unsigned>{1, 1, 2});
    CHECK(of.credited.size() == 2);
}

TEST_CASE("a listener that asks for a pause gets nothing more in this call, which used its budget up") {
    inbox in;
    owner of;
    listener to;
    slot a(1);
    slot b(2);
    slot c(3);
    for (slot* s : {&a, &b, &c}) in.push(*s);
    in.attach(to);
    to.answer = [&] { return to.got.back() == 2 ? delivery::pause : delivery::taken; };
    CHECK(in.deliver(9, of) == 9);
    CHECK(to.got == std::vector<unsigned>{1, 2});
    CHECK(of.credited == std::vector<slot*>{&a, &b});
    CHECK(in.deliver(9, of) == 1);
    CHECK(to.got == std::vector<unsigned>{1, 2, 3});
}

TEST_CASE("a listener that closes its link inside a delivery gets nothing more") {
    for (const delivery last : {delivery::taken, delivery::defer}) {
        inbox in;
        owner of;
        listener to;
        slot a(1);
        slot b(2);
        in.push(a);
        in.push(b);
        in.attach(to);
        to.answer = [&] {
            in.detach();
            return last;
        };
        CHECK(in.deliver(9, of) == (last == delivery::taken ? 1u : 0u));
        CHECK(to.got.size() == 1);
        CHECK(of.recycled.size() == (last == delivery::taken ? 0u : 1u));
        CHECK(of.credited.size() == (last == delivery::taken ? 1u : 0u));
        CHECK(in.pop() == &b);
    }
}

TEST_CASE("a payload is lent inside its delivery alone, once, and outlives the inbox") {
    lender from;
    lent_buffer lent;
    slot a(7);
    {
        inbox in;
        owner of;
        listener to;
        in.attach(to);
        in.push(a);
        CHECK_FALSE(in.keep(from));
        to.answer = [&] {
            lent = in.keep(from);
            CHECK(lent);
            CHECK_FALSE(in.keep(from));
            return delivery::taken;
        };
        CHECK(in.deliver(9, of) == 1);
        CHECK(of.credited.empty());
        CHECK(of.recycled.empty());
        from.may = false;
        slot b(8);
        in.push(b);
        to.answer = [&] {
            CHECK_FALSE(in.keep(from));
            return delivery::taken;
        };
        CHECK(in.deliver(9, of) == 1);
        CHECK(of.credited.size() == 1);
    }
    CHECK(lent.bytes().front() == std::byte{7});
    CHECK(lent.bytes().size() == 8);
    CHECK(from.back == 0);
    lent.reset();
    CHECK(from.back == 1);
}

TEST_CASE("a link goes down when all that arrived before its failure is delivered") {
    detail::link_failure f;
    CHECK_FALSE(f);
    CHECK_FALSE(f.may_go_down(true, 100));
    f.set(errc::peer_lost, 5);
    f.set(errc::canceled, 6);  // the first counts
    CHECK(f);
    CHECK(std::error_code(f.code()) == errc::peer_lost);
    CHECK_FALSE(f.may_go_down(true, 5));
    CHECK(f.may_go_down(true, 6));
    CHECK_FALSE(f.may_go_down(false, 1000));
}

TEST_CASE("the link of a peer that violated the protocol goes down whatever the listener defers") {
    detail::link_failure f;
    f.set(errc::protocol_violation, 5);
    CHECK_FALSE(f.may_go_down(false, 5));
    CHECK(f.may_go_down(false, 6));
}

}  // namespace test_transport_detail_inbox
