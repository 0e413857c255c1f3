// Bodies of collective.hpp.
#pragma once

#include <rdmacoro/service/collective.hpp>

#include <algorithm>
#include <new>
#include <utility>

namespace rdmacoro {

RDMACORO_DECL collective::collective(detail::group_state& of, const detail::collective_call& call,
                                     local_stop_token around, std::uint32_t number, unsigned phase) noexcept
    : of_(of),
      call_(call),
      rank_(of.rank()),
      size_(of.size()),
      number_(number),
      tag_(detail::group_tag(of.context(), number, phase)),
      stop_(own_stop_) {
    of.enter(*this);
    own_stop_.follow(around);
    if (own_stop_.stop_requested()) canceled_ = failed_ = true;
    if (of.failure()) {
        failed_ = true;
        own_stop_.request_stop();
    }
}

RDMACORO_DECL collective::collective(collective& whole, std::span<const unsigned> members,
                                     const detail::collective_call& call) noexcept
    : of_(whole.of_),
      call_(call),
      whole_(&whole),
      members_(members),
      rank_(members.empty() ? whole.rank()
                            : static_cast<unsigned>(std::find(members.begin(), members.end(), whole.rank()) -
                                                    members.begin())),
      size_(members.empty() ? whole.size() : static_cast<unsigned>(members.size())),
      number_(whole.number_),
      tag_(whole.tag_),
      failed_(whole.failed_),
      stop_(whole.stop_) {}

RDMACORO_DECL collective::~collective() {
    own_stop_.unfollow();
    unlink();
}

RDMACORO_COLD void collective::transfer_failed(const detail::rank_peer& with, std::error_code why) noexcept {
    if (whole_ != nullptr) {
        failed_ = true;
        whole_->transfer_failed(with, why);
        return;
    }
    const bool first = !std::exchange(failed_, true);
    if (why == errc::canceled) {
        // By this collective's source: the group is revoked, or the caller's token has stopped.
        if (first && !of_.failure()) canceled_ = true;
        return;
    }
    // The sender is alive: its own collective has failed, and it says why by a word that may come later than this. So may a rank that has left
    // in good order.
    const unsigned rank = of_.rank_of(with.rank);
    if (why == errc::closed) {
        left_ = rank;
    } else if (why != errc::peer_canceled) {
        of_.transfer_failed(rank, why);
    }
    own_stop_.request_stop();
}

RDMACORO_COLD void collective::bad_receive(const detail::rank_receive& r, const result<received>& ended,
                                           std::size_t wanted) noexcept {
    if (ended) {
        wrong_length(r.peer(), ended->bytes, wanted);
    } else if (ended.error() == errc::truncated) {
        wrong_length(r.peer(), ended.facts().info, wanted);
    } else {
        transfer_failed(r.peer(), ended.error());
    }
}

RDMACORO_COLD void collective::wrong_length(const detail::rank_peer& from, std::size_t got,
                                            std::size_t wanted) noexcept {
    if (whole_ != nullptr) {
        failed_ = true;
        whole_->wrong_length(from, got, wanted);
        return;
    }
    failed_ = true;
    // The words for it need memory: they are found where its lack can be told.
    if (!wrong_) wrong_ = detail::wrong_message{of_.rank_of(from.rank), got, wanted};
    own_stop_.request_stop();
}

RDMACORO_COLD void collective::tell_wrong_message() {
    group_failure why;
    why.why = make_error_code(group_errc::mismatch);
    why.by = of_.rank();
    try {
        why.text = std::string(title()) + " number " + std::to_string(number_) + ": rank " +
                   std::to_string(wrong_->from) + " sent " + std::to_string(wrong_->got) + " bytes, " +
                   std::to_string(wrong_->wanted) + " were expected";
    } catch (const std::bad_alloc&) {
        why.text.clear();  // the code says what it is
    }
    of_.revoke(std::move(why));
}

namespace detail {

RDMACORO_DECL void arriving_operand::take(std::size_t at, std::span<const std::byte> bytes) noexcept {
    if (failed_ || at + bytes.size() > into_.size()) return;  // of a message that is too long, or has failed
    const std::size_t element = with_.element();
    try {
        // The bytes that came before, and were written to the room.
        if (const std::size_t whole = at - at % element; whole > taken_)
            combine(whole, room_.subspan(taken_, whole - taken_));
        if (taken_ < at) {
            // An element of which the first bytes are there.
            const std::size_t head = std::min(taken_ + element - at, bytes.size());
            std::memcpy(room_.data() + at, bytes.data(), head);
            at += head;
            bytes = bytes.subspan(head);
            if (at < taken_ + element) return;
            combine(at, room_.subspan(taken_, element));
        }
        const std::size_t whole = bytes.size() - bytes.size() % element;
        // No type needs more than the power of two that its size is a multiple of.
        const std::size_t alignment = element & (~element + 1);
        if (reinterpret_cast<std::uintptr_t>(bytes.data()) % alignment == 0) {
            combine(at + whole, bytes.first(whole));
        } else {
            std::memcpy(room_.data() + at, bytes.data(), whole);
            combine(at + whole, room_.subspan(at, whole));
        }
        if (whole != bytes.size())
            std::memcpy(room_.data() + taken_, bytes.data() + whole, bytes.size() - whole);
    } catch (...) {
        failed_ = std::current_exception();
    }
}

}  // namespace detail

RDMACORO_DECL task<> collective::combining::arrived() {
    arrival all{*this};
    co_await all;
    if (of_.has_come(operation_, bytes_)) co_await pieces();
}

RDMACORO_COLD void collective::revoked() noexcept {
    failed_ = true;
    own_stop_.request_stop();
}

RDMACORO_COLD void collective::throw_failure() const {
    const collective& top = whole_ != nullptr ? *whole_ : *this;
    if (&top != this) top.throw_failure();
    std::string what = "group: " + std::string(title()) + " number " + std::to_string(number_);
    if (canceled_) throw error(errc::canceled, what);
    if (!of_.failure()) {
        // `group` throws anew when the reason is known.
        thrown_early_ = true;
        throw error(errc::canceled, what);
    }
    const group_failure& why = *of_.failure();
    // Whichever way a rank was lost, it is not a time limit of the caller's that is over.
    std::error_code code = group_errc::revoked;
    if (why.is_loss()) {
        const bool has_its_own = why.why == errc::closed || why.why == errc::protocol_violation;
        code = has_its_own ? why.why : make_error_code(errc::peer_lost);
    } else if (why.why == errc::protocol_violation || why.why == group_errc::mismatch) {
        code = why.why;
    }
    throw error(code, what + ": " + why.describe());
}

}  // namespace rdmacoro
