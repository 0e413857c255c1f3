// The session of a bare link: the sink of the transport's link, that link, and the operations that wait for it.
#pragma once

#include <rdmacoro/coro/describe.hpp>
#include <rdmacoro/coro/detail/described.hpp>
#include <rdmacoro/coro/intrusive_list.hpp>
#include <rdmacoro/coro/operation.hpp>
#include <rdmacoro/transport/concepts.hpp>
#include <rdmacoro/transport/detail/link_actors.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

namespace rdmacoro::detail {

/// A send, a get or a put: waits for room, or is with the transport.
class bare_request : public operation_base, public list_node<bare_request> {
public:
    struct posted_completion : completion {
        bare_request* self;
    };

    void finish(status code) noexcept {
        code_ = code;
        complete();
    }
    void note_wait() noexcept { since_ = owner_->coarse_now().time_since_epoch().count(); }

    posted_completion posted_;
    status code_{};
    bool waits_ = false;     ///< for room
    duration::rep since_{};  ///< when its coroutine was suspended for it

protected:
    explicit bare_request(scheduler* owner) noexcept : operation_base(owner) {}
    bare_request(bare_request&& other) noexcept : operation_base(std::move(other)) {}
};

class bare_send_request : public bare_request {
public:
    const_buffers from_;

protected:
    template <class Buffers>
    bare_send_request(scheduler* owner, Buffers&& from) noexcept
        : bare_request(owner), from_(static_cast<Buffers&&>(from)) {}
};

class bare_transfer_request : public bare_request {
public:
    remote_region there_;
    std::span<std::byte> here_;  ///< only read by a put
    bool read_;

protected:
    bare_transfer_request(scheduler* owner, const remote_region& there, std::span<std::byte> here,
                          bool read) noexcept
        : bare_request(owner), there_(there), here_(here), read_(read) {}
};

/// A receive, posted or being filled.
class bare_receive_request : public operation_base, public list_node<bare_receive_request> {
public:
    void finish(status code, std::uint64_t info = 0) noexcept {
        code_ = code;
        info_ = info;
        complete();
    }

    void note_wait() noexcept { since_ = owner_->coarse_now().time_since_epoch().count(); }

    mutable_buffers into_;
    std::size_t bytes_ = 0;  ///< of the message, once it is known
    duration::rep since_{};  ///< when its coroutine was suspended for it
    status code_{};
    std::uint64_t info_ = 0;

protected:
    template <class Buffers>
    bare_receive_request(scheduler* owner, Buffers&& into) noexcept
        : operation_base(owner), into_(static_cast<Buffers&&>(into)) {}
    bare_receive_request(bare_receive_request&& other) noexcept
        : operation_base(std::move(other)), into_(other.into_) {}
};

/// The sink of a link of transport `T`. Nothing is stored for later receives: without one the answer is `defer`, and in
/// the end the peer waits.
template <class T>
class bare_session final {
public:
    using link_type = typename T::template link<bare_session>;

    explicit bare_session(typename T::connection made) : link_(std::move(made), *this) {
        link_.owner().described().push_back(described_);
    }
    bare_session(const bare_session&) = delete;
    bare_session& operator=(const bare_session&) = delete;
    ~bare_session() { close(make_error_code(errc::closed)); }

    [[nodiscard]] link_type& link() noexcept { return link_; }
    [[nodiscard]] std::error_code reason() const noexcept { return reason_; }

    void close(std::error_code why) noexcept {
        if (!down_) link_.close(why);
    }

    // ---- for operations

    void send(bare_send_request& r) noexcept {
        if (r.from_.size() > link_.capabilities().max_message) {
            r.finish(errc::message_too_long);
        } else {
            begin(r, sends_);
        }
    }
    void transfer(bare_transfer_request& r) noexcept {
        if (r.there_.length != r.here_.size()) {
            r.finish(errc::invalid_argument);
        } else {
            begin(r, transfers_);
        }
    }
    void receive(bare_receive_request& r) noexcept {
        if (down_) {
            r.finish(reason_);
            return;
        }
        receives_.push_back(r);
        link_.poll(1);
    }

