// connection: a link with matching, credits and policies; the sink of everything that arrives on it.
#pragma once

#include <rdmacoro/protocol/connection_base.hpp>
#include <rdmacoro/protocol/protocols.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>

namespace rdmacoro::detail {

/// A link of `Transport` that sends messages by the policies of `Protocols`. Also the context of the policies' engines.
/// Here is a short message's path; all else is in `connection_base`, or in detail/connection_control.hpp where it needs
/// the engines' types.
template <class Transport, class Protocols>
class connection final : public connection_base {
    static_assert(!Protocols::delegates || matching_link<typename Transport::template link<sink_archetype>>,
                  "protocols<provider_matched> needs a transport whose link models matching_link");

public:
    using link_type = typename Transport::template link<connection>;

    /// `answers`: the peer's hello is to come before this side's, so that the peer is open once this side has it. Of two one at most.
    [[gnu::cold]] connection(mailbox_base& box, peer_id source, typename Transport::connection made,
                             bool answers = false);
    [[gnu::cold]] ~connection();

    [[nodiscard]] link_type& link() noexcept { return link_; }
    [[nodiscard]] const link_type& link() const noexcept { return link_; }

    // ---- for operations

    /// Whether the connection is notified of receives that are posted, and asked before they are canceled.
    static constexpr bool speculates = Protocols::speculates && Transport::static_capabilities.one_sided;

    /// Whether the link matches; then receives and probes that begin go by `receive` and `look_for`.
    static constexpr bool delegates = Protocols::delegates;
    void receive(receive_request& r) noexcept
        requires delegates
    {
        delegate().receive(r);
    }
    void look_for(peer_id) noexcept
        requires delegates
    {
        delegate().look();
    }
    /// The same for a receive that must not be posted with the link.
    void receive_here(receive_request& r) noexcept
        requires delegates
    {
        mailbox().matching().post(r);
        delegate().look();
    }
    /// Whether receives are with the link.
    [[nodiscard]] bool has_receives() noexcept override;
    /// The engine of the only policy.
    [[nodiscard]] auto& delegate() noexcept
        requires delegates
    {
        return engines_.template at<0>();
    }

    /// Begins a send, in its turn.
    [[gnu::always_inline]] void send(send_request& r) noexcept {
        if constexpr (speculates) look_for_announcement(r);
        if (phase_ != phase::open || !queue_.empty()) [[unlikely]] {
            send_later(r);
            return;
        }
        const start_result begun = begin(r);
        if (begun != start_result::begun) [[unlikely]]
            wait(r, begun);
    }

    [[gnu::cold]] bool forget_receive(receive_request& r) noexcept override;
    void matched(unexpected_message& m, receive_request& r) noexcept override;

    unsigned poll(unsigned budget) noexcept override { return link_.poll(budget); }
    [[gnu::always_inline]] void poll_for(peer_id) noexcept {
        // Others that are ready come first, and then all links are polled. To take messages one by one would be to wait for the peer's line
        // each time, where many can come together.
        if (!mailbox_->owner().others_follow()) link_.poll(1);
        if (ahead_.linked()) [[unlikely]]
            ahead_.receive_posted();
    }
    [[nodiscard, gnu::cold]] std::string peer_name() const override;

    /// A receive was posted and has found nothing.
    void posted(receive_request& r) noexcept {
        speculation([&](auto& engine) noexcept { engine.posted(r); });
    }
    /// A posted receive is canceled. False: it ends later, when no announcement of its buffer, or of one behind it, is left.
    [[nodiscard]] bool cancel_posted(receive_request& r) noexcept {
        bool now = true;
        speculation([&](auto& engine) noexcept { now = engine.cancel_posted(r); });
        return now;
    }

    // ---- for policies

    [[nodiscard]] const capabilities& link_capabilities() const noexcept {
        return limits_ != nullptr ? *limits_ : link_.capabilities();
    }
    [[nodiscard]] const capabilities& capabilities_in_force() const noexcept override;

