// The sending half of staged_get: copies messages to blocks that the receiver gets them from.
#pragma once

#include <rdmacoro/protocol/detail/staged_wire.hpp>
#include <rdmacoro/protocol/detail/stream_slots.hpp>
#include <rdmacoro/protocol/flow_control.hpp>
#include <rdmacoro/protocol/policy.hpp>

#include <cstdint>
#include <utility>

namespace rdmacoro::detail {

/// `Listed` is the policy as the protocol list has it. A send has ended when its request is said; its block stays busy until
/// the receiver says that it has the message.
template <class Listed, std::size_t Limit, class Context>
class staged_sender {
public:
    explicit staged_sender(Context& context) noexcept : context_(context) {}
    staged_sender(const staged_sender&) = delete;
    staged_sender& operator=(const staged_sender&) = delete;

    start_result start(send_request& r) noexcept {
        if (slots_.exhausted(most_staged)) return start_result::wait_room;
        const std::size_t bytes = r.from_.size();
        const std::uint32_t cost = staged_cost(bytes, said_leaving_, context_.credits().peer_budget());
        if (!context_.credits().take(cost)) return start_result::wait_credit;
        const std::uint32_t id = slots_.take();
        if (id == slots_.none || !prepare(slots_[id])) {
            context_.credits().untake(cost);
            if (id != slots_.none) slots_.give(id);
            if (busy_ != 0) return start_result::wait_room;  // one of those will do
            r.finish(errc::no_resources);
            return start_result::begun;
        }
        slot& s = slots_[id];
        copy_out(r.from_, 0, s.memory, bytes);
        const staged_request_body body{id, static_cast<std::uint32_t>(bytes), s.open.remote().address,
                                       s.open.remote().key};
        const auto raw = body.store();
        switch (context_.template post_copied<Listed>(staged_request, 0, r.tag_, raw)) {
            case post_result::done: break;
            case post_result::failed:
                slots_.give(id);
                r.finish(context_.why_failed());
                return start_result::begun;
            default:
                slots_.give(id);
                context_.credits().untake(cost);
                return start_result::wait_room;
        }
        s.busy = true;
        ++busy_;
        ++(context_.counts().*Listed::sent_counter);
        if (bytes != 0) context_.count_copy(bytes);
        context_.under_way();  // no goodbye before the receiver has it
        say_leaving();
        context_.sent_at_once(r);
        return start_result::begun;
    }

    delivery received(const wire_header& h, std::span<const std::byte> payload) noexcept {
        if (h.tag >= slots_.size() || h.flags != 0 || !payload.empty()) return context_.violation();
        const auto id = static_cast<std::uint32_t>(h.tag);
        if (!std::exchange(slots_[id].busy, false)) return context_.violation();
        --busy_;
        slots_.give(id);
        context_.settled();
        context_.room_for_sends();
        return delivery::taken;
    }

    /// This side closes: messages must not stay in its blocks.
    void leaving() noexcept {
        leaving_ = true;
        say_leaving();
    }

    void writable() noexcept { say_leaving(); }

    void fail() noexcept {
        for (slot& s : slots_) {
            s.busy = false;
            if (s.memory == nullptr) continue;
            s.open.reset();
            blocks_.give(std::exchange(s.memory, nullptr));
        }
        busy_ = 0;
        blocks_.trim();
    }

private:
    struct slot {
        std::byte* memory = nullptr;
        region open;
        bool busy = false;
        std::uint8_t owed = 0;
        std::uint32_t next_free = 0;
    };

    /// A slot has its block from its first message on.
    [[nodiscard]] bool prepare(slot& s) noexcept {
        if (s.memory != nullptr) [[likely]]
            return true;
        std::byte* memory = blocks_.take();
        if (memory == nullptr) return false;
        s.open = context_.expose({memory, blocks_.block_bytes()}, access_rights::remote_read);
        if (!s.open) {
            blocks_.give(memory);
            return false;
        }
        s.memory = memory;
        return true;
    }

    /// Once, and only where a message waits or one was sent while closing.
    void say_leaving() noexcept {
        if (!leaving_ || said_leaving_ || busy_ == 0) [[likely]]
            return;
        said_leaving_ = context_.template post_copied<Listed>(staged_leaving, 0, 0, {}) == post_result::done;
    }

    Context& context_;
    slab_pool blocks_{Limit, 1, most_staged};  // the memory before what is open of it
    stream_slots<slot> slots_;
    std::uint32_t busy_ = 0;
    bool leaving_ = false;
    bool said_leaving_ = false;
};

}  // namespace rdmacoro::detail
