// simple_get: a whole rendezvous policy. The receiver gets the message from the sender's memory, which lies in one piece.
//
//   sender                                receiver
//     | -- request (region, number) -------> |   matched, or stored: a few bytes, whatever the message's length
//     | <=============== get =============== |   straight to its place
//     | <---------- answer: got, or dropped  |   the send has ended, and its number is free
//
//   send canceled:  | -- withdraw -> |   answered `dropped` unless it is matched; a receive that is canceled answers `got`
#pragma once

#include <rdmacoro/rdmacoro.hpp>

#include <array>
#include <utility>

namespace rc = rdmacoro;

struct simple_get {
    static constexpr std::string_view name = "simple_get";
    static constexpr std::string_view description =
        "the receiver gets it from the sender's memory, in one piece";
    static constexpr std::uint8_t kinds = 3;
    static constexpr bool needs_one_sided = true;
    enum : unsigned { request, answer, withdraw };

    static constexpr std::size_t longest(const rc::capabilities&) noexcept { return ~std::size_t{0}; }
    static constexpr std::size_t shortest(const rc::capabilities& link) noexcept {
        return link.eager_bytes + 1;
    }
    static constexpr bool admits(const rc::message_facts& m, const rc::capabilities& link) noexcept {
        return link.one_sided && link.get_alignment == 1 && m.bytes >= shortest(link);
    }
    static constexpr std::uint64_t parameter() noexcept { return 0; }

    template <class Context>
    class engine {
    public:
        explicit engine(Context& context) noexcept : context_(context) {
            for (incoming& in : in_) in.self = this;
        }

        // ---- sending

        rc::start_result start(rc::engines::send_request& r) noexcept {
            std::uint32_t n = 0;
            while (n < most && out_[n].request != nullptr) ++n;
            if (n == most) return rc::start_result::wait_room;
            if (!context_.credits().take(cost)) return rc::start_result::wait_credit;
            const std::span<const std::byte> from = r.from_.front();
            rc::region open;
            if (r.from_.contiguous())
                open = context_.expose({const_cast<std::byte*>(from.data()), from.size()},
                                       rc::access_rights::remote_read);
            if (!open) {
                context_.credits().untake(cost);
                r.finish(rc::errc::unsupported);
                return rc::start_result::begun;
            }
            std::byte raw[body_bytes];
            rc::engines::store_number(raw, open.remote().address);
            rc::engines::store_number(raw + 8, open.remote().length);
            rc::engines::store_number(raw + 16, open.remote().key);
            rc::engines::store_number(raw + 24, n);
            const rc::post_result posted = context_.template post_copied<simple_get>(request, 0, r.tag_, raw);
            if (posted == rc::post_result::failed) {
                r.finish(context_.why_failed());
            } else if (posted == rc::post_result::retry) {
                context_.credits().untake(cost);
                return rc::start_result::wait_room;
            } else {
                out_[n] = {&r, std::move(open), false};
                r.stream_ = n;
                context_.under_way();
            }
            return rc::start_result::begun;
        }
        void transmitted(rc::engines::send_request&, std::error_code) noexcept {
        }  // nothing is posted that completes
        void cancel_send(rc::engines::send_request& r) noexcept {
            out_[r.stream_].owes_withdraw = true;
            send_owed();
        }

        // ---- receiving

        rc::delivery arrived(unsigned kind, const rc::engines::wire_header& h,
                             std::span<const std::byte> payload) noexcept {
            if (kind == request) return requested(h.tag, payload);
            if (h.tag >= most || !payload.empty()) return context_.violation();
            if (kind == withdraw) {
                incoming& in = in_[h.tag];  // else matched, or answered meanwhile
                if (in.stored != nullptr) {
                    context_.withdraw(*std::exchange(in.stored, nullptr));
                    end(in, true);
                }
                return rc::delivery::taken;
            }
            outgoing& out = out_[h.tag];
            if (out.request == nullptr) return context_.violation();
            out.open = {};  // the peer reads it no more
            out.owes_withdraw = false;
            context_.finish_send(*std::exchange(out.request, nullptr),
                                 h.flags == 0 ? rc::engines::status() : rc::errc::canceled);
            context_.room_for_sends();
            return rc::delivery::taken;
        }
        rc::delivery begin_payload(unsigned, const rc::engines::wire_header&, std::size_t) noexcept {
            return context_.violation();  // its messages are short
        }
        std::span<std::byte> payload_space() noexcept { return {}; }
        void payload_arrived(std::size_t) noexcept {}

        void matched(rc::engines::unexpected_message& m, rc::engines::receive_request& r) noexcept {
            incoming& in = in_[m.stream];
            in.stored = nullptr;
            context_.free(m);
            begin(in, r);
        }
        bool forget_receive(rc::engines::receive_request& r) noexcept {
            for (incoming& in : in_) {
                if (in.receive != &r) continue;
                in.canceled = in.getting != 0;
                if (in.canceled) return false;  // ends with the get
                in.receive = nullptr;
                end(in, false);
            }
            return true;
        }

        // ---- both