    void cancel(bare_send_request& r) noexcept {
        r.unlink();
        if (r.waits_) {
            r.finish(errc::canceled);
            drain<bare_send_request>(sends_);
        } else if (link_.revoke(r.posted_)) {
            r.finish({});
        } else {
            r.finish(errc::canceled);
            close(make_error_code(errc::no_resources));
        }
    }
    void cancel(bare_transfer_request& r) noexcept {
        r.unlink();
        if (!r.waits_) static_cast<void>(link_.revoke(r.posted_));  // its effect is unknown either way
        r.finish(errc::canceled);
    }
    void cancel(bare_receive_request& r) noexcept {
        if (filling_ == &r) filling_ = nullptr;  // the rest of the message is thrown away
        r.unlink();
        r.finish(errc::canceled);
    }

    // ---- the sink

    delivery deliver(const message_header&, std::span<const std::byte> payload) noexcept {
        bare_receive_request* r = receives_.pop_front();
        if (r == nullptr) return delivery::defer;
        if (payload.size() > r->into_.size()) {
            r->finish(errc::truncated, payload.size());
            return delivery::taken;
        }
        copy_in(payload, r->into_, 0);
        r->bytes_ = payload.size();
        r->finish({});
        return delivery::taken;
    }

    delivery begin_payload(const message_header&, std::size_t bytes) noexcept {
        bare_receive_request* r = receives_.pop_front();
        if (r == nullptr) return delivery::defer;
        filling_ = nullptr;
        arrived_ = 0;
        if (bytes > r->into_.size()) {
            r->finish(errc::truncated, bytes);
        } else if (bytes == 0) {
            r->finish({});
        } else {
            r->bytes_ = bytes;
            filling_ = r;
        }
        return delivery::taken;
    }
    std::span<std::byte> payload_space() noexcept {
        if (filling_ == nullptr) return {};
        const std::span<std::byte> piece = filling_->into_.at_offset(arrived_);
        return piece.first(std::min(piece.size(), filling_->bytes_ - arrived_));
    }
    void payload_arrived(std::size_t n) noexcept {
        if (filling_ == nullptr) return;
        arrived_ += n;
        if (arrived_ == filling_->bytes_) std::exchange(filling_, nullptr)->finish({});
    }

    void writable() noexcept {
        drain<bare_send_request>(sends_);
        if constexpr (one_sided_link<link_type>) drain<bare_transfer_request>(transfers_);
    }

    void link_down(std::error_code why) noexcept {
        down_ = true;
        reason_ = why;
        if (filling_ != nullptr) std::exchange(filling_, nullptr)->finish(why);
        while (bare_receive_request* r = receives_.pop_front()) r->finish(why);
        while (bare_request* r = sends_.pop_front()) r->finish(why);
        while (bare_request* r = transfers_.pop_front()) r->finish(why);
    }

private:
    [[nodiscard]] post_result post(bare_send_request& r) noexcept {
        return link_.post(message_header{}, r.from_, r.posted_);
    }
    [[nodiscard]] post_result post(bare_transfer_request& r) noexcept {
        return r.read_ ? link_.get(r.there_, r.here_, r.posted_) : link_.put(r.here_, r.there_, r.posted_);
    }

    template <class Request>
    void begin(Request& r, intrusive_list<bare_request>& waiting) noexcept {
        if (down_) {
            r.finish(reason_);
            return;
        }
        r.posted_.self = &r;
        r.posted_.done = [](completion& c, std::error_code outcome) noexcept {
            bare_request& ended = *static_cast<bare_request::posted_completion&>(c).self;
            ended.unlink();
            ended.finish(outcome);
        };
        if (!waiting.empty() || !attempt(r)) {
            r.waits_ = true;
            waiting.push_back(r);
        }
    }

