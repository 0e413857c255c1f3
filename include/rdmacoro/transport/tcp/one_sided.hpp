// Get and put over a byte stream: what this side asked for, and what it serves to the other.
#pragma once

#include <rdmacoro/memory/region_table.hpp>
#include <rdmacoro/transport/detail/one_sided_wire.hpp>
#include <rdmacoro/transport/tcp/frame.hpp>
#include <rdmacoro/transport/tcp/send_queue.hpp>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace rdmacoro::detail {

/// This side's gets and puts of one link. At most `most_outstanding` are unanswered; further ones wait here.
class tcp_operations {
public:
    static constexpr std::size_t copy_limit = 4 * 1024;    // data up to this is copied behind its head
    static constexpr std::size_t part_bytes = 256 * 1024;  // data of one frame: messages go between
    static constexpr std::size_t most_ahead = 2 * part_bytes;

    /// False when memory is short.
    [[nodiscard]] bool get(const remote_region& there, std::span<std::byte> into, completion& c) noexcept {
        return add({&c, there.key, there.address, into.size(), into.data(), none, 0, kind::get, false});
    }
    [[nodiscard]] bool put(std::span<const std::byte> from, const remote_region& there,
                           completion& c) noexcept {
        // The bytes are only read; one field serves both directions.
        return add({&c, there.key, there.address, from.size(), const_cast<std::byte*>(from.data()), none, 0,
                    kind::put, false});
    }

    [[nodiscard]] bool empty() const noexcept { return outstanding_ == 0 && first_waiting_ == none; }
    /// Something waits that could be sent.
    [[nodiscard]] bool wants_to_send() const noexcept {
        return sending_ != none || (first_waiting_ != none && outstanding_ < most_outstanding);
    }

    /// Appends the next frame to `queue`. False when nothing waits or there is no room.
    [[nodiscard]] bool send_next(tcp_send_queue& queue) noexcept {
        if (sending_ != none) return send_put_part(queue);
        if (first_waiting_ == none || outstanding_ == most_outstanding) return false;
        const std::uint32_t index = first_waiting_;
        operation& op = operations_[index];
        if (op.what == kind::get) {
            std::byte* to = queue.reserve(tcp_word_bytes + get_request::wire_bytes);
            if (to == nullptr) return false;
            tcp_word{tcp_frame::get_request, 0}.store(to);
            get_request{op.key, op.address, op.remaining, index}.store(to + tcp_word_bytes);
            queue.commit(tcp_word_bytes + get_request::wire_bytes);
            start_first();
            return true;
        }
        start_first();
        sending_ = index;
        return send_put_part(queue);
    }

    /// The queue has sent, or will never send, a part of a put.
    void part_sent(const tcp_send_item& item) noexcept { --operations_[item.operation].parts; }

    /// The memory of the operation is the caller's again; `c` is forgotten. True when all of a put had left it.
    bool revoke(completion& c, tcp_send_queue& queue) noexcept {
        const auto index =
            static_cast<std::uint32_t>(reinterpret_cast<std::uintptr_t>(c.transport_state) >> 2);
        operation& op = operations_[index];
        op.owner = nullptr;
        op.local = nullptr;
        op.revoked = true;
        if (!op.started) op.remaining = 0;
        if (op.parts != 0) {
            queue.for_each([index, &queue](tcp_send_item& item) noexcept {
                // Announced already, so it goes out. Without memory for the copy zeros do.
                if (item.from == tcp_send_item::source::put_data && item.operation == index)
                    queue.take_over(item);
            });
        }
        return op.what == kind::put && op.started && op.parts == 0 && sending_ != index;
    }

    /// Data of a get begins to arrive. False: it was not asked for.
    [[nodiscard]] bool data_begins(std::uint32_t index, std::size_t bytes) const noexcept {
        return started(index) && operations_[index].what == kind::get &&
               bytes <= operations_[index].remaining;
    }
    /// Where its next byte goes; nullptr: nowhere.
    [[nodiscard]] std::byte* destination(std::uint32_t index) const noexcept {
        return operations_[index].local;
    }
    void data_arrived(std::uint32_t index, std::size_t bytes) noexcept {
        operation& op = operations_[index];
        op.remaining -= bytes;
        if (op.local != nullptr) op.local += bytes;
    }

    /// The other side has ended an operation. False: it may not say so.
    [[nodiscard]] bool ended(const one_sided_status& status) noexcept {
        const std::uint32_t index = status.operation;
        if (!started(index) || sending_ == index || status.outcome == errc::protocol_violation) return false;
        operation& op = operations_[index];
        if (op.parts != 0) return false;
        if (op.what == kind::get && status.outcome == errc::ok && op.remaining != 0) return false;
        --outstanding_;
        completion* owner = op.owner;
        free(index);
        if (owner != nullptr)
            owner->done(*owner,
                        status.outcome == errc::ok ? std::error_code() : make_error_code(status.outcome));
        return true;
    }

