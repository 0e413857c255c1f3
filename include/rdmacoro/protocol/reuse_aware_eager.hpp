// reuse_aware_eager: as eager, but memory that is sent from again and again is sent from where it lies.
//
//   sender                                         receiver, as with eager
//     | seldom used: copied, then header + payload --> |
//     | often used: registered once, stays registered  |
//     |   then header + payload gathered ------------> |
#pragma once

#include <rdmacoro/protocol/detail/eager_engine.hpp>
#include <rdmacoro/protocol/detail/reuse_watch.hpp>
#include <rdmacoro/protocol/metrics.hpp>
#include <rdmacoro/protocol/policy.hpp>

#include <algorithm>
#include <new>
#include <type_traits>

namespace rdmacoro {

/// Sends header and data at once, as `eager` does, and where the link stages short messages (`in_place_link`) keeps count
/// of the memory that they are sent from: memory used often enough for it to pay is prepared, and from then on sent without
/// a copy at this side. A send in place ends when the network has read the memory, which is later than a copied one would.
/// On other links, where the copy is the transfer, it is `eager` and counts nothing. Watches contiguous payloads, from the
/// length on from which a copy costs more than the watching. Does not carry synchronous sends. `Limit` is `up_to<Bytes>`;
/// left out, the transport's `eager_bytes`.
template <class Limit = up_to_transport>
struct reuse_aware_eager {
    static constexpr std::string_view name = "reuse_aware_eager";
    static constexpr std::string_view description =
        "header and data in one message; memory sent from again and again is not copied at the sender";
    static constexpr std::uint8_t kinds = 1;

    [[nodiscard]] static constexpr std::size_t longest(const capabilities& link) noexcept {
        return std::min(Limit::bytes == 0 ? link.eager_bytes : Limit::bytes, link.max_message);
    }
    [[nodiscard]] static constexpr bool admits(const message_facts& m, const capabilities& link) noexcept {
        return !m.synchronous && m.bytes <= longest(link);
    }
    [[nodiscard]] static constexpr std::uint64_t parameter() noexcept { return Limit::bytes; }

    /// The state that connections of this type on this scheduler share: counts and costs.
    template <class Connection>
    [[nodiscard]] static detail::reuse_watch& watch(scheduler& on) {
        return on.template service<watch_of<Connection>>();
    }

    template <class Context>
    class engine : public detail::eager_engine<Context, reuse_aware_eager> {
    public:
        /// Whether the link can send in place, so that memory is watched.
        static constexpr bool watches = in_place_link<typename Context::link_type>;

        using detail::eager_engine<Context, reuse_aware_eager>::eager_engine;

        start_result start(detail::send_request& r) noexcept {
            const std::size_t bytes = r.from_.size();
            const std::uint32_t cost = detail::message_cost(bytes);
            if (!this->context_.credits().take(cost)) [[unlikely]]
                return start_result::wait_credit;
            if constexpr (watches) {
                if (bytes >= watching_.from) return start_watched(r, cost);
            }
            return stage(r, cost);
        }

    private:
        start_result stage(detail::send_request& r, std::uint32_t cost) noexcept {
            const post_result answer =
                this->context_.template post<reuse_aware_eager>(0, 0, r.tag_, r.from_, r);
            return this->began(answer, r, cost, this->context_.counts().eager_sent);
        }

        [[gnu::noinline]] start_result start_watched(detail::send_request& r, std::uint32_t cost) noexcept {
            if (watching_.memory == nullptr && !begin_to_watch()) return stage(r, cost);
            detail::reuse_watch& memory = *watching_.memory;
            watching_.from = memory.threshold().pays_from();
            if (r.from_.size() < watching_.from || r.from_.size() > detail::reuse_threshold::most_bytes ||
                !r.from_.contiguous())
                return stage(r, cost);
            metrics& counts = this->context_.counts();
            const std::uint64_t registered = memory.statistics().registrations;
            const detail::reuse_watch::choice choice = memory.look_at(this->context_.link(), r.from_.front());
            counts.reuse_registrations += memory.statistics().registrations - registered;
            const post_result answer =
                choice.in_place
                    ? this->context_.template post_in_place<reuse_aware_eager>(0, 0, r.tag_, r.from_, r)
                    : this->context_.template post<reuse_aware_eager>(0, 0, r.tag_, r.from_, r);
            if (answer == post_result::done || answer == post_result::posted) {
                ++(choice.in_place ? memory.statistics().in_place : memory.statistics().copies);
            } else if (choice.entry != nullptr) {
                detail::usage_table::take_back(*choice.entry);
            }
            return this->began(answer, r, cost, choice.in_place ? counts.in_place_sent : counts.eager_sent);
        }

        [[nodiscard]] bool begin_to_watch() noexcept {
            try {
                detail::reuse_watch& memory = watch<Context>(this->context_.mailbox().owner());
                if (memory.open()) watching_.memory = &memory;
            } catch (const std::bad_alloc&) {
                // Without a table everything is staged.
            }
            return watching_.memory != nullptr;
        }

        struct nothing {};
        struct watching {
            detail::reuse_watch* memory = nullptr;
            std::size_t from =
                detail::reuse_threshold::least_bytes;  // bytes; shorter messages are not watched
        };
        [[no_unique_address]] std::conditional_t<watches, watching, nothing> watching_;
    };

private:
    template <class Connection>
    struct watch_of : detail::reuse_watch {
        using detail::reuse_watch::reuse_watch;
    };
};

}  // namespace rdmacoro
