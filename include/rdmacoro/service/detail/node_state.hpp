// node_state: a node with its transports: how connections are made, accepted, attended and closed.
#pragma once

#include <rdmacoro/coro/as_result.hpp>
#include <rdmacoro/coro/start.hpp>
#include <rdmacoro/coro/task_group.hpp>
#include <rdmacoro/coro/timeout.hpp>
#include <rdmacoro/coro/with_stop.hpp>
#include <rdmacoro/messaging/connect.hpp>
#include <rdmacoro/service/detail/node_core.hpp>
#include <rdmacoro/service/detail/node_guards.hpp>
#include <rdmacoro/service/detail/node_record_over.hpp>

#include <algorithm>
#include <array>
#include <functional>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>

namespace rdmacoro::detail {

/// Whether no type is there twice.
template <class... Ts>
inline constexpr bool all_differ = true;
template <class T, class... Rest>
inline constexpr bool all_differ<T, Rest...> = (... && !std::is_same_v<T, Rest>) && all_differ<Rest...>;

/// A node over the transports `Ts`.
template <transport... Ts>
class node_state final : public node_core {
    template <class T>
    using handler = std::function<task<>(endpoint<T>&, node_id, generation)>;
    template <class T>
    static constexpr unsigned index_of = [] {
        unsigned at = 0;
        static_cast<void>((... || (std::is_same_v<T, Ts> || (++at, false))));
        return at;
    }();
    /// The outcome of an attempt; zero: there is a connection.
    struct tried {
        std::error_code why{};
        std::string text{};
    };

public:
    using domains = std::tuple<typename Ts::domain*...>;

    node_state(scheduler& on, node_id id, const node_options& given, domains in)
        : node_core(on, id, given), in_(in) {
        work_.emplace();
        // Each coroutine reports what goes wrong with its connection; what is left is a lack of memory, and that connection ends.
        work_->on_error([](std::exception_ptr) {});
    }
    ~node_state() override { stop(); }

    /// Ends all connections now, and everything that waits; then waits until the functions of connections have ended. Says on stderr, once, which
    /// take longer than a connection may take to close.
    void stop() noexcept {
        if (!work_) return;
        stopped = true;
        end_waits();
        const node_patience told_late(*this);
        work_.reset();
        for (auto& [id, of] : peers) of->leftovers.clear();  // which refer to their peer
    }

    /// `f(endpoint)` of the transport that carries the connection.
    template <class F, std::size_t I = 0>
    [[gnu::always_inline]] static decltype(auto) with_endpoint(node_record& of, F&& f) {
        using T = std::tuple_element_t<I, std::tuple<Ts...>>;
        if constexpr (I + 1 < sizeof...(Ts)) {
            if (of.index != I) return with_endpoint<F, I + 1>(of, static_cast<F&&>(f));
        }
        return f(static_cast<node_record_over<T>&>(of).end);
    }

    [[nodiscard]] const domains& in() const noexcept { return in_; }

    template <class F>
    void handle(F f) {
        const auto shared = std::make_shared<F>(std::move(f));
        (..., (std::get<handler<Ts>>(handlers_) = [shared](endpoint<Ts>& end, node_id id, generation born) {
             return (*shared)(end, id, born);
         }));
        handles_ = true;
    }

    [[gnu::cold]] static task<std::string> listen(counted_ptr<node_state> self, std::string url,
                                                  std::string as) {
        self->check_thread("node: listen: the node is of another scheduler");
        std::string where;
        bool known = false;
        // One of them is awaited; a fold over co_await is more than g++ 12 does well.
        static_cast<void>(co_await listen_by<0>(self, url, as, where, known));
        if (!known)
            throw error(errc::address_invalid, "node: no transport of this node has the scheme of " + url);
        co_return where;
    }

