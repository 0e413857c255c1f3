// calls_base: the part of `calls` that does not depend on the transport: calls that run here, their cancellation, what is known of the peer.
#pragma once

#include <rdmacoro/coro/event.hpp>
#include <rdmacoro/coro/task_group.hpp>
#include <rdmacoro/memory/buffers.hpp>
#include <rdmacoro/messaging/detail/any_operations.hpp>
#include <rdmacoro/messaging/message.hpp>
#include <rdmacoro/protocol/detail/chained_table.hpp>
#include <rdmacoro/service/detail/answer.hpp>
#include <rdmacoro/service/detail/call_failure.hpp>
#include <rdmacoro/service/detail/call_history.hpp>
#include <rdmacoro/service/detail/call_wire.hpp>
#include <rdmacoro/service/detail/short_answers.hpp>
#include <rdmacoro/service/node_card.hpp>
#include <rdmacoro/service/service.hpp>

#include <coroutine>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

namespace rdmacoro::detail {

class upstream;

/// The request of a call of this side: how its arguments are written.
struct call_request {
    const method_facts& of;
    void (*write)(encoder& to, const void* arguments);
    const void* arguments;
    time_point until;  ///< its time is over; the clock's zero: never
};

/// See the head of the file. For one connection.
class calls_base : protected child_owner {
public:
    calls_base(const calls_base&) = delete;
    calls_base& operator=(const calls_base&) = delete;

    // Messages of this connection.
    [[nodiscard]] const any_connection& link() const noexcept { return link_; }
    template <class Buffers>
    [[nodiscard]] any_send send(const Buffers& from, tag_type tag) const noexcept {
        return any_send(link_, from, tag);
    }
    /// `discards`: where it is canceled, the message is dropped when it comes.
    [[nodiscard]] any_lent_receive receive(tag_match wanted, bool discards = false) const noexcept {
        return any_lent_receive(link_, wanted, discards);
    }
    std::size_t discard(tag_match wanted);
    [[nodiscard]] std::string peer_name() const { return link_.base().peer_name(); }
    /// The connection is to that life of a node: the errors of streams, which outlive what has opened them, begin with it.
    void belongs_to(node_id id, generation born) noexcept {
        node_ = id;
        born_ = born;
    }
    /// Throws an error of a stream again, with the node in its text where there is one.
    [[noreturn]] RDMACORO_DECL void throw_of_stream(const error& failed) const;

    // The functions that depend on the transport, beside these.
    virtual task<> get(const remote_region& there, std::span<std::byte> into) = 0;
    virtual task<> put(std::span<const std::byte> from, const remote_region& there) = 0;
    /// Completes when such a message is there that no receive has taken.
    virtual task<> arrival(tag_match wanted) = 0;
    /// Ends the link now.
    virtual void abort_link() noexcept = 0;

    /// A short answer could not be sent: its caller is told so, or the link ends.
    void short_not_sent(tag_type answer, const std::error_code& why) noexcept;

    // Calls of this side.
    /// Ends with the answer, which has a value. Throws what the handler did, and else as `calls::call` says.
    [[nodiscard]] task<message> ask(call_request what);
    /// The same with the value received in `place`: ends with its bytes.
    [[nodiscard]] task<std::size_t> ask_into(call_request what, std::span<std::byte> place);
    /// A one-way call.
    [[nodiscard]] task<> tell(call_request what);
    /// Ends with the tag of the request, by which items are answered.
    [[nodiscard]] task<tag_type> open_reader(call_request what);
    /// `items`: what the handler answers with is a stream, too.
    [[nodiscard]] task<std::unique_ptr<upstream>> open_writer(call_request what, bool items);
    /// A request was begun to be sent, by `sending`: as `ask`.
    [[nodiscard]] task<message> ask_further(any_send& sending, tag_type asked, const method_facts& of);
    /// g++ 12 takes all that follows for cold where the value of a cold function is tested, so that nothing here tests that of `knows`.
    [[nodiscard, gnu::always_inline]] tag_type request_tag(call_kind which, std::uint64_t number,
                                                           std::uint16_t service) noexcept {
        tag_type tag = call_tag(which, number, service);
        if (service != known_) [[unlikely]]
            tag |= first_bit(service);
        return tag;
    }
    [[nodiscard]] std::uint64_t next_number() noexcept {
        return ++last_number_ & (call_number_mask & ~caller_writes_bit);
    }
    /// A one-way call of a method that the peer has refused before is this side's error, once: the peer may have it by now.
    void check_refused(const method_facts& of) {
        if (!refused_.empty()) [[unlikely]]
            throw_if_refused(of);
    }
    /// A call's answer, which was to be received into a buffer of the link's, did not come.
    [[noreturn]] void answer_lost(const method_facts& of, tag_type asked, const std::error_code& code,
                                  const error_facts& facts);
    void count_copied(std::size_t bytes) noexcept { copied_ += bytes; }
    /// Bytes of arguments, results and items that were copied to be sent, or after they had been received.
    [[nodiscard]] std::uint64_t copied() const noexcept { return copied_; }

