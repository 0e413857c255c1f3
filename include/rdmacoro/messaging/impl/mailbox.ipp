// Bodies of mailbox.hpp.
#pragma once

#include <rdmacoro/messaging/mailbox.hpp>

#include <new>

namespace rdmacoro::detail {

RDMACORO_COLD mailbox_state_base::mailbox_state_base(scheduler& owner, const mailbox_options& options)
    : mailbox_(owner, options, true) {
    mailbox_.watcher() = this;
}

RDMACORO_COLD mailbox_state_base::~mailbox_state_base() {
    mailbox_.watcher() = nullptr;
    mailbox_.drop_stored(true);  // before each link looks for its own
    for (endpoint_base*& peer : peers_) delete std::exchange(peer, nullptr);
    end_receives_from_any();
    end_waits_for_gone();
}

RDMACORO_COLD peer_id mailbox_state_base::attach(endpoint_owner& made) {
    endpoint_base* const taken = made.get();
    if (taken == nullptr || &taken->base().mailbox().owner() != &mailbox_.owner())
        throw_error(errc::invalid_argument, "mailbox::attach: not an endpoint of this mailbox's scheduler");
    matcher& own = taken->box()->matching();
    if (own.posted() != taken->box()->discarding().posted() || own.has_probes() ||
        taken->base().has_receives())
        throw_error(errc::invalid_argument, "mailbox::attach: the endpoint has a pending receive or probe");
    if (closed_ || closing_) throw_error(errc::closed, "mailbox::attach: the mailbox is closed");
    while (first_free_ < peers_.size() && peers_[first_free_] != nullptr) ++first_free_;
    const std::uint32_t place = first_free_;
    if (!peers_.reach(place + 1) || !mailbox_.matching().add_source(place)) throw std::bad_alloc();
    peers_[place] = made.release();
    ++count_;
    const bool was_down = taken->base().is_down();
    taken->base().move_to(mailbox_, place);
    taken->drop_box();
    if (was_down) link_ended(place);  // one that goes down as it moves tells of it by itself
    return place;
}

RDMACORO_COLD void mailbox_state_base::remove(peer_id id) {
    endpoint_base* const gone = peer(id);
    if (gone == nullptr) throw_error(errc::invalid_argument, "the mailbox has no such peer");
    mailbox_.watcher() = nullptr;  // this end is the caller's
    gone->base().close(make_error_code(errc::closed));
    mailbox_.watcher() = this;
    mailbox_.matching().each_stored(id, [&](unexpected_message& m) noexcept { gone->base().withdraw(m); });
    delete std::exchange(peers_[id], nullptr);
    if (id < first_free_) first_free_ = id;
    --count_;
}

RDMACORO_COLD void mailbox_state_base::end_receives_from_any() noexcept {
    mailbox_.matching().end_all_of(any_source, make_error_code(errc::closed));
}

RDMACORO_COLD void mailbox_state_base::link_ended(peer_id source) noexcept {
    endpoint_base* const ended = peer(source);
    if (ended == nullptr || ended->linked()) return;
    gone_.push_back(*ended);
    tell_of_gone();
}

RDMACORO_COLD void mailbox_state_base::wait_for_gone(gone_operation& waits) noexcept {
    static constexpr wait_facts facts{"gone", "no link has ended that it could tell of", next_actor::outside};
    awaiting_.push_back(waits);
    tell_of_gone();
    if (closed_) end_waits_for_gone();
    if (waits.linked()) waits.park(waits, facts);
}

RDMACORO_COLD void mailbox_state_base::tell_of_gone() noexcept {
    if (gone_.empty() || awaiting_.empty()) return;
    connection_base& ended = gone_.pop_front()->base();
    gone_operation& told = *awaiting_.pop_front();
    told.found_ = {ended.source(), ended.reason()};
    told.end({});
}

RDMACORO_COLD void mailbox_state_base::end_waits_for_gone() noexcept {
    while (gone_operation* const waits = awaiting_.pop_front()) waits->end(errc::closed);
}

}  // namespace rdmacoro::detail

namespace rdmacoro {

RDMACORO_COLD gone_operation::gone_operation(scheduler* owner, detail::mailbox_state_base* of) noexcept
    : base(owner), of_(of) {}

RDMACORO_COLD void gone_operation::start() noexcept { of_->wait_for_gone(*this); }
RDMACORO_COLD void gone_operation::cancel() noexcept {
    this->unlink();
    end(errc::canceled);
}
RDMACORO_COLD void gone_operation::end(detail::status why) noexcept {
    code_ = why;
    this->complete();
}
RDMACORO_COLD result<gone_peer> gone_operation::outcome() noexcept {
    if (code_) return code_;
    return found_;
}

}  // namespace rdmacoro
