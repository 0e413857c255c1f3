// rank_links_over: the connections between ranks, made by a node of their own.
#pragma once

#include <rdmacoro/coro/as_result.hpp>
#include <rdmacoro/service/detail/rank_links.hpp>
#include <rdmacoro/service/node.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <new>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace rdmacoro::detail {

/// Rank `r` is node `r + 1`. Connections are made when the first collective needs them, over the best transport that both have.
template <transport... Ts>
class rank_links_over final : public rank_links {
public:
    rank_links_over(scheduler& on, unsigned rank, unsigned size, node_options options)
        : rank_links(on, rank, size), node_(rank + 1, for_all(options, size)) {
        attend_all();
    }
    rank_links_over(scheduler& on, unsigned rank, unsigned size, node_options options,
                    typename Ts::domain&... in)
        : rank_links(on, rank, size), node_(rank + 1, for_all(options, size), in...) {
        attend_all();
    }
    /// Over the domains of another node of this process.
    rank_links_over(unsigned rank, unsigned size, node<Ts...>& beside)
        : rank_links(beside.owner(), rank, size), node_(rank + 1, for_all({}, size), beside) {
        attend_all();
    }
    ~rank_links_over() override { stop(); }

    /// Listens before `open`.
    [[nodiscard]] node<Ts...>& over() noexcept { return node_; }
    /// The cards of all ranks, by which their nodes are known; this rank's counts for nothing. Connections of other ranks wait for it.
    void open(std::span<const node_card> cards) {
        for (unsigned rank = 0; rank < size(); ++rank) {
            if (rank == this->rank()) continue;
            born_[rank] = cards[rank].born;
            node_.add(cards[rank]);
        }
        node_.state_->options.admits_strangers = false;  // they would take the places of ranks
        opened_.set();
    }

    [[nodiscard]] task<> close() override { return node_.close(); }
    void begin_connect(unsigned rank) override { connecting_.spawn(as_it_is, connect(this, rank)); }
    [[nodiscard]] std::string explain(unsigned rank) const override { return node_.explain(rank + 1); }

private:
    [[nodiscard]] static node_options for_all(node_options options, unsigned size) {
        options.connections = std::max<std::size_t>(options.connections, 2 * std::size_t{size});
        // A rank may connect before this one has the cards, in `open`; `attend` compares.
        options.admits_strangers = true;
        options.admits_other_lives = false;
        // A rank that computes answers late, and is not lost.
        constexpr duration longest_work = std::chrono::minutes(2);
        options.connect_limit = std::max(options.connect_limit, longest_work);
        return options;
    }
    void attend_all() {
        connecting_.on_error([](const std::exception_ptr&) {});
        node_.on_connection(
            [this](auto& end, node_id id, generation born) { return attend(this, end, id, born); });
    }
    [[gnu::cold]] static task<> connect(rank_links_over* self, unsigned rank) {
        const rank_peer& to = self->peer(rank);
        std::error_code why = make_error_code(errc::no_resources);
        try {
            const counted_ptr<node_peer> known = self->node_.state_->peer(rank + 1);
            bool again = true;
            while (again) {
                const auto held = co_await as_result(node_core::connected(known, false, 0));
                if (!held) why = held.error();
                again = held && (*held)->born != self->born_[rank];
                // With a connection `attend` goes on; where memory is short for it the connection ends without it. So does one of another
                // process, which has said that it is this rank before the cards were here.
                while (held && to.link == nullptr && !to.lost && !(*held)->retired) {
                    if (co_await as_result(known->changed.wait())) continue;
                    again = false;
                    break;
                }
                again = again && to.link == nullptr && !to.lost;
            }
        } catch (const std::bad_alloc&) {
            if (to.link == nullptr) self->without_memory(rank);
            co_return;
        }
        if (to.link == nullptr && !to.lost) self->ended(rank, why);
    }
    template <class Endpoint>
    [[gnu::cold]] static task<> attend(rank_links_over* self, Endpoint& end, node_id id, generation born) {
        const unsigned rank = id - 1;
        co_await self->opened_.wait();
        if (rank >= self->size() || rank == self->rank() || self->born_[rank] != born)
            throw error(errc::protocol_violation, "group: a connection from no rank of this job");
        // A lost connection stays lost: the groups have gone on without it.
        if (self->peer(rank).lost)
            throw error(errc::closed, "group: the connection to this rank was lost before");
        rank_link_over<Endpoint> link(end);
        self->attached(rank, link);
        if (const counted_ptr<node_peer> known = self->node_.state_->find(id)) known->change();
        std::error_code why;
        while (!why) {
            const result<message> word = co_await as_result(end.recv_lent(word_tag));
            if (!word) {
                why = word.error();
                continue;
            }
            try {
                if (!self->word_arrived(rank, word->bytes())) why = make_error_code(errc::protocol_violation);
            } catch (const std::bad_alloc&) {
                why = make_error_code(errc::no_resources);  // the rank waits in vain for what it asked for
            }
        }
        if (why == errc::protocol_violation || why == errc::no_resources) {
            self->link_ended(rank, link, why);
            throw error(why);
        }
        // A rank that has left in good order may have sent what is not received yet: the endpoint stays until this node stops.
        const bool has_left = why == errc::closed;
        if (has_left) {
            if (self->peer(rank).link == &link) self->left(rank);
            static_cast<void>(co_await as_result(self->never_.wait()));
        }
        self->link_ended(rank, link, has_left || why == errc::canceled ? make_error_code(errc::closed) : why);
    }

    std::vector<generation> born_ = std::vector<generation>(this->size());
    event opened_;
    event never_;  // never set: a wait ends when the node stops
    node<Ts...> node_;
    task_group connecting_;
};

}  // namespace rdmacoro::detail
