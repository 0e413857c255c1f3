// How calls are canceled, refused and ended, and the errors they end with.
#pragma once

#include <rdmacoro/coro/as_result.hpp>
#include <rdmacoro/coro/scheduler.hpp>
#include <rdmacoro/coro/sleep_for.hpp>
#include <rdmacoro/coro/yield.hpp>
#include <rdmacoro/service/detail/calls_base.hpp>
#include <rdmacoro/service/node_call_operation.hpp>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <exception>
#include <new>
#include <string>
#include <system_error>

namespace rdmacoro {

RDMACORO_COLD std::optional<duration> call_context::remaining() const noexcept {
    if (due_ == time_point{}) return {};
    return std::max(due_ - scheduler::current()->now(), duration::zero());
}
RDMACORO_COLD std::string call_context::peer_name() const { return over_.peer_name(); }
RDMACORO_COLD task<> call_context::get(const remote_region& there, std::span<std::byte> into) {
    return over_.get(there, into);
}
RDMACORO_COLD task<> call_context::put(std::span<const std::byte> from, const remote_region& there) {
    return over_.put(from, there);
}

namespace detail {

RDMACORO_COLD calls_base::~calls_base() = default;

RDMACORO_COLD void calls_base::throw_of_stream(const error& failed) const {
    if (node_ == 0) throw error(failed);
    throw_of_node(node_, born_, failed);
}

RDMACORO_COLD void calls_base::end() noexcept {
    if (pending_ != 0)
        fatal("a calls object was destroyed while calls of it were under way, or streams of it were read");
    stop_.request_stop();
    struct long_wait : timer_node {
        calls_base* of;
    } waits;
    waits.of = this;
    waits.deadline = deadline_after(owner_.now(), 2 * to_answer);
    waits.expired = [](timer_node& at) noexcept { static_cast<long_wait&>(at).of->tell_unended(); };
    if (handlers_ != 0) owner_.add_timer(waits);
    owner_.run_until([this] { return handlers_ == 0 && loops_.size() == 0 && notes_.size() == 0; }, stop_);
    if (waits.queued()) owner_.remove_timer(waits);
}
RDMACORO_COLD void calls_base::tell_unended() noexcept {
    try {
        std::fprintf(stderr,
                     "rdmacoro: a calls object is destroyed, and waits for handlers that do not end, though "
                     "they were asked to stop: %s. A handler must not destroy the calls that it serves.\n",
                     running_methods().c_str());
    } catch (const std::bad_alloc&) {}
}

RDMACORO_COLD task<> calls_base::drained() {
    part_of_current here{*this, false};
    co_await here;
    const apart_again at_the_end(stop_, here.former);
    loops_.request_stop();
    co_await loops_.join();
    draining_ = true;
    while (handlers_ != dropping_) co_await idle_.wait();  // callers can cancel until then
    // Notes are received further: without them the streams that this side writes, now or later, have no room.
    if (stopping()) co_await notes_.join();
}

RDMACORO_COLD void calls_base::child_failed(std::exception_ptr failure) noexcept {
    try {
        std::rethrow_exception(std::move(failure));
    } catch (const std::system_error& why) {
        if (ends_link(why.code())) return;  // it ends anyway, or this side does
    } catch (...) {}
    abort_link();  // the handler's end could not be told: its caller would wait for ever
}
RDMACORO_DECL std::coroutine_handle<> calls_base::child_ended() noexcept {
    end_activity();
    return std::noop_coroutine();
}

RDMACORO_COLD void calls_base::begin() {
    // The link has ended, as all operations say; or there is no memory, and callers would wait for ever.
    loops_.on_error([this](const std::exception_ptr&) { abort_link(); });
    notes_.on_error([this](const std::exception_ptr&) { abort_link(); });
    try {
        notes_.spawn(serving_notes{this});
        loops_.spawn(serving_unserved{this, first_requests});
        loops_.spawn(serving_unserved{this, later_requests});
    } catch (...) {
        end();  // what runs already calls functions of the derived class
        throw;
    }
}
RDMACORO_COLD std::size_t calls_base::discard(tag_match wanted) {
    return link_.base().mailbox().discard(link_.base().source(), wanted);
}
RDMACORO_COLD void calls_base::find_unserved(std::vector<tag_type>& into, tag_match among) {
    // The requests to a service that takes no more, which may be very many, are a class of their own.
    static_assert((service_bits & ~kept_messages<of_source>::key_bits) == 0);
    into.reserve(256);
    connection_base& link = link_.base();
    link.mailbox().matching().each_masked(
        link.source(), among, [this](tag_type of_class) noexcept { return offers(service_of(of_class)); },
        [&](const unexpected_message& m) noexcept {
            if (!offers(service_of(m.tag))) into.push_back(m.tag);
            return into.size() != into.capacity();
        });
}
RDMACORO_COLD bool calls_base::is_stored(tag_match wanted) {
    connection_base& link = link_.base();
    return link.mailbox().matching().find(link.source(), wanted) != nullptr;
}

RDMACORO_DECL std::unique_ptr<encoder> calls_base::take_encoder() {
    if (spare_.empty()) {
        // To take it back without allocating.
        spare_.reserve(std::min(spare_.capacity() + 1, most_spare));
        return std::make_unique<encoder>();
    }
    std::unique_ptr<encoder> taken = std::move(spare_.back());
    spare_.pop_back();
    taken->clear();
    return taken;
}

RDMACORO_COLD bool calls_base::knows(std::uint16_t service) noexcept {
    if (std::ranges::find(known_services_, service) == known_services_.end()) return false;
    known_ = service;
    return true;
}

RDMACORO_COLD tag_type calls_base::first_bit(std::uint16_t service) noexcept {
    return knows(service) ? 0 : first_call_bit;
}

RDMACORO_COLD void calls_base::offer(service& what) {
    what.check_beside(offered_, "calls::serve");
    unsent_.push_back(std::make_unique<unsent_answers>(what));
    try {
        offered_.push_back(&what);
        loops_.spawn(serving_one{this, unsent_.back().get()});
    } catch (...) {
        unsent_.pop_back();
        offered_.resize(unsent_.size());
        throw;
    }
    const auto refused = std::ranges::find(refused_here_, what.number_);
    if (refused == refused_here_.end()) return;
    refused_here_.erase(refused);
    try {
        tell_known(what.number_);
    } catch (const std::bad_alloc&) {
        abort_link();  // it is offered, and the peer would not learn of it
    }
}
RDMACORO_COLD bool calls_base::offers(std::uint16_t service) const noexcept {
    return std::ranges::any_of(offered_, [&](const auto* one) { return one->number_ == service; });
}

RDMACORO_COLD std::string calls_base::running_methods() {
    std::vector<std::string_view> names;
    running_.for_each_list([&names](running_table::list& among) {
        for (call_context* one = among.front(); one != nullptr; one = among.next(*one)) {
            if (one->method_ != nullptr && std::ranges::find(names, one->method_->name) == names.end())
                names.push_back(one->method_->name);
        }
    });
    std::string text;
    for (const std::string_view name : names) {
        if (!text.empty()) text += " and ";
        text += name;
    }
    return text;
}

RDMACORO_COLD task<> calls_base::serve_notes() {
    std::error_code why = make_error_code(errc::no_resources);
    std::exception_ptr failure;
    try {
        why = co_await receive_notes();
    } catch (const std::system_error& failed) {
        why = failed.code();
        failure = std::current_exception();
    } catch (...) {
        failure = std::current_exception();
    }
    // No note of credit comes any more.
    if (why != errc::canceled) stop_.request_stop();  // the peer has gone
    end_writers(why);
    if (failure) std::rethrow_exception(failure);
}
RDMACORO_COLD task<std::error_code> calls_base::receive_notes() {
    for (;;) {
        const result<message> note = co_await as_result(receive(notes));
        if (!note) {
            if (note.error() == errc::no_resources)
                throw std::bad_alloc();  // it may have given credit, or canceled what runs here
            if (!ends_link(note.error())) continue;
            co_return note.error();
        }
        const message& got = *note;
        note_head head{};
        if (got.size() < sizeof head) continue;  // of no call of ours
        std::memcpy(&head, got.bytes().data(), sizeof head);
        const std::uint64_t number = call_number(got.tag());
        switch (static_cast<note_kind>(head.kind)) {
            case note_kind::cancel:
                if (got.size() > most_canceled * sizeof head) throw_error(errc::protocol_violation);
                for (std::size_t at = 0; at + sizeof head <= got.size(); at += sizeof head) {
                    std::memcpy(&head, got.bytes().data() + at, sizeof head);
                    // Others have a turn: one that is known by its number alone is looked for among all requests that wait.
                    if (at != 0 && (at % (32 * sizeof head) == 0 || !request_of(head.method).exact()))
                        co_await yield();
                    co_await cancel(head.method, head.amount);
                }
                break;
            case note_kind::credit:
                if (call_context* const one = running(number); one != nullptr && one->writer_ != nullptr)
                    one->writer_->has_room(head.amount, head.method);
                break;
            case note_kind::known:
                refused_.clear();  // it may have been this one's method
                if (head.amount <= 0x7fff && known_services_.size() < most_known &&
                    !knows(static_cast<std::uint16_t>(head.amount))) {
                    known_services_.push_back(static_cast<std::uint16_t>(head.amount));
                }
                break;
            case note_kind::refused:
                // It becomes the error of a call: a code that is none would be a success.
                if (!is_call_error(static_cast<std::int32_t>(head.amount)))
                    throw_error(errc::protocol_violation);
                if (refused_.size() < most_known &&
                    std::ranges::find(refused_, head.method, &note_head::method) == refused_.end())
                    refused_.push_back(head);
                break;
            case note_kind::room:
            case note_kind::left: tell_writer(number, head); break;
        }
    }
}

RDMACORO_COLD call_context* calls_base::running(std::uint64_t number) noexcept {
    running_table::list& among = bucket(number);
    call_context* one = among.front();
    while (one != nullptr && one->number_ != number) one = among.next(*one);
    return one;
}

RDMACORO_COLD task<> calls_base::cancel(std::uint64_t number_or_tag, std::uint32_t expected) {
    const std::uint64_t number = call_number(number_or_tag);
    if (call_context* const one = running(number)) {
        one->canceled_ = true;
        one->stop_.request_stop();
        co_return;
    }
    const fate before = history_.of(number);
    if (before == fate::ended || before == fate::answered) co_return;
    const bool perhaps = (expected & perhaps_bit) != 0;
    if (discard(request_of(number_or_tag)) == 0) {
        if (before == fate::old) co_return;
        // It may be being received: its end comes later than this.
        history_.set(number, perhaps ? fate::answered : fate::canceled);
        if (!perhaps) co_return;
    } else {
        has_ended(number);
    }
    if (perhaps) {
        discard(call_tag(call_kind::caller_item, number));  // its end, which was sent before this
    } else if ((number & caller_writes_bit) != 0) {
        drop_written(number);
    }
    const bool items = (expected & ~perhaps_bit) == static_cast<std::uint32_t>(call_kind::item);
    const tag_type answer = call_tag(items ? call_kind::item : call_kind::answer, number);
    // Beside this: it may wait for credit, and handlers that other notes cancel are not to wait for that.
    if (answering_canceled_ < most_answering_canceled) {
        begin_handler(send_stopped(*this, *this, answer));
        co_return;
    }
    call_failure failed;
    failed.set(call_errc::stopped);
    co_await send(failed.bytes(), answer);
}
RDMACORO_COLD child calls_base::send_stopped(child_owner&, calls_base& self, tag_type answer) {
    call_failure failed;
    failed.set(call_errc::stopped);
    ++self.answering_canceled_;
    const auto told = co_await as_result(self.send(failed.bytes(), answer));
    --self.answering_canceled_;
    if (!told && !ends_link(told.error())) self.abort_link();  // its caller would wait for ever
}

RDMACORO_COLD void calls_base::tell_known(std::uint16_t service) {
    if (std::ranges::find(telling_known_, service) != telling_known_.end()) return;  // soon
    telling_known_.push_back(service);
    try {
        begin_handler(send_known(*this, *this, service));
    } catch (const std::bad_alloc&) {
        telling_known_.pop_back();
        throw;
    }
}
RDMACORO_COLD child calls_base::send_known(child_owner&, calls_base& self, std::uint16_t service) {
    const note_head known{static_cast<std::uint32_t>(note_kind::known), service, 0};
    static_cast<void>(
        co_await as_result(self.send(std::as_bytes(std::span(&known, 1)), call_tag(call_kind::note, 0))));
    std::erase(self.telling_known_, service);
}

RDMACORO_COLD task<> calls_base::tell_refused(const message& request, call_failure failed) {
    answer_head head{};
    request_head asked{};
    std::memcpy(&head, failed.bytes().data(), sizeof head);
    if (request.size() < sizeof asked) co_return;
    std::memcpy(&asked, request.bytes().data(), sizeof asked);
    const std::uint16_t service = service_of(request.tag());
    if (refused_here_.size() < most_known && !offers(service) &&
        std::ranges::find(refused_here_, service) == refused_here_.end())
        refused_here_.push_back(service);
    const note_head refused{static_cast<std::uint32_t>(note_kind::refused),
                            static_cast<std::uint32_t>(head.code), asked.method};
    co_await send(std::as_bytes(std::span(&refused, 1)), call_tag(call_kind::note, 0));
}

RDMACORO_COLD task<> calls_base::refuse_unreceived(received of, std::error_code why) {
    const call_kind asked = kind_of_call(of.tag);
    if (asked != call_kind::request && asked != call_kind::open) co_return;
    call_failure failed;
    if (why == errc::truncated) {
        failed.set(errc::message_too_long, "a request of " + std::to_string(of.bytes) +
                                               " bytes, more than mailbox_options::lent_bytes there");
    } else {
        failed.set(errc::no_resources, "no memory to receive its request");
    }
    const bool answered = was_canceled(call_number(of.tag)) == fate::answered;
    has_ended(call_number(of.tag));
    if ((of.tag & caller_writes_bit) != 0) drop_written(call_number(of.tag));
    if (!answered) co_await send(failed.bytes(), call_tag(kind_of_answer(asked), of.tag));
}

RDMACORO_COLD void calls_base::answer_not_sent(call_failure& failed) {
    try {
        throw;
    } catch (const std::system_error& why) {
        if (ends_link(why.code())) throw;
        failed.set(errc::no_resources, "its answer could not be sent");
    } catch (const std::bad_alloc&) {
        failed.set(errc::no_resources, "no memory for its answer");
    }
}

RDMACORO_COLD task<> calls_base::serve_unserved(tag_match among) {
    call_failure failed;
    failed.set(call_errc::unknown_method);
    std::vector<tag_type> found;  // keeps its memory: requests wait again and again where a service is busy
    for (;;) {
        co_await arrival(among);
        find_unserved(found, among);
        // All are for services that take no more at the moment: to look through them takes its time.
        if (found.empty()) co_await sleep_for(std::chrono::milliseconds(100));
        for (; !found.empty(); found.pop_back()) {
            const tag_type tag = found.back();
            const std::uint64_t number = call_number(tag);
            if (!is_stored(tag)) continue;  // canceled meanwhile, or its service is here now
            const call_kind asked = kind_of_call(tag);
            if (asked == call_kind::one_way && (tag & first_call_bit) != 0) {
                const result<message> request = co_await as_result(receive(tag));
                if (request) co_await tell_refused(*request, failed);
                if (!request && ends_link(request.error())) co_return;
                continue;
            }
            discard(tag);
            if (asked != call_kind::request && asked != call_kind::open) continue;
            const bool answered = was_canceled(number) == fate::answered;
            has_ended(number);
            if ((tag & caller_writes_bit) != 0) drop_written(number);
            if (!answered) co_await send(failed.bytes(), call_tag(kind_of_answer(asked), tag));
        }
    }
}

RDMACORO_COLD void calls_base::queue_cancel(std::uint64_t number_or_tag, std::uint32_t expected) noexcept {
    make_handler([&] {
        canceled_.push_back({static_cast<std::uint32_t>(note_kind::cancel), expected, number_or_tag});
        return std::exchange(telling_canceled_, true) ? child{} : send_canceled(*this, *this);
    });
}
RDMACORO_COLD child calls_base::send_canceled(child_owner&, calls_base& self) {
    const telling_canceled until_told(self);
    co_await yield();  // the others of this turn
    std::vector<note_head> now;
    while (!self.canceled_.empty()) {
        now.clear();
        now.swap(self.canceled_);
        for (std::size_t at = 0; at < now.size(); at += most_canceled) {
            const std::span<const note_head> some(now.data() + at, std::min(now.size() - at, most_canceled));
            co_await self.send(std::as_bytes(some), call_tag(call_kind::note, 0));
        }
    }
}
RDMACORO_COLD void calls_base::tell_canceled(tag_type request, bool perhaps) noexcept {
    queue_cancel(request, static_cast<std::uint32_t>(call_kind::answer) | (perhaps ? perhaps_bit : 0));
}

RDMACORO_COLD child calls_base::drop_stream(child_owner&, calls_base& self, std::uint64_t number,
                                            bool perhaps) {
    self.queue_cancel(number, static_cast<std::uint32_t>(call_kind::item) | (perhaps ? perhaps_bit : 0));
    const dropping counted(self);
    co_await self.drop_until_end(call_tag(call_kind::item, number));
}
RDMACORO_COLD task<> calls_base::drop_until_end(tag_type items) {
    for (bool ended = false; !ended;) {
        // An item that its writer withdrew, or that is too long, is none.
        const auto item = co_await as_result(receive(items));
        answer_head head{};
        if (item && item->size() >= sizeof head) std::memcpy(&head, item->bytes().data(), sizeof head);
        ended =
            item ? head.outcome != static_cast<std::uint32_t>(outcome_kind::value) : ends_link(item.error());
    }
}
RDMACORO_COLD void calls_base::leave_stream(std::uint64_t number, bool perhaps) noexcept {
    make_handler([&] { return drop_stream(*this, *this, number, perhaps); });
}

}  // namespace detail
}  // namespace rdmacoro