    /// The number of `Policy`'s kind 0 on the wire, and its place in the list.
    template <class Policy>
    [[nodiscard]] static constexpr std::uint8_t first_kind() noexcept {
        return Protocols::template first_kind<Policy>();
    }
    template <class Policy>
    [[nodiscard]] static constexpr std::size_t index_of() noexcept {
        return Protocols::template index_of<Policy>();
    }

    template <class Policy>
    [[gnu::always_inline]] post_result post(unsigned kind, std::uint8_t flags, tag_type tag,
                                            const const_buffers& payload, send_request& r) noexcept {
        return post_on_wire(wire_kind<Policy>(kind), flags, tag, payload, r, kind == 0);
    }
    /// `post` of memory for which the link has answered that it is `in_place`.
    template <class Policy>
    post_result post_in_place(unsigned kind, std::uint8_t flags, tag_type tag, const const_buffers& payload,
                              send_request& r) noexcept {
        r.posted_.done = &connection::on_transmitted;
        r.posted_.self = &r;
        const std::uint16_t credits = credits_.payable();
        const wire_header h{wire_kind<Policy>(kind), flags, credits, tag};
        const post_result answer = link_.post_in_place(h.store(), payload, r.posted_);
        if (answer == post_result::done || answer == post_result::posted) {
            credits_.paid(credits);
            if (kind == 0) message_begun(tag);
        }
        return answer;
    }
    template <class Policy>
    post_result post_copied(unsigned kind, std::uint8_t flags, tag_type tag,
                            std::span<const std::byte> payload) noexcept {
        return post_copied_kind(wire_kind<Policy>(kind), flags, tag, payload, kind == 0);
    }
    post_result post_kind(std::uint8_t kind, std::uint8_t flags, tag_type tag, const const_buffers& payload,
                          send_request& r, bool begins) noexcept override;

    [[gnu::always_inline]] void message_begun([[maybe_unused]] tag_type tag) noexcept {
        speculation([&](auto& engine) noexcept { engine.begun(tag); });
    }
    /// Whether messages of this length go by the policy that announces receives.
    [[nodiscard]] bool speculates_on(std::size_t bytes) const noexcept {
        return Protocols::choose({bytes, false}, link_capabilities()) == Protocols::speculative_index;
    }

    /// As in the base, and counted.
    [[nodiscard, gnu::always_inline]] receive_request* match(tag_type tag) noexcept {
        receive_request* r = connection_base::match(tag);
        if constexpr (speculates) {
            if (r != nullptr) {
                message_seen();
                if (r->canceling_) [[unlikely]]
                    leaving_ = r;
                if (r->announcement_ != receive_request::not_announced)
                    speculation([&](auto& engine) noexcept { engine.superseded(*r); });
            }
        }
        return r;
    }

    /// Opens memory to the peer, or answers an empty region.
    [[nodiscard]] region expose(std::span<std::byte> memory, access_rights rights) noexcept {
        region open = link_.expose(memory, rights);
        if (open) ++counts_.regions_exposed;
        return open;
    }

    template <class Policy>
    [[nodiscard]] unexpected_message* keep(tag_type tag, std::size_t bytes, std::size_t room,
                                           std::uint32_t cost) noexcept {
        return keep_message(index_of<Policy>(), tag, bytes, room, cost);
    }

    // ---- the sink

