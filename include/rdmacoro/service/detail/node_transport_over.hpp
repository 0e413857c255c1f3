// node_transport_over: what a node does over one transport.
#pragma once

#include <rdmacoro/coro/as_result.hpp>
#include <rdmacoro/coro/task_group.hpp>
#include <rdmacoro/coro/timeout.hpp>
#include <rdmacoro/coro/with_stop.hpp>
#include <rdmacoro/messaging/connect.hpp>
#include <rdmacoro/service/compiled/instances.hpp>
#include <rdmacoro/service/detail/node_guards.hpp>
#include <rdmacoro/service/detail/node_record_over.hpp>
#include <rdmacoro/service/detail/node_transport.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

namespace rdmacoro::detail {

/// The node's coroutines that depend on the type of the transport.
template <transport T>
class node_transport_over final : public node_transport_of<T> {
    using domain_type = typename T::domain;
    using node_transport::index;
    using node_transport::name;
    using node_transport::node_;
    using node_transport_of<T>::domain;
    using node_transport_of<T>::handler;

public:
    node_transport_over(node_core& of, unsigned at, domain_type* in) noexcept
        : node_transport_of<T>(of, at, in) {}

    [[gnu::cold]] task<> listen(std::string url, std::string& as) override {
        mailbox_options box = node_.options.mailbox;
        domain_type* const in = co_await domain_at<T>(node_.owner, domain, url);
        listener<T> made = co_await listen_in<T, default_protocols<T>>(in, url, box);
        std::string where = made.address();
        if (where.find("://") == std::string::npos) where = std::string(name) + "://" + where;
        if (node_.stopped) node_.throw_stopped();
        if (as.empty()) as = where;
        task<> accepting = accept_all(this, in, std::move(made), as);
        node_.add_url(as);
        try {
            node_.begin(std::move(accepting));
        } catch (const std::bad_alloc&) {
            node_.self.urls.pop_back();
            throw;
        }
    }

    [[gnu::cold]] task<node_try> try_to_connect(node_peer& to, std::string url, node_place& place) override {
        const node_options& options = node_.options;
        node_try outcome;
        const node_hello_said said(to);
        try {
            mailbox_options box = options.mailbox;
            box.handshake_limit = std::min(box.handshake_limit, options.attempt_limit);
            domain_type* const in =
                co_await timeout(domain_at<T>(node_.owner, domain, url), options.attempt_limit);
            endpoint<T> made =
                co_await timeout(connect_in<T, default_protocols<T>>(in, url, box), options.attempt_limit);
            outcome = co_await timeout(send_hello(this, to, in, made, place), options.attempt_limit);
        } catch (const std::system_error& why) {
            outcome = {why.code(), why.what()};
        }
        co_return outcome;
    }

    [[gnu::cold]] task<> close(node_record& of, std::byte why, duration limit) override {
        endpoint<T>& end = static_cast<node_record_over<T>&>(of).end;
        static_cast<void>(
            co_await as_result(timeout(end.send(std::span<const std::byte>(&why, 1), last_word_tag), limit)));
        static_cast<void>(co_await as_result(timeout(end.close(), limit)));
        end.abort();
    }

private:
    // ---- accepting

    [[gnu::cold]] static task<> accept_all(node_transport_over* over, domain_type* in, listener<T> from,
                                           std::string told) {
        node_core* const self = &over->node_;
        try {
            for (;;) {
                co_await room_for_stranger(*self);
                endpoint<T> made = co_await from.accept();
                try {
                    self->begin(admit(over, in, std::move(made)));
                    ++self->strangers;
                } catch (const std::bad_alloc&) {}  // without this one
            }
        } catch (const std::system_error& failed) {
            if (!self->stopped) self->hears_no_more(told, failed);
        } catch (const std::bad_alloc&) {
            self->hears_no_more(told, error(errc::no_resources));
        }
    }
    [[gnu::cold]] static task<> admit(node_transport_over* over, domain_type* in, endpoint<T> made) {
        node_core* const self = &over->node_;
        std::optional<node_stranger> unnamed(std::in_place, *self);
        if (self->stopped) co_return;
        std::array<std::byte, longest_hello> room;
        const result<received> got = co_await as_result(
            with_stop(timeout(made.recv(std::span<std::byte>(room), hello_tag), self->options.hello_limit),
                      unnamed->token()));
        if (!got) co_return;
        unnamed->spoke();
        std::uint32_t version = 0;
        const result<node_hello> hello =
            decode_hello(std::span<const std::byte>(room).first(got->bytes), version);
        // Another version gets an answer, too, which says this side's.
        welcome verdict = hello ? self->judge(*hello) : welcome::other_node;
        if (!hello && hello.error() != errc::version_mismatch) co_return;
        node_peer* from = nullptr;
        std::optional<node_accepting> wins;  // keeps it
        std::optional<node_place> place;
        if (verdict == welcome::accepted) {
            counted_ptr<node_peer> known = self->peer(hello->from.id);
            from = known.get();
            wins.emplace(std::move(known));
            if (from->attempt != nullptr) from->attempt->request_stop();
            const result<void> room_made =
                co_await as_result(node_core::take_place(self, self->options.hello_limit / 2));
            if (room_made) {
                place.emplace(*self);
            } else {
                verdict = welcome::full;
            }
        }
        if (!made.is_open() || self->stopped) co_return;
        const std::vector<std::byte> bytes = encode_answer({verdict, self->attempts, self->self});
        if (verdict == welcome::accepted) {
            unnamed.reset();  // its place counts it from now on
            const node_agreeing agreeing(*self);
            const duration limit = agreeing.limit();
            const result<void> answered = co_await as_result(
                with_stop(timeout(made.send(bytes, answer_tag), limit), self->leaves.get_token()));
            bool taken = false;
            if (answered) {
                const result<received> said = co_await as_result(
                    with_stop(timeout(made.recv({}, taken_tag), limit), self->leaves.get_token()));
                taken = said.has_value();
            }
            // Where this node closes, the other one hears of that over the connection, in case it has it by now. One that was taken may be
            // closed again already, behind messages that are here.
            if (self->stopped ? !self->leaving || !made.is_open() : !taken) co_return;
            if (self->excludes(*from, hello->from.born))
                co_return;  // which the book may say since the answer
            from->failure = {};
            from->explained = "  it has connected by itself, over " + std::string(over->name) + '\n';
            over->publish(*from, hello->from, hello->attempt, std::move(made), *in, *place);
        } else {
            unnamed->refused();
            static_cast<void>(co_await as_result(with_stop(
                timeout(made.send(bytes, answer_tag), self->options.hello_limit), unnamed->token())));
            static_cast<void>(co_await as_result(
                with_stop(timeout(made.close(), self->options.hello_limit), unnamed->token())));
        }
    }

