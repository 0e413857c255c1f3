#pragma once

// The stages of operations, and the party that must act at each: a table that does not come from the code, against what a scheduler
// describes.

#include <rdmacoro/coro/describe.hpp>
#include <rdmacoro/coro/scheduler.hpp>

#include "support/catch.hpp"

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace rdmacoro::test {

/// The party of a stage: named, or that of the transport for room in a link or for the bytes of gets and puts.
enum class party : std::uint8_t { peer_send, peer_receive, peer_poll, credit, room, transfers };

struct described_stage {
    std::string_view stage;
    party acts;
};
inline constexpr described_stage stages_of_sends[] = {
    {"waits for the handshake", party::peer_poll},
    {"waits for credit", party::credit},
    {"waits for credit, and the peer has not taken what was sent", party::peer_poll},
    {"waits for a free stream", party::peer_receive},
    {"waits for room in the link", party::room},
    {"handed to the network", party::room},
    {"offered to a receive ahead of its turn", party::peer_poll},
    {"goes to its receive ahead of its turn", party::room},
    {"a piece is with the network", party::room},
    {"its pieces have come and are not taken", party::peer_poll},
    {"waits for room for its next piece", party::room},
    {"announced, no receive has met it", party::peer_receive},
    {"requested, not received", party::peer_receive},
    {"both sides copy it", party::peer_poll},
    {"a part is put, the peer has not asked for the next", party::peer_poll},
    {"a part is put, no room to say so", party::room},
    {"no room for the next put", party::room},
    {"is being put", party::transfers},
    {"is being put to its receive", party::transfers},
    {"the peer closed its memory and has not said why", party::peer_poll},
    {"all is put, no room to say so", party::room},
    {"the peer takes no more, no room to answer", party::room},
    {"canceled, no room to say so", party::room},
    {"canceled, the peer has not answered", party::peer_poll},
    {"canceled, others are asked back first", party::peer_poll},
    {"posted, no receive has met it", party::peer_receive},
    {"met, the link is not done with it", party::transfers},
};
inline constexpr described_stage stages_of_receives[] = {
    {"posted, no message has met it", party::peer_send},
    {"posted with the link, no message has met it", party::peer_send},
    {"no message waits", party::peer_send},
    {"its message is coming", party::transfers},
    {"its message is being fetched", party::transfers},
    {"met, no room to ask for its message", party::room},
    {"is there, no room to say so", party::room},
    {"is being filled, ahead of older messages", party::peer_poll},
    {"met, no room to ask for the rest", party::room},
    {"is being got", party::transfers},
    {"no room for the next get", party::room},
    {"met, no room to ask for it", party::room},
    {"met, the peer has not put it", party::peer_poll},
    {"the peer puts it", party::peer_poll},
    {"the peer closed its memory and has not said why", party::peer_poll},
    {"the peer's memory was refused", party::peer_poll},
    {"canceled, no room to say so", party::room},
    {"canceled, the peer has not answered", party::peer_poll},
    {"canceled, the peer is in the middle of a copy", party::peer_poll},
    {"canceled, the link is not done with it", party::transfers},
};
inline constexpr described_stage stages_of_gets_and_puts[] = {{"is under way", party::transfers}};
inline constexpr described_stage stages_of_closes[] = {
    {"waits for sends that are under way", party::peer_receive},
    {"no room for the goodbye", party::room},
    {"goodbye is sent, the peer has not answered", party::peer_poll},
};

/// One look at what the scheduler that runs describes: an operation `what` is at `stage`, and `next` must act for it to go on.
inline void check_stage(std::string_view what, std::string_view stage, next_actor next) {
    const description all = scheduler::current()->describe();
    INFO(all.text());
    INFO(what << ": " << stage);
    std::size_t found = 0;
    for (const pending_operation& one : all.operations()) {
        if (one.what != what || one.stage != stage) continue;
        ++found;
        CHECK(std::string(text_of(one.next)) == text_of(next));
    }
    CHECK(found > 0);
}

/// Looks at all that is described, again and again, and notes each stage that it has seen, as "send: STAGE", "recv: STAGE" and so on.
class described_stages {
public:
    described_stages(next_actor room, next_actor transfers) : room_(room), transfers_(transfers) {}

    void look(scheduler& on) {
        const description all = on.describe();
        std::optional<next_actor> first;  // of the last send that waits at the head of a queue
        for (const pending_operation& one : all.operations()) {
            if (one.what == "sleep" || one.what == "accept" || one.what == "connect") continue;
            // Thousands are looked at, thousands of times: the texts are made when one is wrong.
            if (const std::string_view wrong = fault_of(one, first); !wrong.empty())
                FAIL_CHECK(one.what << ": " << one.stage << ", next " << text_of(one.next) << ": " << wrong
                                    << '\n'
                                    << all.text());
        }
    }

    /// How often it has seen that stage.
    [[nodiscard]] std::size_t saw(const std::string& stage) const {
        const auto found = seen_.find(stage);
        return found != seen_.end() ? found->second : 0;
    }
    [[nodiscard]] std::string text() const {
        std::string all;
        for (const auto& [stage, times] : seen_) all += "  " + stage + ", " + std::to_string(times) + "\n";
        return all;
    }

private:
    /// What is described wrong of one operation; notes its stage. `first`: of the last send that waits at the head of a queue.
    [[nodiscard]] std::string_view fault_of(const pending_operation& one, std::optional<next_actor>& first) {
        if (one.peer.empty()) return "the peer is not named";
        if (one.stage == "waits behind other sends") {
            ++seen_["send: waits behind other sends"];
            return first == one.next ? "" : "another party than that of the send before it";
        }
        if (one.stage == "waits for sends that have not begun") {
            ++seen_["close: waits for sends that have not begun"];
            return first.value_or(one.next) == one.next ? "" : "another party than that of the sends";
        }
        std::string_view stage = one.stage;
        stage = stage.substr(0, stage.find(" ("));  // what it does not take, in brackets
        const char* kind = "recv: ";
        std::span<const described_stage> table = stages_of_receives;
        if (one.what == "send" || one.what == "ssend") {
            kind = "send: ";
            table = stages_of_sends;
            if (stage.starts_with("waits")) first = one.next;
        } else if (one.what.starts_with("rdma_")) {
            kind = "move: ";
            table = stages_of_gets_and_puts;
        } else if (one.what == "close") {
            kind = "close: ";
            table = stages_of_closes;
        }
        ++seen_[kind + std::string(stage)];
        if (stage == "is being filled") {  // a whole message by the network, pieces as the peer sends them
            const bool right = one.next == next_actor::peer_poll || one.next == next_actor::network;
            return right ? "" : "neither the peer nor the network";
        }
        for (const described_stage& each : table) {
            if (each.stage == stage)
                return one.next == actor_of(each.acts) ? "" : "another party than the table says";
        }
        return "no such stage is in the table";
    }

    [[nodiscard]] next_actor actor_of(party acts) const {
        switch (acts) {
            case party::peer_send: return next_actor::peer_send;
            case party::peer_receive: return next_actor::peer_receive;
            case party::peer_poll: return next_actor::peer_poll;
            case party::credit: return next_actor::credit;
            case party::room: return room_;
            case party::transfers: return transfers_;
        }
        return {};
    }

    next_actor room_;
    next_actor transfers_;
    std::map<std::string, std::size_t> seen_;
};

}  // namespace rdmacoro::test