    /// Closes all connections in good order.
    [[gnu::cold]] static task<> close(counted_ptr<node_state> self) {
        self->check_thread("node: close: the node is of another scheduler");
        if (!self->work_) co_return;
        self->stopped = true;  // no connection is made any more
        self->end_waits();
        {
            task_group closing;
            for (node_record* at = self->records.front(); at != nullptr; at = self->records.next(*at)) {
                if (at->closing == leave_reason::stopping) continue;
                at->closing = leave_reason::stopping;
                closing.spawn(close_record, self.get(), counted_ptr<node_record>(at));
            }
            co_await closing.join();
        }
        self->work_->request_stop();
        const time_point until = deadline_after(self->owner.now(), self->options.close_limit);
        while (!self->attended.empty()) {
            const duration left = std::max(until - self->owner.now(), duration::zero());
            const result<void> less = co_await as_result(timeout(self->attended_less.wait(), left));
            if (less || self->attended.empty()) continue;
            if (less.error() != errc::timed_out) throw error(less.error());
            throw error(errc::timed_out, "node " + std::to_string(self->self.id) +
                                             ": close: these do not end, though they were asked to stop: " +
                                             self->unfinished());
        }
        self->stop();
    }

    void begin_connect(node_peer& to) override {
        if (to.connecting || stopped) return;
        to.connecting = true;
        work_->spawn(connect_peer, this, counted_ptr<node_peer>(&to));
    }
    void begin_close(node_record& which, leave_reason why) override {
        which.closing = why;
        if (which.peer->current == &which) which.peer->current = nullptr;
        which.peer->closed_idle = which.closed_idle();
        work_->spawn(close_record, this, counted_ptr<node_record>(&which));
    }

private:
    template <class T>
    [[nodiscard]] static bool has_scheme(std::string_view url) noexcept {
        const std::string_view scheme = T::name;
        return url.substr(0, scheme.size()) == scheme && url.substr(scheme.size(), 3) == "://";
    }
    template <std::size_t I>
    [[gnu::cold]] static task<int> listen_by(counted_ptr<node_state> self, std::string url, std::string as,
                                             std::string& where, bool& known) {
        if constexpr (I < sizeof...(Ts)) {
            using T = std::tuple_element_t<I, std::tuple<Ts...>>;
            if (!has_scheme<T>(url)) co_return co_await listen_by<I + 1>(self, url, as, where, known);
            known = true;
            mailbox_options box = self->options.mailbox;
            typename T::domain* const in = co_await domain_at<T>(self->owner, std::get<I>(self->in_), url);
            listener<T> made = co_await listen_in<T, default_protocols<T>>(in, url, box);
            where = made.address();
            if (where.find("://") == std::string::npos)
                where = std::string(std::string_view(T::name)) + "://" + where;
            if (self->stopped) self->throw_stopped();
            if (!as.empty()) where = as;
            self->add_url(where);
            self->work_->spawn(accept_all<T>, self.get(), in, std::move(made), where);
        }
        co_return 0;
    }

    // ---- accepting

    template <class T>
    [[gnu::cold]] static task<> accept_all(node_state* self, typename T::domain* in, listener<T> from,
                                           std::string told) {
        try {
            for (;;) {
                while (self->strangers >= self->options.unnamed_connections)
                    co_await self->stranger_gone.wait();
                endpoint<T> made = co_await from.accept();
                ++self->strangers;
                try {
                    self->work_->spawn(admit<T>, self, in, std::move(made));
                } catch (const std::bad_alloc&) {  // without this one
                    --self->strangers;
                }
            }
        } catch (const std::system_error& failed) {
            if (!self->stopped) self->hears_no_more(told, failed);
        } catch (const std::bad_alloc&) {
            self->hears_no_more(told, error(errc::no_resources));
        }
    }
    template <class T>
    [[gnu::cold]] static task<> admit(node_state* self, typename T::domain* in, endpoint<T> made) {
        std::optional<node_stranger> unnamed(std::in_place, *self);
        if (self->stopped) co_return;
        std::array<std::byte, longest_hello> room;
        const result<received> got = co_await as_result(
            timeout(made.recv(std::span<std::byte>(room), hello_tag), self->options.hello_limit));
        if (!got) co_return;
        std::uint32_t version = 0;
        const result<node_hello> hello =
            decode_hello(std::span<const std::byte>(room).first(got->bytes), version);
        // Another version gets an answer, too, which says this side's.
        welcome verdict = hello ? self->judge(*hello) : welcome::other_node;
        if (!hello && hello.error() != errc::version_mismatch) co_return;
        struct forgetting {
            node_state* self;
            node_id id = 0;
            ~forgetting() {
                if (id != 0) self->forget_if_unused(id);
            }
        } at_the_end{self};
        counted_ptr<node_peer> from;
        std::optional<node_accepting> wins;
        std::optional<node_place> place;
        if (verdict == welcome::accepted) {
            from = self->peer(hello->from.id);
            at_the_end.id = from->id;
            wins.emplace(from);
            if (from->attempt != nullptr) from->attempt->request_stop();
            const result<void> room_made =
                co_await as_result(take_place(self, self->options.hello_limit / 2));
            if (room_made) {
                place.emplace(*self);
            } else {
                verdict = welcome::full;
            }
        }
        if (!made.is_open() || self->stopped) co_return;
        const std::vector<std::byte> bytes = encode_answer({verdict, self->attempts, self->self});
        auto answering = start(made.send(bytes, answer_tag));
        if (verdict == welcome::accepted) {
            from->explained =
                "  it has connected by itself, over " + std::string(std::string_view(T::name)) + '\n';
            publish_over<T>(self, *from, hello->from, hello->attempt, std::move(made), *in, *place);
            unnamed.reset();
            wins.reset();
            static_cast<void>(co_await as_result(answering));
        } else {
            static_cast<void>(co_await as_result(timeout(answering, self->options.hello_limit)));
            static_cast<void>(co_await as_result(timeout(made.close(), self->options.hello_limit)));
        }
    }

