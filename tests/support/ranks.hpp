#pragma once

// The ranks of a job in one process, on one scheduler, for tests of collectives.

#include "support/nodes.hpp"

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

    /// `hosts[r]`: the host that rank `r` is taken to be on; empty: all on one.
    explicit ranks(unsigned size, std::vector<unsigned> hosts = {}, const node_options& options = usual())
        : hosts_(std::move(hosts)) {
        scheduler& on = detail::running_scheduler();
        for (unsigned rank = 0; rank < size; ++rank) {
            node_options own = options;
            own.born = static_cast<generation>(1000 + rank);
            if constexpr (std::is_same_v<T, sim>) {
                domains_.push_back(std::make_unique<sim::domain>(on));
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
        for (auto& one : links_) co_await one->over().listen(fresh_url<T>());
        std::vector<node_card> cards;
        for (auto& one : links_) cards.push_back(one->over().card());
        for (auto& one : links_) one->open(cards);
        for (auto& one : links_) {
            std::vector<unsigned> members;
            for (unsigned rank = 0; rank < links_.size(); ++rank) members.push_back(rank);
            groups_.emplace_back(detail::counted_ptr<detail::group_state>(
                new detail::group_state(detail::counted_ptr<detail::rank_links>(one.get()), std::move(members),
                                        1, &default_collectives::choose)));
        }
    }

    [[nodiscard]] group& at(unsigned rank) { return groups_[rank]; }
    [[nodiscard]] links_type& links(unsigned rank) { return *links_[rank]; }
    [[nodiscard]] unsigned size() const { return static_cast<unsigned>(links_.size()); }

    /// `body(group)` at every rank at a time.
    template <class F>
    task<> each(F body) {
        task_group all(on_child_error::stop_others);
        for (group& one : groups_) all.spawn([&body, &one] { return body(one); });
        co_await all.join();
    }
    /// This rank dies: its connections end at once.
    void kill(unsigned rank) {
        groups_[rank] = group();
        links_[rank].reset();
    }

private:
    std::vector<unsigned> hosts_;
    std::vector<std::unique_ptr<sim::domain>> domains_;
    std::vector<detail::counted_ptr<links_type>> links_;
    std::vector<group> groups_;
};

}  // namespace rdmacoro::test