    /// The caller waits no longer: tells the peer. Never waits itself. Calls that are canceled in one turn are told of together.
    /// `request`: its tag. `perhaps`: the request was sent in part, and may never arrive; the peer answers in any case.
    void tell_canceled(tag_type request, bool perhaps) noexcept;
    /// Receives and drops all items of a stream until its end, after telling the peer that they are read no more. `perhaps`: as above.
    /// `number`: of the call; where it is the tag of its request, that is found faster.
    void leave_stream(std::uint64_t number, bool perhaps) noexcept;
    // Streams that callers write. Never wait themselves.
    /// Of this side: an end of it is sent, by which `outcome` says why.
    void end_written(std::uint64_t number, outcome_kind outcome) noexcept;
    /// Of this side: cancels the call, and drops its answer.
    void leave_written(std::uint64_t number) noexcept;
    /// The send of a request has ended so: the peer may have it, or gets it, though the send was canceled.
    [[nodiscard]] static bool perhaps_sent(const std::error_code& why, const error_facts& facts) noexcept {
        return why == errc::canceled && facts.info == 0;
    }
    /// Of this side: its call's answer is dropped when it comes.
    void drop_answer_of(std::uint64_t number) noexcept;
    /// Of the peer's: says that it is not read any more, and drops the items until its end.
    void drop_written(std::uint64_t number) noexcept;
    /// Of this side: the peer's notes about that stream go to `one` until `forget`. Returns why none can come, or an empty code.
    std::error_code enlist(upstream& one);
    void forget(const upstream& one) noexcept;

    /// Whether a receive's failure is the link's end, or this side's, and not that of one message.
    [[nodiscard]] static bool ends_link(const std::error_code& code) noexcept {
        return code != errc::peer_canceled && code != errc::truncated && code != errc::no_resources;
    }
    /// Calls of this side that have not ended.
    void began() noexcept {
        if (pending_++ == 0 && handlers_ == 0) tell_activity(true);
    }
    void ended() noexcept {
        if (--pending_ == 0 && handlers_ == 0) tell_activity(false);
    }
    /// From now on `changed(context, active)` is called when the first call of either side begins, and when the last has ended.
    void on_activity(void (*changed)(void*, bool) noexcept, void* context) noexcept {
        activity_ = changed;
        activity_context_ = context;
    }
    /// Awaited at once: what runs here is a part of the awaiting coroutine from now on, and stops when that is asked to, if `stops`. A
    /// task group that is destroyed runs its own coroutines alone.
    struct part_of_current {
        calls_base& of;
        bool stops;
        local_stop_token former{};  // what it was a part of

        void bind(const environment& env) noexcept {
            if (stops) {
                of.stop_.follow(env.stop);
            } else {
                former = of.stop_.belong_to(env.stop);
            }
        }
        static bool await_ready() noexcept { return true; }
        static void await_suspend(std::coroutine_handle<>) noexcept {}
        static void await_resume() noexcept {}
    };
    /// Undoes `part_of_current` that does not stop, at its end.
    struct apart_again {
        apart_again(local_stop_source& of, local_stop_token before) noexcept : source(of), former(before) {}
        apart_again(const apart_again&) = delete;
        apart_again& operator=(const apart_again&) = delete;
        ~apart_again() { static_cast<void>(source.belong_to(former)); }
        local_stop_source& source;
        local_stop_token former;
    };
    /// Whether all handlers were asked to stop.
    [[nodiscard]] bool stopping() const noexcept { return stop_.stop_requested(); }
    /// Asks all handlers to stop, also later ones.
    void stop_handlers() noexcept { stop_.request_stop(); }
    [[nodiscard]] bool active() const noexcept { return pending_ != 0 || handlers_ != 0; }
    /// The methods of the handlers that run, for texts.
    [[nodiscard]] std::string running_methods();
    /// Says on stderr which methods an object that is destroyed waits for.
    void tell_unended() noexcept;
    /// No request is received any more; ends when all handlers have; where they were asked to stop, nothing is received any more then.
    [[nodiscard]] task<> drained();

