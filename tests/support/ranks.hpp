#pragma once

// The ranks of a job in one process, on one scheduler, for tests of collectives.

#include "support/nodes.hpp"
#include "support/run.hpp"

#include <rdmacoro/service/detail/rank_links_over.hpp>
#include <rdmacoro/service/group.hpp>
#include <rdmacoro/transport/sim.hpp>

#include <memory>
#include <optional>
#include <utility>
#include <vector>

namespace rdmacoro::test {

/// `size` ranks over `T`, each with connections of its own, and the group of all of them.
template <class T>
class ranks {
public:
    using links_type = detail::rank_links_over<T>;

    /// `hosts[r]`: the host that rank `r` is taken to be on; empty: all on one. `network`: how each rank's domain behaves, over `sim`.
    explicit ranks(unsigned size, std::vector<unsigned> hosts = {}, const node_options& options = usual(),
                   const sim_options& network = {})
        : hosts_(std::move(hosts)) {
        scheduler& on = detail::running_scheduler();
        for (unsigned rank = 0; rank < size; ++rank) {
            node_options own = options;
            own.born = static_cast<generation>(1000 + rank);
            if constexpr (std::is_same_v<T, sim>) {
                domains_.push_back(std::make_unique<sim::domain>(on, network));
                links_.emplace_back(new links_type(on, rank, size, own, *domains_.back()));
            } else {
                links_.emplace_back(new links_type(on, rank, size, own));
            }
            links_.back()->set_hosts(hosts_);
        }
    }

    static node_options usual() {
        node_options o;
        o.connect_limit = std::chrono::seconds(2);
        return o;
    }

    /// All listen, and know each other.
    task<> open() {
        co_await listen();
        meet();
    }
    task<> listen() {
        for (auto& one : links_) co_await one->over().listen(fresh_url<T>());
    }
    void meet() {
        std::vector<node_card> cards;
        for (auto& one : links_) cards.push_back(one->over().card());
        for (auto& one : links_) one->open(cards);
        for (auto& one : links_) {
            std::vector<unsigned> members;
            for (unsigned rank = 0; rank < links_.size(); ++rank) members.push_back(rank);
            states_.push_back(new detail::group_state(detail::counted_ptr<detail::rank_links>(one.get()),
                                                      std::move(members), 1, &default_collectives::choose));
            groups_.emplace_back(detail::counted_ptr<detail::group_state>(states_.back()));
        }
    }

    [[nodiscard]] group& at(unsigned rank) { return groups_[rank]; }
    [[nodiscard]] links_type& links(unsigned rank) { return *links_[rank]; }
    /// Of its group, which must be there still.
    [[nodiscard]] detail::group_state& state(unsigned rank) { return *states_[rank]; }
    [[nodiscard]] sim::domain& network_of(unsigned rank) { return *domains_[rank]; }
    [[nodiscard]] unsigned size() const { return static_cast<unsigned>(links_.size()); }

    /// The sum over all connections of one count: `sum_of(&metrics::get_sent)`.
    [[nodiscard]] std::uint64_t sum_of(std::uint64_t metrics::* count) {
        std::uint64_t sum = 0;
        for (auto& one : links_) {
            for (unsigned other = 0; other < size(); ++other) {
                if (detail::rank_link* const link = one->peer(other).link) sum += link->counts().*count;
            }
        }
        return sum;
    }
    /// `body(group)` at every rank at a time.
    template <class F>
    task<> each(F body) {
        task_group all(on_child_error::stop_others);
        for (group& one : groups_) all.spawn([&body, &one] { return body(one); });
        co_await all.join();
    }
    /// This rank dies, over `sim`: its connections end at once, and later nothing reaches it any more. The peers of a node that is
    /// silent already are told nothing.
    task<> kill(unsigned rank) {
        for (int times = 0; times < 3; ++times) {
            for (unsigned other = 0; other < size(); ++other) {
                if (other != rank) domains_[rank]->drop_links_to(*domains_[other]);
            }
            co_await sleep_for(std::chrono::microseconds(times == 0 ? 5 : 50));
        }
        domains_[rank]->set_silent(true);
    }
    /// This rank's program ends without a word, over any transport. Nothing of the rank may run.
    void vanish(unsigned rank) {
        leave(rank);
        links_[rank].reset();
    }
    /// This rank's program lets go of its group.
    void leave(unsigned rank) { groups_[rank] = group(); }
    /// This rank's program ends, in good order. Groups that it has let go are gone; others go on and fail.
    task<> end(unsigned rank) {
        co_await detail::rank_links::say_goodbye(links_[rank].get());
        leave(rank);
        links_[rank]->stop();
        co_await links_[rank]->over().close();
        links_[rank].reset();
    }

private:
    std::vector<unsigned> hosts_;
    std::vector<std::unique_ptr<sim::domain>> domains_;
    std::vector<detail::counted_ptr<links_type>> links_;
    std::vector<detail::group_state*> states_;
    std::vector<group> groups_;
};

/// For a domain in that network, without chance.
inline sim_options in(sim_world& world) {
    sim_options o;
    o.world = &world;
    return o;
}

/// Opens them without the comparison of their collectives.
template <class Ranks>
task<> open_unchecked(Ranks& all) {
    co_await all.open();
    for (unsigned rank = 0; rank < all.size(); ++rank) all.state(rank).checks = false;
}

/// Runs `body(world)` in a simulated network, in virtual time: what waits in vain ends with an error.
template <class F>
void run_simulated(const sim_world_options& options, F body) {
    sim_world world(options);
    scheduler on{impatient{}, world.time()};
    on.run([](sim_world& in, F& run) -> task<> {
        co_await timeout(run(in), std::chrono::minutes(10));
    }(world, body));
}

}  // namespace rdmacoro::test
