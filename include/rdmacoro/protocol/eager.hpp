// eager: one message with header and data; the shortest way for a short message.
//
//   sender                       receiver
//     | -- header + payload ------> |   matched: copied to its place, or lent
//     |                             |   not matched: stored, as the sender's credit pays for
#pragma once

#include <rdmacoro/protocol/detail/eager_engine.hpp>
#include <rdmacoro/protocol/policy.hpp>

#include <algorithm>

namespace rdmacoro {

/// Sends header and data at once. The sender pays credit for the memory that the message may take at the receiver. Does
/// not carry synchronous sends. `Limit` is `up_to<Bytes>`; left out, the transport's `eager_bytes`.
template <class Limit = up_to_transport>
struct eager {
    static constexpr std::string_view name = "eager";
    static constexpr std::string_view description =
        "header and data in one message, copied out at the receiver";
    static constexpr std::uint8_t kinds = 1;

    [[nodiscard]] static constexpr std::size_t longest(const capabilities& link) noexcept {
        return std::min(Limit::bytes == 0 ? link.eager_bytes : Limit::bytes, link.max_message);
    }
    [[nodiscard]] static constexpr bool admits(const message_facts& m, const capabilities& link) noexcept {
        return !m.synchronous && m.bytes <= longest(link);
    }
    [[nodiscard]] static constexpr std::uint64_t parameter() noexcept { return Limit::bytes; }

    template <class Context>
    class engine : public detail::eager_engine<Context, eager> {
    public:
        using detail::eager_engine<Context, eager>::eager_engine;

        start_result start(detail::send_request& r) noexcept {
            const std::uint32_t cost = detail::message_cost(r.from_.size());
            if (!this->context_.credits().take(cost)) [[unlikely]]
                return start_result::wait_credit;
            const post_result answer = this->context_.template post<eager>(0, 0, r.tag_, r.from_, r);
            return this->began(answer, r, cost, this->context_.counts().eager_sent);
        }
    };
};

}  // namespace rdmacoro