    /// An encoder of those that keep their memory between their uses; to be given back. One that has had a long message does not keep it, nor do
    /// more than a few.
    [[nodiscard]] std::unique_ptr<encoder> take_encoder();
    void give_encoder(std::unique_ptr<encoder> used) noexcept {
        constexpr std::size_t longest_kept = std::size_t{64} << 10;
        copied_ += used->copied();
        if (used->room() <= longest_kept && spare_.size() < most_spare) [[likely]]
            spare_.push_back(std::move(used));
    }
    class encoder_loan {
    public:
        explicit encoder_loan(calls_base& of) : of_(of), lent_(of.take_encoder()) {}
        encoder_loan(const encoder_loan&) = delete;
        encoder_loan& operator=(const encoder_loan&) = delete;
        ~encoder_loan() { of_.give_encoder(std::move(lent_)); }
        encoder& operator*() noexcept { return *lent_; }
        encoder* operator->() noexcept { return lent_.get(); }

    private:
        calls_base& of_;
        std::unique_ptr<encoder> lent_;
    };

protected:
    explicit calls_base(const any_connection& over) noexcept
        : owner_(over.owner()),
          link_(over),
          // Not 1: another object may have used this endpoint before, and late answers to it are none of this one's.
          last_number_(static_cast<std::uint64_t>(owner_.now().time_since_epoch().count())) {}
    RDMACORO_DECL virtual ~calls_base();

    /// To be called last by the constructor of the derived class.
    void begin();
    /// To be called first by the destructor of the derived class: handlers are asked to stop, and the scheduler runs until all have
    /// ended.
    void end() noexcept;

    /// Of a call that runs here, before its answer is sent: where its caller writes more than the handler has read, that is dropped.
    void end_reading(const call_context& of) noexcept {
        if ((of.number_ & caller_writes_bit) != 0 && !of.written_over_) drop_written(of.number_);
    }
    /// From now on its methods are called here.
    void offer(service& what);
    /// Of a request with a head: when its time is over.
    [[nodiscard]] time_point due(const message& request) const noexcept;
    /// Whether a service of that number is offered here.
    [[nodiscard]] bool offers(std::uint16_t service) const noexcept;
    /// Finds the handler of a request; nullptr: `failed` says why.
    [[nodiscard]] handler_base* find_handler(const service& of, const message& request,
                                             call_failure& failed) noexcept;

    // The limits of a service.
    [[nodiscard]] static bool try_admit(service& of, std::size_t bytes) noexcept;
    [[nodiscard]] static task<> admit(service& of, std::size_t bytes);
    static void leave(service& of, std::size_t bytes) noexcept;
    static void leave_bytes(service& of, std::size_t bytes) noexcept;
    struct admission {
        admission(service* in, std::size_t n) noexcept : of(in), bytes(n) {}
        admission(const admission&) = delete;
        admission& operator=(const admission&) = delete;
        ~admission() {
            if (of != nullptr) leave(*of, bytes);
        }
        /// The handler has ended: the bytes of its request count no longer, nor does its place, unless it keeps that.
        void ended(bool keeps_place) noexcept {
            if (of == nullptr) return;
            leave_bytes(*of, std::exchange(bytes, 0));
            if (!keeps_place) leave(*std::exchange(of, nullptr), 0);
        }
        service* of;
        std::size_t bytes;
    };
    /// The answers of a service to this peer that wait to be sent.
    struct unsent_answers {
        service& of;
        std::size_t count = 0;
        event fewer{};
    };
    /// One of them. It keeps the place that its handler had, unless half of the service's are kept by such: peers that take no answers leave the
    /// others to run.
    struct unsent_answer {
        unsent_answer(unsent_answers& among, admission& place) noexcept
            : in(among), keeps(place.of != nullptr && keep_place(among.of)) {
            ++in.count;
            place.ended(keeps);
        }
        unsent_answer(const unsent_answer&) = delete;
        unsent_answer& operator=(const unsent_answer&) = delete;
        ~unsent_answer() {
            if (keeps) keep_no_longer(in.of);
            --in.count;
            in.fewer.set();
            in.fewer.reset();
        }
        unsent_answers& in;
        const bool keeps;
    };
    [[nodiscard]] static bool keep_place(service& of) noexcept;
    static void keep_no_longer(service& of) noexcept;
    /// A request that waits for the limits of its service.
    struct waiting {
        explicit waiting(event& set_then) noexcept : then(set_then) {}
        waiting(const waiting&) = delete;
        waiting& operator=(const waiting&) = delete;
        ~waiting() { then.set(); }
        event& then;
    };

