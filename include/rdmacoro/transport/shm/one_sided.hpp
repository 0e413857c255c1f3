// get and put over shared memory: directly where the kernel lets us, otherwise served by the peer through the ring.
#pragma once

#include <rdmacoro/transport/shm/channel.hpp>
#include <rdmacoro/transport/shm/domain.hpp>

#include <array>
#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

namespace rdmacoro::detail::shm {

/// The gets and puts of one link: those we began, and those the peer asks us to serve.
///
/// Served operations need no state at the serving side: the initiator asks for one piece at a time, keeps at most
/// `most_asked` requests unanswered, and answers come in the order of requests. A request that can't be answered for want
/// of room stays in the ring.
class one_sided_engine {
public:
    explicit one_sided_engine(channel& link) noexcept : link_(link) {}
    one_sided_engine(const one_sided_engine&) = delete;
    one_sided_engine& operator=(const one_sided_engine&) = delete;

    [[nodiscard]] post_result begin(bool read, const remote_region& there, std::byte* local,
                                    completion& c) noexcept {
        transfer_fields job{&c, read, there, local, 0, 0, errc::ok};
        if (link_.peer.reaches(there.address, there.length)) {
            step_directly(job);
            if (job.status == errc::ok && job.moved == there.length) return post_result::done;
        } else {  // all of it is allowed, or nothing of it is asked for
            job.status =
                link_.peer.check(there, read ? access_rights::remote_read : access_rights::remote_write);
        }
        transfer* kept = take();
        if (kept == nullptr) return post_result::retry;
        static_cast<transfer_fields&>(*kept) = job;
        c.transport_state = kept;
        active_.push_back(*kept);
        return post_result::posted;
    }

    /// Forgets an operation; answers to it that are still to come are thrown away.
    void revoke(completion& c) noexcept {
        auto* job = static_cast<transfer*>(c.transport_state);
        for (std::size_t i = 0; i < asked_count_; ++i) {
            asked& request = asked_[(asked_first_ + i) % most_asked];
            if (request.job == job) request.job = nullptr;
        }
        give_back(*job);
    }

    [[nodiscard]] bool idle() const noexcept { return active_.empty() && unsaid_count_ == 0; }

    /// Goes on with what we began; true when anything moved.
    bool advance() noexcept {
        bool any = say_answers();
        // A completion that is called here may revoke another operation, begin one, or close the link.
        turn_.splice_back(active_);
        while (transfer* job = turn_.pop_front()) {
            active_.push_back(*job);
            any |= advance_one(*job);
        }
        return any;
    }

    /// Ends everything we began with `reason`.
    void fail_all(std::error_code reason) noexcept {
        active_.splice_back(turn_);
        while (transfer* job = active_.front()) finish(*job, reason);
        for (asked& request : asked_) request.job = nullptr;
        unsaid_count_ = 0;
    }

    /// A record of the one-sided kinds has come; false when the peer may not send it. It never has to wait: what stood behind
    /// it in the ring may be what makes room for the answer.
    [[nodiscard]] bool serve(const record& r) noexcept {
        switch (r.type) {
            case record_type::get_request: return serve_get(r.payload);
            case record_type::put_request: return serve_put(r.payload);
            case record_type::get_reply: return answered(r, true);
            case record_type::put_reply: return answered(r, false);
            default: return false;
        }
    }

private:
    static constexpr std::size_t most_asked = 16;
    static constexpr std::size_t direct_step = 1u << 20;  // bytes copied between two looks at anything else

    struct transfer_fields {
        completion* done = nullptr;
        bool read = false;
        remote_region there{};
        std::byte* local = nullptr;
        std::uint64_t asked = 0;  // bytes asked of a serving peer
        std::uint64_t moved = 0;  // bytes that are where they belong
        errc status = errc::ok;
    };
    struct transfer : list_node<transfer>, transfer_fields {};
    /// A request that the peer has yet to answer.
    struct asked {
        transfer* job = nullptr;  // nullptr: revoked
        bool read = false;
        std::uint64_t offset = 0;
        std::uint64_t bytes = 0;
    };
    struct request_body {
        std::uint64_t key;
        std::uint64_t address;
        std::uint64_t length;
    };
    /// What the peer is to be told of its request.
    struct answer {
        record_type type;
        errc verdict;  // of a put; a get's is found when it is said
        request_body of;
    };