    /// False: there is no room now, and `writable` will be called.
    template <class Request>
    [[nodiscard]] bool attempt(Request& r) noexcept {
        switch (post(r)) {
            case post_result::done: r.finish({}); break;
            case post_result::posted:
                r.waits_ = false;
                (std::is_same_v<Request, bare_send_request> ? posted_sends_ : posted_transfers_).push_back(r);
                break;
            case post_result::retry: return false;
            case post_result::failed:  // before `link_down`: messages that have arrived go first
                r.finish(reason_ ? reason_ : make_error_code(errc::peer_lost));
                break;
        }
        return true;
    }

    /// Begins the waiting operations, in order, until one finds no room.
    template <class Request>
    void drain(intrusive_list<bare_request>& waiting) noexcept {
        while (bare_request* r = waiting.pop_front()) {
            if (!attempt(static_cast<Request&>(*r))) {
                waiting.push_front(*r);
                return;
            }
        }
    }

    static void describe(void* self, description& into) noexcept {
        auto& here = *static_cast<bare_session*>(self);
        if (here.down_) return;
        try {
            const std::string peer = here.link_.peer_name();
            const time_point now = here.link_.owner().now();
            const auto add = [&](const auto& r, const char* what, std::size_t bytes, const char* stage,
                                 next_actor next) {
                operation_sketch one;
                one.what = what;
                one.peer = peer;
                one.bytes = bytes;
                one.stage = stage;
                one.next = next;
                one.id = &r;
                one.serial = static_cast<std::uint64_t>(r.since_);
                const time_point since{duration(r.since_)};
                if (r.waiter && since != time_point{} && since <= now) one.waited = now - since;
                into.add(one);
            };
            const auto sends = [&](intrusive_list<bare_request>& list, const char* stage) {
                for (bare_request* r = list.front(); r != nullptr; r = list.next(*r))
                    add(*r, "send", static_cast<bare_send_request*>(r)->from_.size(), stage,
                        room_of(here.link_));
            };
            sends(here.posted_sends_, "handed to the network");
            sends(here.sends_, "waits for room in the link");
            if constexpr (one_sided_link<link_type>) {
                const auto transfers = [&](intrusive_list<bare_request>& list, const char* stage,
                                           next_actor next) {
                    for (bare_request* r = list.front(); r != nullptr; r = list.next(*r)) {
                        const auto& moved = *static_cast<bare_transfer_request*>(r);
                        add(*r, moved.read_ ? "rdma_get" : "rdma_put", moved.here_.size(), stage, next);
                    }
                };
                transfers(here.posted_transfers_, "is under way", transfers_of(here.link_));
                transfers(here.transfers_, "waits for room in the link", room_of(here.link_));
            }
            if (here.filling_ != nullptr)
                add(*here.filling_, "recv", here.filling_->bytes_, "is being filled", next_actor::network);
            for (bare_receive_request* r = here.receives_.front(); r != nullptr; r = here.receives_.next(*r))
                add(*r, "recv", r->into_.size(), "posted, no message has come", next_actor::peer_send);
        } catch (...) {
            into.miss_one();
        }
    }

    intrusive_list<bare_request> posted_sends_;  // with the transport
    intrusive_list<bare_request> posted_transfers_;
    intrusive_list<bare_request> sends_;      // that wait for room, in order
    intrusive_list<bare_request> transfers_;  // gets and puts that wait for room
    intrusive_list<bare_receive_request> receives_;
    bare_receive_request* filling_ = nullptr;  // takes the announced message; nullptr: it is discarded
    std::size_t arrived_ = 0;                  // of that message, in bytes
    bool down_ = false;
    std::error_code reason_{};
    described described_{this, &bare_session::describe};
    link_type link_;  // last: made after the rest and destroyed before it
};

}  // namespace rdmacoro::detail