    // ---- connecting

    [[gnu::cold]] static task<> connect_peer(node_state* self, counted_ptr<node_peer> to) {
        const node_connecting now(*self, std::move(to));
        node_peer& peer = now.to();
        const time_point until = deadline_after(self->owner.now(), self->options.connect_limit);
        // Where no other life may come, one that does not listen any more has ended: when it has refused all attempts for so long.
        std::optional<time_point> refused_since;
        const duration of_refusals =
            self->options.admits_other_lives
                ? self->options.connect_limit
                : std::min(self->options.connect_limit, node_options().connect_limit);
        while (peer.open() == nullptr) {
            const time_point here = self->owner.now();
            if (peer.next_try > here || peer.accepting != 0) {
                const duration pause = peer.accepting != 0 ? self->options.hello_limit : peer.next_try - here;
                const result<void> waited = co_await as_result(timeout(peer.changed.wait(), pause));
                if (!waited && waited.error() != errc::timed_out) throw error(waited.error());
                continue;
            }
            tried last;
            {
                node_attempt attempt(peer);
                last = co_await with_stop(try_all(self, peer), attempt.token());
            }
            if (peer.open() != nullptr || self->stopped) break;
            if (last.why == errc::canceled) continue;  // the other node's connection is preferred
            if (!last.why) break;                      // it was made, and has been closed since
            ++peer.tries;
            peer.next_try = deadline_after(self->owner.now(), self->pause_after(peer.tries));
            peer.failure = last.why;
            if (last.why != errc::connection_refused) {
                refused_since.reset();
            } else if (!refused_since) {
                refused_since = here;
            }
            const time_point most =
                refused_since ? std::min(until, deadline_after(*refused_since, of_refusals)) : until;
            if (may_pass(last.why) && peer.next_try < most) continue;
            ++peer.failures;
            self->tell(node_change::failed, peer.id, peer.last_born, last.why);
            break;
        }
    }

    /// Tries every URL once, the best transport first.
    [[gnu::cold]] static task<tried> try_all(node_state* self, node_peer& to) {
        to.explaining.clear();
        const tried outcome = co_await try_each(self, to);
        if (outcome.why != errc::canceled) to.explained = std::move(to.explaining);
        co_return outcome;
    }
    [[gnu::cold]] static task<tried> try_each(node_state* self, node_peer& to) {
        tried worst{make_error_code(errc::timed_out), {}};
        if (to.is_behind()) {
            to.explaining = "  the messages of former connections are not received\n";
            co_return tried{make_error_code(errc::no_resources), {}};
        }
        const result<void> room = co_await as_result(take_place(self, self->options.attempt_limit));
        if (!room) {
            if (room.error() != errc::canceled)
                to.explaining = "  no connection may be made: the limit is reached, and none is idle\n";
            co_return tried{room.error(), {}};
        }
        node_place place(*self);
        const node_card card = to.card;
        bool any = false;
        // Shared memory first, then the order of the list.
        for (const bool near : {true, false}) {
            const tried outcome = co_await try_from<0>(self, to, card, near, place, any);
            if (!outcome.why || outcome.why == errc::canceled) co_return outcome;
            // The outcome that says most: a node that is another one, and then a failure that may pass.
            if (outcome.why != errc::unsupported) worst = outcome;
        }
        if (!any) to.explaining += "  it has no URL that this node can use: it has to connect by itself\n";
        co_return worst;
    }
    template <class T>
    static constexpr bool within_host = std::string_view(T::name) == "shm";