        void writable() noexcept {
            send_owed();
            for (incoming& in : in_) pump(in);
        }
        void fail(std::error_code reason) noexcept {
            for (outgoing& out : out_) {
                out.open = {};
                if (auto* r = std::exchange(out.request, nullptr)) context_.finish_send(*r, reason);
            }
            for (incoming& in : in_) {
                if (auto* r = std::exchange(in.receive, nullptr)) context_.fail_fill(*r, reason);
                if (auto* m = std::exchange(in.stored, nullptr)) context_.withdraw(*m);
            }
        }

    private:
        static constexpr std::uint32_t most = 64;
        static constexpr std::size_t body_bytes = 28;
        static constexpr std::uint32_t cost = rc::engines::message_cost(0);  // only the request may be stored

        struct outgoing {
            rc::engines::send_request* request = nullptr;
            rc::region open;
            bool owes_withdraw = false;
        };
        struct incoming : rc::completion {
            engine* self;
            rc::engines::receive_request* receive = nullptr;    // being filled
            rc::engines::unexpected_message* stored = nullptr;  // not matched yet
            rc::remote_region from;
            rc::tag_type tag = 0;
            std::size_t got = 0;
            std::size_t getting = 0;  // bytes of the get under way
            bool used = false;        // until it is answered
            bool canceled = false;
            bool owes_answer = false;
            bool dropped = false;
        };

        rc::delivery requested(rc::tag_type tag, std::span<const std::byte> payload) noexcept {
            if (payload.size() != body_bytes) return context_.violation();
            const std::byte* raw = payload.data();
            const auto n = rc::engines::load_number<std::uint32_t>(raw + 24);
            const auto bytes = rc::engines::load_number<std::uint64_t>(raw + 8);
            if (n >= most || in_[n].used || bytes == 0) return context_.violation();
            rc::engines::receive_request* r = context_.match(tag);
            if (r == nullptr && context_.better_to_defer()) return rc::delivery::defer;
            incoming& in = in_[n];
            in.from = {rc::engines::load_number<std::uint64_t>(raw), bytes,
                       rc::engines::load_number<std::uint64_t>(raw + 16), rc::access_rights::remote_read};
            in.tag = tag;
            in.used = true;
            if (r != nullptr) {
                if (context_.pass(cost)) {
                    begin(in, *r);
                } else {
                    context_.fail_fill(*r, make_error_code(rc::errc::protocol_violation));
                }
            } else if (auto* m = context_.template keep<simple_get>(tag, bytes, 0, cost)) {
                m->complete = false;
                m->stream = n;
                in.stored = m;
                context_.announce(*m);
            }
            return rc::delivery::taken;
        }
        void begin(incoming& in, rc::engines::receive_request& r) noexcept {
            in.got = 0;
            if (context_.begin_fill(r, in.from.length, in.tag)) {
                in.receive = &r;
                pump(in);
            } else {
                end(in, false);  // too long for the receive, which has ended
            }
        }
        /// Gets the missing bytes, one piece of the receive's memory after the other.
        void pump(incoming& in) noexcept {
            while (in.receive != nullptr && in.getting == 0) {
                if (in.got == in.from.length) {
                    context_.end_fill(*std::exchange(in.receive, nullptr), in.tag, in.got);
                    end(in, false);
                    return;
                }
                const auto piece = context_.space(*in.receive, in.got, in.from.length - in.got);
                in.done = &engine::got_piece;
                in.getting = piece.size();
                const rc::post_result posted =
                    context_.link().get(in.from.part(in.got, piece.size()), piece, in);
                if (posted == rc::post_result::posted) return;
                in.getting = 0;
                if (posted != rc::post_result::done) return;  // `writable` or `fail` comes
                in.got += piece.size();
            }
        }
        static void got_piece(rc::completion& c, std::error_code outcome) noexcept {
            auto& in = static_cast<incoming&>(c);
            in.got += std::exchange(in.getting, 0);
            if (std::exchange(in.canceled, false)) outcome = make_error_code(rc::errc::canceled);
            if (outcome) {
                in.self->context_.fail_fill(*std::exchange(in.receive, nullptr), outcome);
                in.self->end(in, false);
            } else {
                in.self->pump(in);
            }
        }
        void end(incoming& in, bool dropped) noexcept {
            in.dropped = dropped;
            in.owes_answer = true;
            send_owed();
        }
        void send_owed() noexcept {
            for (std::uint32_t n = 0; n < most; ++n) {
                incoming& in = in_[n];
                if (in.owes_answer && send(answer, in.dropped ? 1 : 0, n)) in.owes_answer = in.used = false;
                if (out_[n].owes_withdraw && send(withdraw, 0, n)) out_[n].owes_withdraw = false;
            }
        }
        bool send(unsigned kind, std::uint8_t flags, std::uint32_t n) noexcept {
            return context_.template post_copied<simple_get>(kind, flags, n, {}) == rc::post_result::done;
        }

        Context& context_;
        std::array<outgoing, most> out_;
        std::array<incoming, most> in_;
    };
};

static_assert(rc::protocol_policy<simple_get>);