    /// A handler's call is there to be canceled by its peer, while this lives.
    class running_call {
    public:
        running_call(calls_base& over, call_context& running) noexcept : over_(over), running_(running) {
            over.running_.grow_if_full(++over.running_count_, &hash_of);
            over.bucket(running.number_).push_back(running);
            running.stop_.follow(over.stop_.get_token());
        }
        running_call(const running_call&) = delete;
        running_call& operator=(const running_call&) = delete;
        ~running_call() {
            static_cast<list_node<call_context>&>(running_).unlink();
            if (--over_.running_count_ == 0) over_.running_.emptied();
            over_.has_ended(running_.number_);
        }

    private:
        calls_base& over_;
        call_context& running_;
    };
    [[nodiscard]] static local_stop_token token(call_context& of) noexcept { return of.stop_.get_token(); }

    /// When the time of a call that runs is over, its handler is asked to stop.
    struct call_timer : timer_node {
        call_timer(scheduler& on, call_context& running) : owner(on), of(running) {
            if (running.due_ == time_point{}) return;
            deadline = running.due_;
            expired = [](timer_node& self) noexcept {
                static_cast<call_timer&>(self).of.stop_.request_stop();
            };
            on.add_timer(*this);
        }
        call_timer(const call_timer&) = delete;
        call_timer& operator=(const call_timer&) = delete;
        ~call_timer() {
            if (queued()) owner.remove_timer(*this);
        }
        scheduler& owner;
        call_context& of;
    };

    // For task groups.
    struct serving_notes {
        calls_base* of;
        task<> operator()() const { return of->serve_notes(); }
    };
    struct serving_unserved {
        calls_base* of;
        tag_match among;
        task<> operator()() const { return of->serve_unserved(among); }
    };
    struct serving_one {
        calls_base* of;
        unsent_answers* of_service;
        task<> operator()() const { return of->serve_requests(*of_service); }
    };
    /// Receives the requests to a service as its limits allow: where they are reached, the next one waits here, and the others at their callers.
    [[nodiscard]] task<> serve_requests(unsent_answers& unsent);
    [[nodiscard]] task<> receive_requests(unsent_answers& unsent, short_answers& answers);
    static child send_long(child_owner&, calls_base& self, unsent_answers& unsent, message request,
                           long_answer out);
    /// The step that a request takes at once.
    enum class served : std::uint8_t {
        later,        ///< nothing: it takes the long way
        answer,       ///< a short answer is to be sent
        long_answer,  ///< a long one is, which counts for the limits of the service until then
        failure,      ///< an error is
        nothing,      ///< nothing is
    };
    /// Runs the handler of a request, where that is a function and nothing stands against it.
    [[nodiscard]] served serve_now(service& of, tag_type request, std::span<const std::byte> bytes,
                                   answer& out, call_failure& failed) noexcept;
    /// While it exists, something runs here.
    struct busy {
        explicit busy(calls_base& over) noexcept : of(over) { of.begin_activity(); }
        busy(const busy&) = delete;
        busy& operator=(const busy&) = delete;
        ~busy() { of.end_activity(); }
        calls_base& of;
    };
    [[nodiscard]] task<> answer_failure(tag_type request, const call_failure& failed);
    static child send_failure(child_owner&, calls_base& self, tag_type answer, call_failure failed);
    /// One request, from its arrival to its answer. `admitted`: whether it counts for the limits of its service; if not, it waits for that,
    /// and sets `then` when it waits no longer.
    static child serve_one(child_owner&, calls_base& self, unsent_answers& unsent, message request,
                           time_point until, bool admitted, event* then);

    /// A request's send has failed. One that was canceled may have arrived all the same: its answer is dropped.
    [[nodiscard]] task<> not_sent(const method_facts& of, tag_type asked, result<> sent);
    [[nodiscard]] task<message> take_answer(const method_facts& of, tag_type asked);
    [[nodiscard]] task<> send_request(tag_type tag, const call_request& what);
    void throw_if_refused(const method_facts& of);

