#include <rdmacoro/service/detail/gate_sender.hpp>

#include "support/catch.hpp"
#include "support/counting_new.hpp"

#include <string>
#include <string_view>
#include <vector>

namespace test_service_detail_gate_sender {

using namespace rdmacoro;
using namespace rdmacoro::detail;

namespace {

/// A peer whose sends end when the test says so, in the order that it says.
struct slow_peer {
    class operation : public basic_operation<operation, void> {
    public:
        operation(slow_peer& to, std::string_view text) noexcept
            : basic_operation(nullptr), to_(&to), text_(text) {}
        operation(operation&&) noexcept = default;
        void start() noexcept {
            to_->begun.push_back(this);
            to_->texts.emplace_back(text_);
            if (to_->ends_at_once) complete();
        }
        void cancel() noexcept { end(errc::canceled); }
        void finish_canceled() noexcept { code_ = errc::canceled; }
        result<void> outcome() noexcept { return code_; }
        void end(const status& why) noexcept {
            code_ = why;
            complete();
        }

    private:
        slow_peer* to_;
        std::string_view text_;
        status code_{};
    };
    operation send(const const_buffers& from, tag_type) {
        return {*this, std::string_view(reinterpret_cast<const char*>(from.front().data()), from.size())};
    }
    std::vector<operation*> begun;
    std::vector<std::string> texts;
    bool ends_at_once = false;
};

struct sending final : gate_core {
    explicit sending(scheduler& on)
        : gate_core(on, {.messages = 64, .message_bytes = 32}, false), senders(*this) {}
    unsigned serve(gate_lane& lane, unsigned most) noexcept override {
        for (unsigned n = 0; n < most; ++n) {
            gate_slot* const one = lane.take();
            if (one == nullptr) return n;
            senders.send(peer, *one);
        }
        return most;
    }
    slow_peer peer;
    gate_senders<slow_peer::operation> senders;
};

bool put_text(gate_lane& in, std::string_view text) {
    const const_buffers bytes{std::as_bytes(std::span(text.data(), text.size()))};
    return in.put(in.flow(0), bytes, 0) == gate_lane::put_result::done;
}

}  // namespace

TEST_CASE("sends of a gate begin in order, while others are under way, and end in any order") {
    scheduler on;
    sending core(on);
    gate_lane& lane = core.enter();
    for (const char* text : {"one", "two", "three"}) CHECK(put_text(lane, text));
    while (on.turn()) {}
    CHECK(core.peer.texts == std::vector<std::string>{"one", "two", "three"});
    CHECK(core.senders.places() == 3);
    core.peer.begun[2]->end({});
    core.peer.begun[0]->end(errc::peer_lost);
    while (on.turn()) {}
    CHECK(!lane.all_back());
    CHECK(put_text(lane, "four"));
    while (on.turn()) {}
    CHECK(core.peer.texts.size() == 4);
    CHECK(core.senders.places() == 3);  // one is used again
    core.peer.begun[1]->end({});
    core.peer.begun[3]->end({});
    while (on.turn()) {}
    CHECK(lane.all_back());
    std::uint32_t peer = 0;
    std::exception_ptr why;
    CHECK(lane.take_error(peer, why) == errc::peer_lost);
    core.end();
}

TEST_CASE("a gate's sends that end at once, or are begun again, allocate nothing") {
    if (!test::counts_allocations) SKIP_TEST("allocations are not counted in this build");
    scheduler on;
    sending core(on);
    gate_lane& lane = core.enter();
    core.peer.begun.reserve(10000);
    core.peer.texts.reserve(10000);
    std::size_t made = 0;
    for (int round = 0; round < 3; ++round) {
        core.peer.ends_at_once = round == 1;
        const std::size_t before = test::allocations();
        for (int n = 0; n < 40; ++n) CHECK(put_text(lane, "x"));
        while (on.turn()) {}
        if (round == 1) CHECK(lane.all_back());
        if (round != 1) {
            for (std::size_t n = 0; n < 40; ++n) core.peer.begun[core.peer.begun.size() - 40 + n]->end({});
            while (on.turn()) {}
        }
        made = test::allocations() - before;
    }
    CHECK(made == 0);
    CHECK(lane.all_back());
    core.end();
}

TEST_CASE("sends that wait when their gate ends are canceled, and end with closed") {
    scheduler on;
    sending core(on);
    gate_lane& lane = core.enter();
    for (int n = 0; n < 10; ++n) CHECK(put_text(lane, "x"));
    while (on.turn()) {}
    CHECK(core.peer.begun.size() == 10);
    CHECK(!lane.all_back());
    core.end();
    CHECK(lane.all_back());
    std::uint32_t peer = 0;
    std::exception_ptr why;
    CHECK(lane.take_error(peer, why) == errc::closed);
}

}  // namespace test_service_detail_gate_sender