    [[nodiscard]] transfer* take() noexcept {
        if (transfer* recycled = free_.pop_front()) return recycled;
        try {
            owned_.push_back(std::make_unique<transfer>());
        } catch (const std::bad_alloc&) {
            return nullptr;
        }
        return owned_.back().get();
    }
    void give_back(transfer& job) noexcept {
        job.unlink();
        free_.push_back(job);
    }

    void finish(transfer& job, std::error_code outcome) noexcept {
        completion* c = job.done;
        // Requests that are still out are answered to nobody.
        for (asked& request : asked_) {
            if (request.job == &job) request.job = nullptr;
        }
        give_back(job);
        c->done(*c, outcome);
    }

    /// Copies the next piece.
    void step_directly(transfer_fields& job) noexcept {
        job.status =
            link_.touch(job.there, job.read ? access_rights::remote_read : access_rights::remote_write, [&] {
                const std::uint64_t left = job.there.length - job.moved;
                const std::size_t now = left < direct_step ? static_cast<std::size_t>(left) : direct_step;
                const errc outcome = now == 0 ? errc::ok
                                              : link_.peer.copy(job.read, job.there.address + job.moved,
                                                                job.local + job.moved, now);
                if (outcome == errc::ok) job.moved += now;
                return outcome;
            });
        // The kernel changed its mind: from here on the peer serves.
        if (job.status == errc::unsupported) job.status = errc::ok;
    }

    bool advance_one(transfer& job) noexcept {
        bool any = false;
        if (job.status == errc::ok && job.moved < job.there.length &&
            link_.peer.reaches(job.there.address, job.there.length)) {
            step_directly(job);
            any = true;
        } else if (job.status == errc::ok) {
            any = ask(job);
        }
        if (job.status != errc::ok) {
            finish(job, make_error_code(job.status));
            return true;
        }
        if (job.moved == job.there.length && (job.there.length != 0 || job.asked == served_empty)) {
            finish(job, {});
            return true;
        }
        return any;
    }

    /// Asks the peer for what is still to be asked for; true when anything was.
    bool ask(transfer& job) noexcept {
        bool any = false;
        const std::size_t piece = link_.out.max_message() - sizeof(request_body);
        if (job.asked < job.moved) job.asked = job.moved;  // so far we could reach it ourselves
        while (asked_count_ < most_asked) {
            const bool empty = job.there.length == 0 && job.asked == 0;
            if (!empty && (job.there.length == 0 || job.asked == job.there.length)) break;
            const std::uint64_t left = job.there.length - job.asked;
            const std::uint64_t now = left < piece ? left : piece;
            const request_body body{job.there.key, job.there.address + job.asked, now};
            const auto raw = std::as_bytes(std::span(&body, 1));
            const std::span<const std::byte> data(job.local + job.asked,
                                                  job.read ? 0 : static_cast<std::size_t>(now));
            const std::span<const std::byte> pieces[] = {raw, data};
            const bool sent = link_.out.put(job.read ? record_type::get_request : record_type::put_request,
                                            {}, const_buffers(std::span(pieces)));
            if (!sent) break;
            asked_[(asked_first_ + asked_count_++) % most_asked] = {&job, job.read, job.asked, now};
            job.asked = empty ? waiting_empty : job.asked + now;
            any = true;
        }
        if (any) link_.ring_doorbell();
        return any;
    }

    [[nodiscard]] bool serve_get(std::span<const std::byte> payload) noexcept {
        request_body wanted{};
        if (payload.size() != sizeof wanted) return false;
        std::memcpy(&wanted, payload.data(), sizeof wanted);
        if (wanted.length > link_.out.max_message()) return false;
        return answer_with({record_type::get_reply, errc::ok, wanted});
    }