    /// Ends everything; the link is down.
    void fail(std::error_code reason) noexcept {
        for (std::uint32_t index = 0; index < operations_.size(); ++index) {
            if (operations_[index].what == kind::none) continue;
            completion* owner = operations_[index].owner;
            free(index);
            if (owner != nullptr) owner->done(*owner, reason);
        }
        first_waiting_ = last_waiting_ = sending_ = none;
        outstanding_ = 0;
    }

private:
    static constexpr std::uint32_t none = 0xffff'ffff;
    enum class kind : std::uint8_t { none, get, put };

    struct operation {
        completion* owner;  // nullptr once revoked
        std::uint64_t key;
        std::uint64_t address;    // of the next byte there
        std::uint64_t remaining;  // bytes: of a get to arrive, of a put to be put into the queue
        std::byte* local;         // the next byte here
        std::uint32_t next;       // in the list of those that wait, or of free ones
        std::uint32_t parts;      // of a put, in the queue
        kind what;
        bool started;  // the other side knows of it, or will
        bool revoked = false;
    };

    [[nodiscard]] bool started(std::uint32_t index) const noexcept {
        return index < operations_.size() && operations_[index].what != kind::none &&
               operations_[index].started;
    }

    [[nodiscard]] bool add(const operation& op) noexcept try {
        std::uint32_t index = first_free_;
        if (index != none) {
            first_free_ = operations_[index].next;
            operations_[index] = op;
        } else {
            index = static_cast<std::uint32_t>(operations_.size());
            operations_.push_back(op);
        }
        op.owner->transport_state = reinterpret_cast<void*>(
            (std::uintptr_t{index} << 2) | static_cast<std::uintptr_t>(tcp_posted::operation));
        (last_waiting_ != none ? operations_[last_waiting_].next : first_waiting_) = index;
        last_waiting_ = index;
        return true;
    } catch (const std::bad_alloc&) {
        return false;
    }

    void free(std::uint32_t index) noexcept {
        operations_[index].what = kind::none;
        operations_[index].next = first_free_;
        first_free_ = index;
    }

    void start_first() noexcept {
        operation& op = operations_[first_waiting_];
        op.started = true;
        first_waiting_ = op.next;
        if (first_waiting_ == none) last_waiting_ = none;
        ++outstanding_;
    }

    [[nodiscard]] bool send_put_part(tcp_send_queue& queue) noexcept {
        const std::uint32_t index = sending_;
        operation& op = operations_[index];
        if (op.revoked) op.remaining = 0;  // what was not begun is not sent: a frame of no data gives it up
        const std::size_t bytes = static_cast<std::size_t>(std::min<std::uint64_t>(op.remaining, part_bytes));
        const bool copied = bytes <= copy_limit;
        constexpr std::size_t head = tcp_word_bytes + put_data::wire_bytes;
        std::byte* to = queue.reserve(head + (copied ? bytes : 0));
        if (to == nullptr) return false;
        tcp_send_item* item = copied ? nullptr : queue.new_item();
        if (!copied && item == nullptr) return false;
        tcp_word{tcp_frame::put_data, static_cast<std::uint32_t>(bytes)}.store(to);
        put_data{op.key, op.address, op.remaining, index}.store(to + tcp_word_bytes);
        if (copied && bytes != 0) std::memcpy(to + head, op.local, bytes);
        queue.commit(head + (copied ? bytes : 0));
        if (!copied) {
            item->from = tcp_send_item::source::put_data;
            item->operation = index;
            item->data = const_buffers(std::span<const std::byte>(op.local, bytes));
            queue.append(*item);
            ++op.parts;
        }
        op.address += bytes;
        op.remaining -= bytes;
        if (op.local != nullptr) op.local += bytes;
        if (op.remaining == 0) sending_ = none;
        return true;
    }

    std::vector<operation> operations_;
    std::uint32_t first_free_ = none;
    std::uint32_t first_waiting_ = none;
    std::uint32_t last_waiting_ = none;
    std::uint32_t sending_ = none;  // the put that is being sent; its parts follow each other
    std::size_t outstanding_ = 0;
};

/// What this side serves to the other: gets are answered part by part, in order; puts go to registered memory.
class tcp_server {
public:
    explicit tcp_server(const region_table& regions) noexcept : regions_(regions) {}

    /// False: more is unanswered than the other side may ask.
    [[nodiscard]] bool get_requested(const get_request& request) noexcept {
        const errc allowed =
            regions_.check(request.key, request.address, request.length, access_rights::remote_read);
        return push({request.key, request.address, allowed == errc::ok ? request.length : 0,
                     request.operation, 0, allowed});
    }

    /// A frame of a put begins, with `bytes` bytes of data. False: it may not come now.
    [[nodiscard]] bool put_begins(const put_data& part, std::size_t bytes) noexcept {
        if (bytes > part.remaining) return false;
        if (put_.active) {
            if (part.operation != put_.operation || part.key != put_.key) return false;
            if (bytes == 0 && part.remaining == 0) {  // given up
                put_.remaining = 0;
                if (put_.outcome == errc::ok) put_.outcome = errc::canceled;
                return true;
            }
            if (bytes == 0 || part.address != put_.address || part.remaining != put_.remaining) return false;
            return true;
        }
        if (bytes == 0 && part.remaining != 0) return false;
        put_ = {part.key,
                part.address,
                part.remaining,
                part.operation,
                true,
                regions_.check(part.key, part.address, part.remaining, access_rights::remote_write)};
        return true;
    }

