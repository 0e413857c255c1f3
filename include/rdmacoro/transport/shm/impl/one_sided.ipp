// The gets and puts of one shared-memory link.
#pragma once

#include <rdmacoro/transport/shm/one_sided.hpp>

#include <algorithm>
#include <cstring>
#include <new>

namespace rdmacoro::detail::shm {

RDMACORO_COLD one_sided_engine::~one_sided_engine() {
    free_.splice_back(turn_);
    for (auto& list : waiting_) free_.splice_back(list);
    while (transfer* unused = free_.pop_front()) delete unused;
}

RDMACORO_COLD void one_sided_engine::free_memory(std::size_t most) noexcept {
    for (; most != 0 && !free_.empty(); --most) delete free_.pop_front();
}

RDMACORO_DECL post_result one_sided_engine::begin(bool read, const remote_region& there, std::byte* local,
                                                  completion& c) noexcept {
    transfer_fields job{&c, read, there, local, 0, 0, errc::ok};
    if (link_.peer.reaches(there.address, there.length)) {
        const std::size_t most = link_.domain->copies().piece_of(there.length);
        if (most != 0 || there.length == 0) step_directly(job, most);
        if (job.status == errc::ok && job.moved == there.length) return post_result::done;
    } else {  // the whole range is allowed, or no request is sent
        job.status = link_.peer.check(there, read ? access_rights::remote_read : access_rights::remote_write);
    }
    transfer* made = take();
    if (made == nullptr) return post_result::retry;
    static_cast<transfer_fields&>(*made) = job;
    c.transport_state = made;
    ++open_;
    enqueue(*made, need_of(*made));
    return post_result::posted;
}

RDMACORO_DECL void one_sided_engine::drop_answers_to(const transfer& job) noexcept {
    for (std::size_t i = 0; i < asked_count_; ++i) {
        asked& request = asked_[(asked_first_ + i) % most_asked];
        if (request.job == &job) request.job = nullptr;
    }
}

RDMACORO_COLD void one_sided_engine::revoke(completion& c) noexcept {
    auto* job = static_cast<transfer*>(c.transport_state);
    drop_answers_to(*job);
    give_back(*job);
}

RDMACORO_DECL bool one_sided_engine::advance() noexcept {
    waits_ = false;
    bool any = send_answers();
    // A completion called here may revoke another operation, begin one, or close the link.
    turn_.splice_back(waiting(need::end));
    while (transfer* job = turn_.pop_front()) {
        finish(*job, job->status);
        any = true;
    }
    const copy_allowance& copies = link_.domain->copies();
    need now = first_;
    for (unsigned n = 0; n < 3; ++n) {
        const need after =
            now == need::request ? need::short_copy : static_cast<need>(static_cast<unsigned>(now) + 1);
        if (!waiting(now).empty()) {
            const bool some_left = !copies.used_up();
            any |= now == need::request ? ask_in_turn() : copy_in_turn(now);
            if (some_left && copies.used_up()) first_ = after;
        }
        now = after;
    }
    return any;
}

RDMACORO_COLD void one_sided_engine::fail_all(std::error_code reason) noexcept {
    for (auto& list : waiting_) turn_.splice_back(list);
    while (transfer* job = turn_.front()) finish(*job, reason);
    waits_ = false;
    unsent_count_ = 0;
}

RDMACORO_DECL errc one_sided_engine::serve(const record& r) noexcept {
    switch (r.type) {
        case record_type::get_request: return serve_get(r.payload);
        case record_type::put_request: return serve_put(r.payload);
        case record_type::get_reply: return answered(r, true);
        case record_type::put_reply: return answered(r, false);
        default: return errc::protocol_violation;
    }
}

RDMACORO_DECL one_sided_engine::transfer* one_sided_engine::take() noexcept {
    if (transfer* recycled = free_.pop_front()) return recycled;
    return new (std::nothrow) transfer;
}

RDMACORO_DECL void one_sided_engine::give_back(transfer& job) noexcept {
    job.unlink();
    free_.push_back(job);
    --open_;
}

RDMACORO_DECL void one_sided_engine::finish(transfer& job, errc outcome) noexcept {
    finish(job, outcome == errc::ok ? std::error_code() : make_error_code(outcome));
}

RDMACORO_DECL void one_sided_engine::finish(transfer& job, std::error_code outcome) noexcept {
    completion* c = job.done;
    drop_answers_to(job);
    give_back(job);
    c->done(*c, outcome);
}

RDMACORO_DECL bool one_sided_engine::goes_directly(const transfer_fields& job) const noexcept {
    return job.status == errc::ok && job.moved < job.there.length &&
           link_.peer.reaches(job.there.address, job.there.length);
}

RDMACORO_DECL one_sided_engine::need one_sided_engine::need_of(const transfer_fields& job) const noexcept {
    const std::uint64_t length = job.there.length;
    if (job.status != errc::ok || (job.moved == length && (length != 0 || job.asked == served_empty)))
        return need::end;
    if (goes_directly(job))
        return length - job.moved <= copy_allowance::always ? need::short_copy : need::copy;
    const bool asked_all = length == 0 ? job.asked != 0 : job.asked == length;
    return asked_all ? need::answers : need::request;
}

RDMACORO_DECL void one_sided_engine::enqueue(transfer& job, need what) noexcept {
    job.unlink();
    waiting(what).push_back(job);
}

RDMACORO_DECL bool one_sided_engine::has_to_wait(std::uint64_t bytes) noexcept {
    if (bytes <= copy_allowance::always || !link_.domain->copies().used_up()) return false;
    return waits_ = true;
}

RDMACORO_DECL void one_sided_engine::step_directly(transfer_fields& job, std::size_t most) noexcept {
    job.status =
        link_.touch(job.there, job.read ? access_rights::remote_read : access_rights::remote_write, [&] {
            const std::uint64_t left = job.there.length - job.moved;
            const std::size_t now = left < most ? static_cast<std::size_t>(left) : most;
            const errc outcome = now == 0 ? errc::ok
                                          : link_.peer.copy(job.read, job.there.address + job.moved,
                                                            job.local + job.moved, now);
            if (outcome == errc::ok) job.moved += now;
            link_.domain->copies().copied_piece(now);
            return outcome;
        });
    // The kernel withdrew its permission: from here on the peer serves.
    if (job.status == errc::unsupported) job.status = errc::ok;
}

RDMACORO_DECL bool one_sided_engine::copy_in_turn(need which) noexcept {
    bool any = false;
    while (transfer* job = waiting(which).front()) {
        const std::size_t most = link_.domain->copies().piece_of(job->there.length - job->moved);
        if (most == 0) {
            waits_ = true;
            break;
        }
        any = true;
        if (goes_directly(*job)) step_directly(*job, most);  // else the peer is to serve the rest
        if (const need next = need_of(*job); next == need::end) {
            finish(*job, job->status);
        } else {
            enqueue(*job, next);
        }
    }
    return any;
}

RDMACORO_DECL bool one_sided_engine::ask_in_turn() noexcept {
    bool any = false;
    while (transfer* job = waiting(need::request).front()) {
        if (!asked_.try_reserve(most_asked)) return true;  // until there is memory: polls on
        if (asked_count_ == most_asked || !ask(*job)) break;
        any = true;
        enqueue(*job, need_of(*job));
    }
    if (any) link_.ring_doorbell();
    return any;
}

RDMACORO_DECL bool one_sided_engine::ask(transfer& job) noexcept {
    const std::size_t piece = link_.out.max_message() - sizeof(request_body);
    if (job.asked < job.moved) job.asked = job.moved;  // up to here it was copied directly
    const std::uint64_t left = job.there.length - job.asked;
    const std::uint64_t now = left < piece ? left : piece;
    if (!job.read && has_to_wait(now)) return false;
    const request_body body{job.there.key, job.there.address + job.asked, now};
    const auto raw = std::as_bytes(std::span(&body, 1));
    const std::span<const std::byte> data(job.local + job.asked,
                                          job.read ? 0 : static_cast<std::size_t>(now));
    const std::span<const std::byte> pieces[] = {raw, data};
    if (!link_.out.put(job.read ? record_type::get_request : record_type::put_request, {},
                       const_buffers(std::span(pieces))))
        return false;
    link_.domain->message_copied(data.size());
    asked_[(asked_first_ + asked_count_++) % most_asked] = {&job, job.read, job.asked, now};
    job.asked = job.there.length == 0 ? waiting_empty : job.asked + now;
    return true;
}

RDMACORO_DECL errc one_sided_engine::serve_get(std::span<const std::byte> payload) noexcept {
    request_body wanted{};
    if (payload.size() != sizeof wanted) return errc::protocol_violation;
    std::memcpy(&wanted, payload.data(), sizeof wanted);
    if (wanted.length > link_.out.max_message()) return errc::protocol_violation;
    return answer_with({record_type::get_reply, errc::ok, wanted});
}

RDMACORO_DECL errc one_sided_engine::serve_put(std::span<const std::byte> payload) noexcept {
    request_body wanted{};
    if (payload.size() < sizeof wanted) return errc::protocol_violation;
    std::memcpy(&wanted, payload.data(), sizeof wanted);
    const std::span<const std::byte> data = payload.subspan(sizeof wanted);
    if (wanted.length != data.size()) return errc::protocol_violation;
    const errc verdict = may_touch(wanted, access_rights::remote_write);
    if (verdict == errc::ok && !data.empty()) {
        copy_long(reinterpret_cast<std::byte*>(wanted.address), data.data(), data.size());
        link_.domain->message_copied(data.size());
    }
    return answer_with({record_type::put_reply, verdict, wanted});
}

RDMACORO_DECL errc one_sided_engine::may_touch(const request_body& what,
                                               access_rights wanted) const noexcept {
    return link_.domain->check_served(link_.serial, {what.address, what.length, what.key}, wanted);
}

RDMACORO_DECL errc one_sided_engine::answer_with(const answer& what) noexcept {
    if (unsent_count_ == 0 && send(what)) {
        link_.ring_doorbell();
        return errc::ok;
    }
    if (unsent_count_ == most_asked) return errc::protocol_violation;  // more than may be open at a time
    if (!unsent_.try_reserve(most_asked)) return errc::no_resources;
    unsent_[(unsent_first_ + unsent_count_++) % most_asked] = what;
    send_answers();
    return errc::ok;
}

RDMACORO_DECL bool one_sided_engine::send_answers() noexcept {
    bool any = false;
    for (; unsent_count_ != 0; --unsent_count_) {
        const answer& next = unsent_[unsent_first_];
        if (next.type == record_type::get_reply && has_to_wait(next.of.length)) break;
        if (!send(next)) break;
        unsent_first_ = (unsent_first_ + 1) % most_asked;
        any = true;
    }
    if (any) link_.ring_doorbell();
    return any;
}

RDMACORO_DECL bool one_sided_engine::send(const answer& what) noexcept {
    errc verdict = what.verdict;
    std::span<const std::byte> data;
    if (what.type == record_type::get_reply) {
        verdict = may_touch(what.of, access_rights::remote_read);
        if (verdict == errc::ok)
            data = {reinterpret_cast<const std::byte*>(what.of.address),
                    static_cast<std::size_t>(what.of.length)};
    }
    message_header header{};
    const auto status = static_cast<std::uint32_t>(verdict);
    std::memcpy(header.data(), &status, sizeof status);
    if (!link_.out.put(what.type, header, const_buffers(data))) return false;
    link_.domain->message_copied(data.size());
    return true;
}

RDMACORO_DECL errc one_sided_engine::answered(const record& r, bool read) noexcept {
    if (asked_count_ == 0) return errc::protocol_violation;
    const asked request = asked_[asked_first_];
    std::uint32_t status = 0;
    std::memcpy(&status, r.header->data(), sizeof status);
    const bool good = status == static_cast<std::uint32_t>(errc::ok);
    if (request.read != read || status > static_cast<std::uint32_t>(errc::invalid_argument))
        return errc::protocol_violation;
    if (r.payload.size() != (read && good ? request.bytes : 0)) return errc::protocol_violation;
    asked_first_ = (asked_first_ + 1) % most_asked;
    --asked_count_;
    if (request.job == nullptr) return errc::ok;
    if (!good) {
        request.job->status = static_cast<errc>(status);
    } else {
        if (read && request.bytes != 0) {
            copy_long(request.job->local + request.offset, r.payload.data(), r.payload.size());
            link_.domain->message_copied(r.payload.size());
        }
        request.job->moved += request.bytes;
        if (request.job->there.length == 0) request.job->asked = served_empty;
    }
    if (need_of(*request.job) == need::end) enqueue(*request.job, need::end);
    return errc::ok;
}

}  // namespace rdmacoro::detail::shm