    /// Serves what the peer writes about calls, until the link ends; then handlers are asked to stop, and writes of items end.
    [[nodiscard]] task<> serve_notes();
    /// Ends with the reason why no note comes any more.
    [[nodiscard]] task<std::error_code> receive_notes();
    using fate = call_history::fate;
    /// The fate that the peer gave a request before it was received.
    [[nodiscard]] fate was_canceled(std::uint64_t number) const noexcept { return history_.of(number); }
    /// A service that the peer's first request has found: tells it so, in the background.
    void tell_known(std::uint16_t service);
    [[nodiscard]] task<> tell_refused(const message& request, call_failure failed);
    /// A request was not received, as it is too long or there is no memory for it: says so to its caller.
    [[nodiscard]] task<> refuse_unreceived(received of, std::error_code why);
    /// Answers the requests, of those that `among` accepts, to services that are not offered here, until the link ends.
    [[nodiscard]] task<> serve_unserved(tag_match among);
    /// Called when sending the answer has thrown: what is answered instead. Throws again where the link, or this side, has ended.
    static void answer_not_sent(call_failure& failed);

    void begin_handler(child made) noexcept {
        begin_activity();
        made.begin_now({&owner_, stop_.get_token()});
    }
    /// The same with what `make` returns, if it does. Where there is no memory for that the link ends: the peer would wait for what was to be sent.
    template <class Make>
    void make_handler(Make make) noexcept {
        try {
            if (const child made = make(); made.frame) begin_handler(made);
        } catch (...) {
            abort_link();
        }
    }

    scheduler& owner_;
    any_connection link_;
    local_stop_source stop_;               // of all that runs here
    task_group loops_{stop_.get_token()};  // that receive requests
    task_group notes_{stop_.get_token()};
    std::vector<service*> offered_;
    std::vector<std::unique_ptr<unsent_answers>> unsent_;  // of each of them

private:
    friend class item_sender;

    RDMACORO_DECL void child_failed(std::exception_ptr failure) noexcept override;
    RDMACORO_DECL std::coroutine_handle<> child_ended() noexcept override;

    void begin_activity() noexcept {
        if (handlers_++ == 0 && pending_ == 0) tell_activity(true);
    }
    void end_activity() noexcept {
        --handlers_;
        if (draining_) [[unlikely]]
            wake_draining();
        if (handlers_ == 0 && pending_ == 0) tell_activity(false);
    }
    void wake_draining() noexcept {
        idle_.set();
        idle_.reset();
    }
    /// Counts, while it lives, a child that only drops what the peer still sends: `drained` does not wait for it, as it is the peer's
    /// handler that ends it.
    struct dropping {
        explicit dropping(calls_base& by) noexcept : of(by) {
            ++of.dropping_;
            if (of.draining_) of.wake_draining();
        }
        dropping(const dropping&) = delete;
        dropping& operator=(const dropping&) = delete;
        ~dropping() { --of.dropping_; }
        calls_base& of;
    };
    void tell_activity(bool active) noexcept {
        if (activity_ != nullptr) activity_(activity_context_, active);
    }
    using running_table = chained_table<call_context, call_context>;
    [[nodiscard]] static std::uint64_t hash_of(const call_context& of) noexcept {
        return tag_hash(of.number_);
    }
    [[nodiscard]] running_table::list& bucket(std::uint64_t number) noexcept {
        return running_.bucket(tag_hash(number));
    }
    /// nullptr: no such call runs here.
    [[nodiscard]] call_context* running(std::uint64_t number) noexcept;
    /// Whether the peer has said that it offers that service.
    [[nodiscard]] bool knows(std::uint16_t service) noexcept;
    /// The bit of a request's tag until the peer has said so.
    [[nodiscard]] tag_type first_bit(std::uint16_t service) noexcept;
    /// Adds the tags of messages that no receive has taken: requests that `among` accepts, to services that are not offered here. Some of them.
    void find_unserved(std::vector<tag_type>& into, tag_match among);
    /// Whether such a message is there that no receive has taken.
    [[nodiscard]] bool is_stored(tag_match wanted);
    [[nodiscard]] task<> cancel(std::uint64_t number_or_tag, std::uint32_t expected);
    /// Answers a canceled request that was not run.
    static child send_stopped(child_owner&, calls_base& self, tag_type answer);
    /// The request was answered, or needs no answer.
    void has_ended(std::uint64_t number) noexcept { history_.set(number, fate::ended); }
    void queue_cancel(std::uint64_t number_or_tag, std::uint32_t expected) noexcept;
    struct telling_canceled {
        explicit telling_canceled(calls_base& by) noexcept : of(by) {}
        telling_canceled(const telling_canceled&) = delete;
        telling_canceled& operator=(const telling_canceled&) = delete;
        ~telling_canceled() {
            of.canceled_.clear();  // some are left when the link has ended
            of.telling_canceled_ = false;
        }
        calls_base& of;
    };
    [[nodiscard]] static child send_canceled(child_owner&, calls_base& self);
    [[nodiscard]] static child send_known(child_owner&, calls_base& self, std::uint16_t service);
    [[nodiscard]] static child drop_stream(child_owner&, calls_base& self, std::uint64_t number,
                                           bool perhaps);
    [[nodiscard]] static child send_end(child_owner&, calls_base& self, std::uint64_t number,
                                        outcome_kind outcome);
    [[nodiscard]] static child drop_answer(child_owner&, calls_base& self, std::uint64_t number);
    [[nodiscard]] static child drop_items(child_owner&, calls_base& self, std::uint64_t number, bool waits);
    [[nodiscard]] task<> drop_until_end(tag_type items);
    /// `kind`: of a note about a stream that this side writes.
    void tell_writer(std::uint64_t number, const note_head& note) noexcept;
    void end_writers(const std::error_code& why) noexcept;