    // ---- connecting

    [[gnu::cold]] static task<node_try> send_hello(node_transport_over* over, node_peer& to, domain_type* in,
                                                   endpoint<T>& made, node_place& place) {
        node_core* const self = &over->node_;
        if (to.accepting != 0) co_return node_try{make_error_code(errc::canceled), {}};
        const time_point begun = self->owner.now();
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
            co_return node_try{answer.error(), "it speaks version " + std::to_string(version) +
                                                   " of nodes, this node " + std::to_string(node_version)};
        if (!answer)
            co_return node_try{make_error_code(errc::protocol_violation), "its answer is not of a node"};
        const std::string lies = node_core::lie(to, answer->from);
        if (!lies.empty()) co_return node_try{make_error_code(errc::address_invalid), lies};
        if (answer->verdict != welcome::accepted) {
            const bool may_pass =
                answer->verdict == welcome::other_attempt || answer->verdict == welcome::full;
            co_return node_try{make_error_code(may_pass ? errc::connection_refused : errc::address_invalid),
                               std::string("refused: ") + text_of(answer->verdict)};
        }
        // The other node has given it up where this process stood still, before its timer has had its turn.
        if (self->owner.now() - begun >= self->options.attempt_limit)
            co_return node_try{make_error_code(errc::timed_out), "the answer came too late"};
        // A connection that is not taken is not one for the other node either.
        if (!self->stopped) co_await made.send({}, taken_tag);
        if (self->stopped) co_return node_try{make_error_code(errc::canceled), {}};
        to.hello_sent = false;
        to.attempt = nullptr;  // this one has succeeded
        over->publish(to, answer->from, answer->attempts, std::move(made), *in, place);
        co_return node_try{};
    }

    [[gnu::cold]] void publish(node_peer& to, node_card theirs, std::uint64_t attempts, endpoint<T>&& made,
                               domain_type& in, node_place& place) {
        counted_ptr<node_record_over<T>> record(
            new node_record_over<T>(to, index, theirs.born, attempts, std::move(made), in));
        node_.begin(attend(this, record));
        node_.publish(*record, std::move(theirs));
        place.taken();
    }

    /// Lives as long as the connection and what the user does with it.
    [[gnu::cold]] static task<> attend(node_transport_over* over, counted_ptr<node_record_over<T>> record) {
        node_core* const self = &over->node_;
        bool wanted = false;
        {
            const node_attendance attended(*self, *record);
            task_group users;
            try {
                users.on_error([of = record.get()](std::exception_ptr) { of->abort(); });
                if (over->handler)
                    users.spawn(over->handler, std::ref(record->end), record->peer->id, record->born);
            } catch (const std::bad_alloc&) {
                record->abort();
            }
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
            // At once: a receive that waits looks either before the connection is retired or when its messages are kept.
            const auto by = !over->handler           ? node_core::receiver::handles
                            : over->handler_receives ? node_core::receiver::function
                                                     : node_core::receiver::handles_beside_calls;
            wanted = self->keep_unread(*record, by);
            static_cast<void>(co_await as_result(users.join()));
        }
        if (wanted) {
            record->leave_to_peer();  // the last handle of it may have gone
        } else {
            record->link = nullptr;
            record->end = endpoint<T>();
        }
    }
};

template <class T>
[[gnu::cold]] std::unique_ptr<node_transport> make_node_transport(node_core& of, unsigned at,
                                                                  typename T::domain* in) {
    return std::make_unique<node_transport_over<T>>(of, at, in);
}

}  // namespace rdmacoro::detail
