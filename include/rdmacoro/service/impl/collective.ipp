// Bodies of collective.hpp.
#pragma once

#include <rdmacoro/service/collective.hpp>

#include <algorithm>

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
    // The sender is alive: its own collective has failed, and it says why by a word that may come later than this.
    if (why != errc::peer_canceled) of_.transfer_failed(of_.rank_of(with.rank), why);
    own_stop_.request_stop();
}

RDMACORO_COLD void collective::wrong_length(const detail::rank_peer& from, std::size_t got,
                                            std::size_t wanted) noexcept {
    if (whole_ != nullptr) {
        failed_ = true;
        whole_->wrong_length(from, got, wanted);
        return;
    }
    failed_ = true;
    group_failure why;
    why.why = make_error_code(group_errc::mismatch);
    why.by = of_.rank();
    why.text = std::string(title()) + " number " + std::to_string(number_) + ": rank " +
               std::to_string(of_.rank_of(from.rank)) + " sent " + std::to_string(got) + " bytes, " +
               std::to_string(wanted) + " were expected";
    of_.revoke(why);
}

RDMACORO_COLD void collective::revoked() noexcept {
    failed_ = true;
    own_stop_.request_stop();
}

RDMACORO_COLD void collective::throw_failure() const {
    const collective& top = whole_ != nullptr ? *whole_ : *this;
    if (&top != this) top.throw_failure();
    std::string what = "group: " + std::string(title()) + " number " + std::to_string(number_);
    if (canceled_ || !of_.failure()) throw error(errc::canceled, what);
    const group_failure& why = *of_.failure();
    const bool said = why.why == errc::peer_lost || why.why == errc::closed ||
                      why.why == errc::protocol_violation || why.why == group_errc::mismatch ||
                      (!why.lost.empty() && why.why != errc::canceled);
    throw error(said ? why.why : make_error_code(group_errc::revoked), what + ": " + why.describe());
}

}  // namespace rdmacoro
