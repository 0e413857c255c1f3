// checked_eager: a whole protocol policy. As eager, but a message that was damaged on its way ends the link, and reaches
// nobody.
//
//   sender                       receiver
//     | -- sum, in the tag -------> |   what the next message adds up to
//     | -- data ------------------> |   adds up: matched, or kept. Does not: the link ends with `bad_message`
#pragma once

#include <rdmacoro/rdmacoro.hpp>

#include <algorithm>
#include <utility>

namespace rc = rdmacoro;

/// FNV-1a over 64 bits: differs for messages that differ in one byte.
struct checksum {
    std::uint64_t value;

    explicit checksum(rc::tag_type tag) noexcept : value(0xcbf29ce484222325 ^ tag) {}
    void add(std::span<const std::byte> bytes) noexcept {
        for (const std::byte b : bytes) value = (value ^ static_cast<std::uint64_t>(b)) * 0x100000001b3;
    }
};

template <class Limit = rc::up_to_transport>
struct checked_eager {
    static constexpr std::string_view name = "checked_eager";
    static constexpr std::string_view description = "header and data in one message, behind its checksum";
    static constexpr std::uint8_t kinds = 2;
    enum : unsigned { data, sum };

    static constexpr std::size_t longest(const rc::capabilities& link) noexcept {
        return std::min(Limit::bytes == 0 ? link.eager_bytes : Limit::bytes, link.max_message);
    }
    static constexpr bool admits(const rc::message_facts& m, const rc::capabilities& link) noexcept {
        return !m.synchronous && m.bytes <= longest(link);
    }
    static constexpr std::uint64_t parameter() noexcept { return Limit::bytes; }

    /// The base has all of the receiving side: matching, keeping, credit, truncation, cancellation.
    template <class Context>
    class engine : public rc::engines::eager_engine<Context, checked_eager> {
        using base = rc::engines::eager_engine<Context, checked_eager>;

    public:
        using base::base;

        rc::start_result start(rc::engines::send_request& r) noexcept {
            const std::uint32_t cost = rc::engines::message_cost(r.from_.size());
            if (!this->context_.credits().take(cost)) return rc::start_result::wait_credit;
            checksum of(r.tag_);
            for (std::size_t i = 0; i < r.from_.pieces(); ++i) of.add(r.from_[i]);
            // A message that finds no room is begun anew, and its sum said again: the last one counts.
            rc::post_result answer = this->context_.template post_copied<checked_eager>(sum, 0, of.value, {});
            if (answer == rc::post_result::done)
                answer = this->context_.template post<checked_eager>(data, 0, r.tag_, r.from_, r);
            return this->began(answer, r, cost, sent_);
        }

        rc::delivery arrived(unsigned kind, const rc::engines::wire_header& h,
                             std::span<const std::byte> payload) noexcept {
            if (kind == data) {
                checksum of(h.tag);
                of.add(payload);
                return of.value == expected_ ? base::arrived(kind, h, payload) : damaged();
            }
            if (!payload.empty()) return this->context_.violation();
            expected_ = h.tag;
            return rc::delivery::taken;
        }

        // The same for a payload that comes in pieces: each is where `payload_space` said, or is thrown away.

        rc::delivery begin_payload(unsigned kind, const rc::engines::wire_header& h,
                                   std::size_t bytes) noexcept {
            if (kind != data) return this->context_.violation();
            so_far_ = checksum(h.tag);
            left_ = bytes;
            return base::begin_payload(kind, h, bytes);
        }
        std::span<std::byte> payload_space() noexcept { return space_ = base::payload_space(); }
        void payload_arrived(std::size_t n) noexcept {
            wanted_ = wanted_ && !space_.empty();
            so_far_.add(space_.first(std::min(n, space_.size())));
            left_ -= n;
            if (left_ == 0 && std::exchange(wanted_, true) && so_far_.value != expected_) {
                damaged();
            } else {
                base::payload_arrived(n);
            }
        }

    private:
        rc::delivery damaged() noexcept {
            this->context_.close(std::make_error_code(std::errc::bad_message));
            return rc::delivery::taken;
        }

        std::uint64_t sent_ = 0;
        std::uint64_t expected_ = 0;  // sum of the next message
        checksum so_far_{0};          // of the payload that is coming in pieces
        std::size_t left_ = 0;        // of it
        bool wanted_ = true;          // none of it was thrown away
        std::span<std::byte> space_;
    };
};

static_assert(rc::protocol_policy<checked_eager<>>);