    /// Where the next `bytes` bytes of the put go; nullptr: nowhere. Asked each time before they are written.
    [[nodiscard]] std::byte* destination(std::size_t bytes) noexcept {
        if (put_.outcome == errc::ok)
            put_.outcome = regions_.check(put_.key, put_.address, bytes, access_rights::remote_write);
        return put_.outcome == errc::ok ? reinterpret_cast<std::byte*>(put_.address) : nullptr;
    }
    void put_arrived(std::size_t bytes) noexcept {
        put_.address += bytes;
        put_.remaining -= bytes;
    }
    /// All data of a frame has come. False: more is unanswered than the other side may ask.
    [[nodiscard]] bool put_frame_ended() noexcept {
        if (put_.remaining != 0) return true;
        put_.active = false;
        return push({0, 0, 0, put_.operation, 0, put_.outcome});
    }

    [[nodiscard]] bool wants_to_send() const noexcept { return count_ != 0; }

    /// Appends the next frame of an answer to `queue`. False when nothing waits or there is no room.
    [[nodiscard]] bool send_next(tcp_send_queue& queue) noexcept {
        if (count_ == 0) return false;
        answer& front = answers_[first_];
        if (front.remaining != 0) {
            const errc allowed =
                regions_.check(front.key, front.address, front.remaining, access_rights::remote_read);
            if (allowed == errc::ok) return send_data(front, queue);
            front.outcome = allowed;
            front.remaining = 0;
        }
        if (front.parts != 0) return false;  // the status tells how they went
        constexpr std::size_t bytes = tcp_word_bytes + one_sided_status::wire_bytes;
        std::byte* to = queue.reserve(bytes);
        if (to == nullptr) return false;
        tcp_word{tcp_frame::one_sided_status, 0}.store(to);
        one_sided_status{front.operation, front.outcome}.store(to + tcp_word_bytes);
        queue.commit(bytes);
        first_ = (first_ + 1) % answers_.size();
        --count_;
        return true;
    }

    /// The queue has sent a part of the first answer.
    void part_sent(const tcp_send_item& item) noexcept {
        answer& front = answers_[first_];
        --front.parts;
        if (item.filler && front.outcome == errc::ok) {
            front.outcome = errc::bad_key;
            front.remaining = 0;
        }
    }

private:
    struct answer {
        std::uint64_t key;
        std::uint64_t address;
        std::uint64_t remaining;  // bytes to be put into the queue
        std::uint32_t operation;
        std::uint32_t parts;  // in the queue
        errc outcome;
    };
    struct incoming_put {
        std::uint64_t key;
        std::uint64_t address;
        std::uint64_t remaining;
        std::uint32_t operation;
        bool active;
        errc outcome;
    };

    [[nodiscard]] bool push(const answer& what) noexcept try {
        if (count_ == most_outstanding) return false;
        if (count_ == answers_.size()) {
            // Grows to what the other side asks at a time, and no further than the limit.
            std::vector<answer> more;
            more.reserve(answers_.empty() ? 16 : 2 * answers_.size());
            for (std::size_t i = 0; i < count_; ++i) more.push_back(answers_[(first_ + i) % answers_.size()]);
            more.resize(more.capacity());
            answers_ = std::move(more);
            first_ = 0;
        }
        answers_[(first_ + count_++) % answers_.size()] = what;
        return true;
    } catch (const std::bad_alloc&) {
        return false;  // ends the link
    }

    [[nodiscard]] bool send_data(answer& front, tcp_send_queue& queue) noexcept {
        const std::size_t bytes =
            static_cast<std::size_t>(std::min<std::uint64_t>(front.remaining, tcp_operations::part_bytes));
        const bool copied = bytes <= tcp_operations::copy_limit;
        constexpr std::size_t head = tcp_word_bytes + get_data::wire_bytes;
        std::byte* to = queue.reserve(head + (copied ? bytes : 0));
        if (to == nullptr) return false;
        const auto* from = reinterpret_cast<const std::byte*>(front.address);
        tcp_send_item* item = copied ? nullptr : queue.new_item();
        if (!copied && item == nullptr) return false;
        tcp_word{tcp_frame::get_data, static_cast<std::uint32_t>(bytes)}.store(to);
        get_data{front.operation}.store(to + tcp_word_bytes);
        if (copied) std::memcpy(to + head, from, bytes);
        queue.commit(head + (copied ? bytes : 0));
        if (!copied) {
            item->from = tcp_send_item::source::get_data;
            item->key = front.key;
            item->data = const_buffers(std::span<const std::byte>(from, bytes));
            queue.append(*item);
            ++front.parts;
        }
        front.address += bytes;
        front.remaining -= bytes;
        return true;
    }

    const region_table& regions_;
    std::vector<answer> answers_;
    std::size_t first_ = 0;
    std::size_t count_ = 0;
    incoming_put put_{};
};

}  // namespace rdmacoro::detail