    template <std::size_t I>
    [[gnu::cold]] static task<tried> try_from(node_state* self, node_peer& to, const node_card& card,
                                              bool near, node_place& place, bool& any) {
        tried last{make_error_code(errc::unsupported), {}};
        if constexpr (I < sizeof...(Ts)) {
            using T = std::tuple_element_t<I, std::tuple<Ts...>>;
            if (within_host<T> == near) {
                for (const std::string& url : card.urls) {
                    if (!has_scheme<T>(url)) continue;
                    if (near && card.host.known() && card.host != self->self.host) {
                        to.explaining += "  " + url + ": not tried, it is on another host\n";
                        continue;
                    }
                    any = true;
                    last = co_await try_one<T>(self, to, url, place);
                    if (last.why == errc::canceled) co_return last;
                    to.explaining += "  " + url + ": " + (last.why ? last.text : std::string("taken")) + '\n';
                    if (!last.why) co_return last;
                }
            }
            const tried rest = co_await try_from<I + 1>(self, to, card, near, place, any);
            if (rest.why != errc::unsupported) last = rest;
        }
        co_return last;
    }
    template <class T>
    [[gnu::cold]] static task<tried> try_one(node_state* self, node_peer& to, std::string url,
                                             node_place& place) {
        tried outcome;
        try {
            mailbox_options box = self->options.mailbox;
            box.handshake_limit = std::min(box.handshake_limit, self->options.attempt_limit);
            typename T::domain* const in =
                co_await timeout(domain_at<T>(self->owner, std::get<index_of<T>>(self->in_), url),
                                 self->options.attempt_limit);
            endpoint<T> made = co_await timeout(connect_in<T, default_protocols<T>>(in, url, box),
                                                self->options.attempt_limit);
            outcome = co_await timeout(send_hello<T>(self, to, in, made, place), self->options.attempt_limit);
        } catch (const std::system_error& why) {
            outcome = {why.code(), why.what()};
        }
        to.hello_sent = false;
        co_return outcome;
    }
    template <class T>
    [[gnu::cold]] static task<tried> send_hello(node_state* self, node_peer& to, typename T::domain* in,
                                                endpoint<T>& made, node_place& place) {
        if (to.accepting != 0) co_return tried{make_error_code(errc::canceled), {}};
        const std::vector<std::byte> bytes =
            encode_hello({to.id, to.card.born, ++self->attempts, self->self});
        to.hello_sent = true;
        co_await made.send(bytes, hello_tag);
        std::array<std::byte, longest_hello> room;
        const received got = co_await made.recv(std::span<std::byte>(room), answer_tag);
        std::uint32_t version = 0;
        const result<node_answer> answer =
            decode_answer(std::span<const std::byte>(room).first(got.bytes), version);
        if (!answer && answer.error() == errc::version_mismatch)
            co_return tried{answer.error(), "it speaks version " + std::to_string(version) +
                                                " of nodes, this node " + std::to_string(node_version)};
        if (!answer)
            co_return tried{make_error_code(errc::protocol_violation), "its answer is not of a node"};
        const std::string lies = lie(to, answer->from);
        if (!lies.empty()) co_return tried{make_error_code(errc::address_invalid), lies};
        if (answer->verdict != welcome::accepted) {
            const bool may_pass =
                answer->verdict == welcome::other_attempt || answer->verdict == welcome::full;
            co_return tried{make_error_code(may_pass ? errc::connection_refused : errc::address_invalid),
                            std::string("refused: ") + text_of(answer->verdict)};
        }
        to.hello_sent = false;
        to.attempt = nullptr;  // this one has succeeded
        publish_over<T>(self, to, answer->from, answer->attempts, std::move(made), *in, place);
        co_return tried{};
    }