    static constexpr std::size_t most_canceled = 512;  // notes in a message
    // So long after this side has been asked to stop a handler's answer may wait for room: its caller waits for it.
    static constexpr duration to_answer = std::chrono::seconds(1);
    static constexpr std::size_t most_known = 1024;
    static constexpr std::size_t most_dropping = 1024;
    static constexpr std::size_t most_answering_canceled = 64;

    /// Counts a call of this side while it lives.
    struct pending {
        explicit pending(calls_base& among) noexcept : of(among) { of.began(); }
        pending(const pending&) = delete;
        pending& operator=(const pending&) = delete;
        ~pending() { of.ended(); }
        calls_base& of;
    };

    event idle_;  // set where fewer run, and `draining_` waits for that
    bool draining_ = false;
    void (*activity_)(void*, bool) noexcept = nullptr;
    void* activity_context_ = nullptr;
    std::size_t handlers_ = 0;  // and other children
    std::size_t pending_ = 0;
    std::uint64_t last_number_;
    std::uint32_t known_ = 0x10000;  // the service that the last call was to, where it is known
    std::vector<std::uint16_t> known_services_;
    std::vector<note_head> refused_;
    std::vector<std::uint16_t> telling_known_;
    std::vector<std::uint16_t> refused_here_;  // services of one-way calls that were refused
    std::vector<note_head> canceled_;          // that the peer was not told of yet
    bool telling_canceled_ = false;
    call_history history_;
    static constexpr std::size_t most_spare = 64;
    std::vector<std::unique_ptr<encoder>> spare_;
    running_table running_;  // handlers' calls, by number
    std::size_t running_count_ = 0;
    std::unordered_map<std::uint64_t, upstream*> writers_;  // that wait for words of the peer, by number
    std::error_code notes_end_;                             // why no note comes any more
    std::size_t dropping_ = 0;            // of `handlers_`, those that only drop what the peer still sends
    std::size_t dropping_written_ = 0;    // of those, streams that the peer writes
    std::size_t answering_canceled_ = 0;  // answers of `send_stopped` under way; of further ones notes wait
    std::uint64_t copied_ = 0;
    node_id node_ = 0;  // at the other end; 0: not known
    generation born_{};
};

}  // namespace rdmacoro::detail

#if !defined(RDMACORO_SEPARATE_COMPILATION)
#include <rdmacoro/service/detail/impl/call_failure.ipp>
#include <rdmacoro/service/detail/impl/calls_asked.ipp>
#include <rdmacoro/service/detail/impl/calls_base.ipp>
#include <rdmacoro/service/detail/impl/calls_served.ipp>
#include <rdmacoro/service/detail/impl/fixed_call.ipp>
#include <rdmacoro/service/detail/impl/item_sender.ipp>
#include <rdmacoro/service/detail/impl/upstream.ipp>
#include <rdmacoro/service/impl/service.ipp>
#include <rdmacoro/service/impl/stream.ipp>
#endif