    [[nodiscard]] bool serve_put(std::span<const std::byte> payload) noexcept {
        request_body wanted{};
        if (payload.size() < sizeof wanted) return false;
        std::memcpy(&wanted, payload.data(), sizeof wanted);
        const std::span<const std::byte> data = payload.subspan(sizeof wanted);
        if (wanted.length != data.size()) return false;
        const errc verdict = link_.domain->regions().check(wanted.key, wanted.address, wanted.length,
                                                           access_rights::remote_write);
        if (verdict == errc::ok && !data.empty()) {
            std::memcpy(reinterpret_cast<std::byte*>(wanted.address), data.data(), data.size());
        }
        return answer_with({record_type::put_reply, verdict, wanted});
    }

    /// False: the peer has asked for more at a time than it may.
    [[nodiscard]] bool answer_with(const answer& what) noexcept {
        if (unsaid_count_ == most_asked) return false;
        unsaid_[(unsaid_first_ + unsaid_count_++) % most_asked] = what;
        say_answers();
        return true;
    }

    bool say_answers() noexcept {
        bool any = false;
        for (; unsaid_count_ != 0 && say(unsaid_[unsaid_first_]); --unsaid_count_) {
            unsaid_first_ = (unsaid_first_ + 1) % most_asked;
            any = true;
        }
        if (any) link_.ring_doorbell();
        return any;
    }

    [[nodiscard]] bool say(const answer& what) noexcept {
        errc verdict = what.verdict;
        std::span<const std::byte> data;
        if (what.type == record_type::get_reply) {
            verdict = link_.domain->regions().check(what.of.key, what.of.address, what.of.length,
                                                    access_rights::remote_read);
            if (verdict == errc::ok)
                data = {reinterpret_cast<const std::byte*>(what.of.address),
                        static_cast<std::size_t>(what.of.length)};
        }
        message_header header{};
        const auto status = static_cast<std::uint32_t>(verdict);
        std::memcpy(header.data(), &status, sizeof status);
        return link_.out.put(what.type, header, const_buffers(data));
    }

    [[nodiscard]] bool answered(const record& r, bool read) noexcept {
        if (asked_count_ == 0) return false;
        const asked request = asked_[asked_first_];
        std::uint32_t status = 0;
        std::memcpy(&status, r.header->data(), sizeof status);
        const bool good = status == static_cast<std::uint32_t>(errc::ok);
        if (request.read != read || status > static_cast<std::uint32_t>(errc::invalid_argument)) return false;
        if (r.payload.size() != (read && good ? request.bytes : 0)) return false;
        asked_first_ = (asked_first_ + 1) % most_asked;
        --asked_count_;
        if (request.job == nullptr) return true;
        if (!good) {
            request.job->status = static_cast<errc>(status);
        } else {
            if (read && request.bytes != 0)
                std::memcpy(request.job->local + request.offset, r.payload.data(), r.payload.size());
            request.job->moved += request.bytes;
            if (request.job->there.length == 0) request.job->asked = served_empty;
        }
        return true;
    }

    // What `asked` says of an operation of no bytes, which asks once all the same, for the key to be checked.
    static constexpr std::uint64_t waiting_empty = 1;
    static constexpr std::uint64_t served_empty = 2;

    channel& link_;
    intrusive_list<transfer> active_;
    intrusive_list<transfer> turn_;  // of those, not looked at yet by the poll that is going on
    intrusive_list<transfer> free_;
    std::vector<std::unique_ptr<transfer>> owned_;
    std::array<asked, most_asked> asked_{};
    std::size_t asked_first_ = 0;
    std::size_t asked_count_ = 0;
    std::array<answer, most_asked> unsaid_{};  // answers that found no room yet, in order
    std::size_t unsaid_first_ = 0;
    std::size_t unsaid_count_ = 0;
};

}  // namespace rdmacoro::detail::shm