    // ---- connections

    template <class T>
    [[gnu::cold]] static void publish_over(node_state* self, node_peer& to, const node_card& theirs,
                                           std::uint64_t attempts, endpoint<T>&& made, typename T::domain& in,
                                           node_place& place) {
        counted_ptr<node_record_over<T>> record(
            new node_record_over<T>(to, index_of<T>, theirs.born, attempts, std::move(made), in));
        self->publish(*record, theirs);
        place.taken();
        self->work_->spawn(attend<T>, self, std::move(record));
    }

    /// Lives as long as the connection and what the user does with it.
    template <class T>
    [[gnu::cold]] static task<> attend(node_state* self, counted_ptr<node_record_over<T>> record) {
        const node_id id = record->peer->id;
        {
            const node_attendance attended(*self, *record);
            task_group users;
            users.on_error([of = record.get()](std::exception_ptr) { of->abort(); });
            if (self->handles_)
                users.spawn(std::get<handler<T>>(self->handlers_), std::ref(record->end), id, record->born);
            const result<received> word =
                co_await as_result(with_stop(*record->word, record->ends.get_token()));
            if (word) {
                record->left = word->bytes == 1 && record->said == static_cast<std::byte>(leave_reason::idle)
                                   ? leave_reason::idle
                                   : leave_reason::stopping;
                if (record->peer->current == record.get()) record->peer->current = nullptr;
                if (record->peer->current == nullptr) record->peer->closed_idle = record->closed_idle();
                record->peer->change();
                std::byte none{};
                static_cast<void>(co_await as_result(
                    timeout(with_stop(record->end.recv(std::span<std::byte>(&none, 1), last_word_tag),
                                      record->ends.get_token()),
                            self->options.close_limit)));
            }
            if (!word && word.error() == errc::canceled) {
                record->abort();
            } else if (record->closing) {
                static_cast<void>(
                    co_await as_result(with_stop(record->closed.wait(), record->ends.get_token())));
            } else {
                static_cast<void>(
                    co_await as_result(timeout(record->end.close(), self->options.close_limit)));
            }
            self->retire(*record);
            static_cast<void>(co_await as_result(users.join()));
        }
        node_peer& of = *record->peer;
        // The map, this connection; more are the user's.
        const bool wanted = !self->handles_ && !self->stopped && record->unread() != 0 &&
                            (of.listed || of.owners() > 2 || self->keeps_of_stranger());
        if (wanted) {
            record->kept = true;
            of.leftovers.emplace_back(record.get());
            of.see_receives();
            of.change();
        } else {
            record->link = nullptr;
            record->end = endpoint<T>();
        }
        record.reset();
        self->forget_if_unused(id);
    }

    /// Says why, and closes in good order.
    [[gnu::cold]] static task<> close_record(node_state* self, counted_ptr<node_record> of) {
        const std::byte why{static_cast<std::uint8_t>(*of->closing)};
        const duration limit = self->options.close_limit;
        co_await close_over<0>(*of, why, limit);
        of->closed.set();
    }
    template <std::size_t I>
    [[gnu::cold]] static task<> close_over(node_record& of, std::byte why, duration limit) {
        using T = std::tuple_element_t<I, std::tuple<Ts...>>;
        if constexpr (I + 1 < sizeof...(Ts)) {
            if (of.index != I) {
                co_await close_over<I + 1>(of, why, limit);
                co_return;
            }
        }
        endpoint<T>& end = static_cast<node_record_over<T>&>(of).end;
        static_cast<void>(
            co_await as_result(timeout(end.send(std::span<const std::byte>(&why, 1), last_word_tag), limit)));
        static_cast<void>(co_await as_result(timeout(end.close(), limit)));
        end.abort();
    }

    domains in_;
    std::tuple<handler<Ts>...> handlers_{};
    bool handles_ = false;
    std::optional<task_group> work_;
};

}  // namespace rdmacoro::detail