    delivery deliver(const message_header& raw, std::span<const std::byte> payload) noexcept {
        if (phase_ == phase::opening) [[unlikely]] {
            hello_arrived(wire_header::load(raw), payload);
            return delivery::taken;
        }
        const wire_header h = wire_header::load(raw);
        // The first policy's engine is called by name, not through a visitor, which the compiler may leave out of line.
        constexpr unsigned first = Protocols::first_kinds[0];
        delivery answer = delivery::taken;
        if (h.kind >= first && h.kind < Protocols::first_kinds[1]) [[likely]] {
            answer = engines_.template at<0>().arrived(h.kind - first, h, payload);
        } else {
            answer = deliver_other(h, payload);
        }
        let_go();
        if (answer != delivery::defer) [[likely]]
            header_taken(h);
        return answer;
    }
    delivery begin_payload(const message_header& raw, std::size_t bytes) noexcept;
    std::span<std::byte> payload_space() noexcept;
    void payload_arrived(std::size_t n) noexcept;

private:
    template <class Policy>
    [[nodiscard]] static constexpr std::uint8_t wire_kind(unsigned kind) noexcept {
        return static_cast<std::uint8_t>(first_kind<Policy>() + kind);
    }
    [[gnu::always_inline]] post_result post_on_wire(std::uint8_t kind, std::uint8_t flags, tag_type tag,
                                                    const const_buffers& payload, send_request& r,
                                                    bool begins) noexcept {
        r.posted_.done = &connection::on_transmitted;
        r.posted_.self = &r;
        const std::uint16_t credits = credits_.payable();
        const wire_header h{kind, flags, credits, tag};
        const post_result answer = link_.post(h.store(), payload, r.posted_);
        if (answer == post_result::done || answer == post_result::posted) [[likely]] {
            credits_.paid(credits);
            if (begins) message_begun(tag);
        }
        return answer;
    }
    static void on_transmitted(completion& c, std::error_code outcome) noexcept;

    /// Calls `visit(engine)` for the policy that announces receives, where the list has one.
    template <class Visit>
    [[gnu::always_inline]] void speculation([[maybe_unused]] Visit visit) noexcept {
        if constexpr (speculates) visit(engines_.template at<Protocols::speculative_index>());
    }
    /// A receive that is being canceled has matched a message: it does not wait for the whole of it.
    [[gnu::always_inline]] void let_go() noexcept {
        if constexpr (speculates) {
            if (leaving_ == nullptr) [[likely]]
                return;
            let_go_of(*std::exchange(leaving_, nullptr));
        }
    }
    [[gnu::cold]] void let_go_of(receive_request& r) noexcept;
    /// An announcement that has arrived may spare a long message its request.
    void look_for_announcement(send_request& r) noexcept;

    [[gnu::always_inline]] start_result begin(send_request& r) noexcept {
        const std::size_t policy = Protocols::choose({r.from_.size(), r.synchronous_}, link_capabilities());
        r.via_ = this;
        r.policy_ = static_cast<std::uint8_t>(policy);
        start_result begun = start_result::begun;
        if (policy == 0) [[likely]] {
            begun = engines_.template at<0>().start(r);
        } else {
            begin_other(r, begun);
        }
        return begun;
    }

    // All but the list's first policy, which carries the shortest messages, stands apart from its path.
    [[gnu::noinline]] void begin_other(send_request& r, start_result& begun) noexcept;
    [[gnu::noinline]] delivery deliver_other(const wire_header& h,
                                             std::span<const std::byte> payload) noexcept;

    post_result post_raw(const message_header& header, const const_buffers& payload) noexcept override;
    [[gnu::cold]] bool revoke_posted(completion& c) noexcept override;
    lent_buffer lend_payload() noexcept override;
    [[gnu::cold]] void close_link(std::error_code why) noexcept override;
    void notify_engines(engine_event what, std::error_code reason) noexcept override;
    start_result begin_queued(send_request& r) noexcept override;
    [[gnu::cold]] void cancel_in_engine(send_request& r) noexcept override;
    void note_begun(tag_type tag) noexcept override;
    void note_superseded(receive_request& r) noexcept override;
    std::uint64_t posted_with_link() noexcept override;
    [[gnu::cold]] bool last_word(const wire_header& h) noexcept override;
    [[gnu::cold]] void describe_engines(connection_description& into) noexcept override;

    static constexpr unsigned most_looked_at = 8;  // messages, before a long send begins

    typename Protocols::template engines<connection, Transport::static_capabilities.one_sided> engines_;
    std::uint8_t incoming_ = 0;
    link_type link_;
};

}  // namespace rdmacoro::detail

#include <rdmacoro/protocol/detail/connection_control.hpp>
#if !defined(RDMACORO_SEPARATE_COMPILATION)
#include <rdmacoro/protocol/detail/impl/connection_description.ipp>
#endif
