// How a process joins its job.
#pragma once

#include <rdmacoro/coro/detail/turn_for_others.hpp>
#include <rdmacoro/coro/timeout.hpp>
#include <rdmacoro/service/detail/helper_call.hpp>
#include <rdmacoro/service/detail/launcher_choice.hpp>
#include <rdmacoro/service/detail/thread_wait.hpp>
#include <rdmacoro/service/job.hpp>
#include <rdmacoro/transport/detail/own_address.hpp>

#include <algorithm>
#include <atomic>

namespace rdmacoro {

RDMACORO_COLD std::size_t job::checked(std::uint32_t rank) const {
    if (rank >= size())
        throw error(errc::invalid_argument,
                    "rank " + std::to_string(rank) + " of a job of " + std::to_string(size()));
    return rank;
}

RDMACORO_COLD group job::world() const {
    if (!world_)
        throw error(errc::invalid_argument, "job: it was joined without groups (job_options::groups)");
    return world_;
}

RDMACORO_COLD task<> job::leave() {
    const detail::counted_ptr<detail::rank_links> links = links_;
    co_await detail::turn_for_others();
    if (!links) co_return;
    co_await detail::rank_links::say_goodbye(links.get());
    co_await links->close();
}

RDMACORO_COLD std::string job::explain() const {
    std::string text = std::to_string(size()) + (size() == 1 ? " rank" : " ranks") + " on " +
                       std::to_string(host_count_) + (host_count_ == 1 ? " host" : " hosts") +
                       ", started by " + launcher_ + '\n';
    for (std::uint32_t rank = 0; rank < size(); ++rank) {
        text += "  rank " + std::to_string(rank) + (rank == rank_ ? ", this one" : "") + ": host " +
                std::to_string(hosts_[rank]) + ", node " + std::to_string(card(rank).id);
        for (const std::string& url : card(rank).urls) text += ", " + url;
        text += '\n';
    }
    return text + silent_;
}

RDMACORO_COLD node_id job_node_id() {
    if (const auto rank = detail::launched_rank(detail::launch_environment::own())) return *rank + 1;
    node_id drawn = 0;
    // Above what ranks get.
    while (drawn <= detail::launcher::most_ranks)
        drawn = static_cast<node_id>(static_cast<std::uint64_t>(new_generation()));
    return drawn;
}

namespace detail {

RDMACORO_COLD void claim_only_join(const launch_environment& from) {
    static std::atomic<bool> claimed{false};
    const bool launched = from.has("RDMACORO_JOB") || from.has("PMI_FD") || from.has("PMIX_NAMESPACE") ||
                          from.has("OMPI_COMM_WORLD_SIZE");  // as `choose_launcher`
    if (launched && claimed.exchange(true))
        throw_error(errc::invalid_argument, "join_job: this process has joined its job before");
}

RDMACORO_COLD job_join::job_join(job_options options, const launch_environment& from)
    : options_(std::move(options)),
      from_(choose_launcher(from, options_.pmix, options_.alone)),
      until_(deadline_after(monotonic_now(), options_.limit)) {
    if (const std::string* const address = from.find("RDMACORO_ADDRESS")) address_variable_ = *address;
}

/// Runs on a thread of its own. The function owns all that it uses.
RDMACORO_COLD task<> job_join::call(std::function<void(const patience&)> work) {
    const bool may_hang = from_->may_hang();
    // The launcher says at the limit itself what it knows, and is given the time to; only one that hangs does not.
    constexpr duration own_say = std::chrono::milliseconds(100);
    const duration left = std::max(until_ - monotonic_now(), duration::zero()) + own_say;
    helper_call one(std::move(work), until_, may_hang);
    if (!may_hang) {
        co_await one;
        co_return;
    }
    bool late = false;
    try {
        co_await timeout(one, left);
    } catch (const error& failed) {
        // The launcher's own say of which it is.
        if (failed.code() != errc::timed_out || failed.context().starts_with(from_->name())) throw;
        late = true;
    }
    if (late)
        throw error(errc::timed_out, from_->name() +
                                         ": the launcher did not answer within the limit; the call "
                                         "is left to its thread" +
                                         (opened_ ? from_->absent_text() : std::string()));
}

RDMACORO_COLD task<> job_join::open() {
    std::function<void(const patience&)> words = [from = from_](const patience& limit) { from->open(limit); };
    co_await call(std::move(words));
    opened_ = true;
    if (const auto known = from_->on_one_host()) {
        on_one_host_ = *known;
        co_return;
    }
    launcher::blob mine = encode_job_blob({.host = host_identity::own(), .launched_on = from_->host()});
    const std::vector<launcher::blob> all = co_await give_and_take(std::move(mine), false);
    const std::vector<job_blob> said = decode_job_blobs(all);
    const std::vector<std::uint32_t> hosts = number_hosts(said);
    on_one_host_ = std::all_of(hosts.begin(), hosts.end(), [](std::uint32_t one) { return one == 0; });
}

RDMACORO_COLD task<std::vector<launcher::blob>> job_join::give_and_take(launcher::blob mine, bool last) {
    const auto all = std::make_shared<std::vector<launcher::blob>>();
    std::function<void(const patience&)> words = [from = from_, all, given = std::move(mine),
                                                  last](const patience& limit) {
        *all = from->exchange(given, limit);
        if (!last) return;
        try {
            from->leave(limit);
        } catch (const error& failed) {
            // The job is complete: what the launcher says to the last words changes nothing.
            if (failed.code() == errc::canceled) throw;
        }
    };
    co_await call(std::move(words));
    if (all->size() != from_->size())
        throw error(errc::protocol_violation, from_->name() + ": the launcher speaks of " +
                                                  std::to_string(all->size()) + " ranks, not " +
                                                  std::to_string(from_->size()));
    co_return std::move(*all);
}

RDMACORO_COLD std::string job_join::own_address() const {
    if (!options_.address.empty()) return std::string(options_.address);
    if (!address_variable_.empty()) return address_variable_;
    if (on_one_host_) return "127.0.0.1";
    if (!from_->address().empty()) return from_->address();
    return own_inet_address();
}

RDMACORO_COLD std::string job_join::url_of(std::string_view transport) const {
    const std::string name(transport);
    if (name == "shm" || name == "sim") return name + "://job-" + to_string(new_generation());
    std::string address = own_address();
    if (address.empty())
        throw error(errc::address_invalid,
                    "join_job: this host has no address of its own: set RDMACORO_ADDRESS");
    if (address.find(':') != std::string::npos && address.front() != '[') address = '[' + address + ']';
    return name + "://" + address + ":0";
}

RDMACORO_COLD void job_join::note_silent(std::string_view url, const std::system_error& why) {
    silent_ += "  not listening at " + std::string(url) + ": " + why.what() + '\n';
}

RDMACORO_COLD void job_join::check_reachable(const node_card& card) const {
    const bool near = from_->size() == 1 || on_one_host_;
    const bool reachable = std::any_of(card.urls.begin(), card.urls.end(), [&](const std::string& url) {
        return near || (!url.starts_with("shm://") && !url.starts_with("sim://"));
    });
    if (reachable) return;
    throw error(errc::address_invalid, (near ? "join_job: this node listens nowhere:\n"
                                             : "join_job: ranks on other hosts cannot reach this node:\n") +
                                           (silent_.empty() ? "  it has no transport for that\n" : silent_));
}

/// As of containers with networks of their own, of which the launcher knows nothing.
RDMACORO_COLD void job_join::check_one_host(std::span<const job_blob> said) const {
    const job_blob& own = said[from_->rank()];
    const auto is_far = [&](const job_blob& one) {
        return one.host.known() && own.host.known() && one.host != own.host;
    };
    const auto far = std::find_if(said.begin(), said.end(), is_far);
    if (!on_one_host_ || far == said.end()) return;
    const bool chosen = options_.address.empty() && address_variable_.empty();
    const auto leads_there = [&](const std::string& url) {
        return !url.starts_with("shm://") && !url.starts_with("sim://") &&
               !(chosen && url.find("://127.0.0.1:") != std::string::npos);
    };
    const bool reached = std::all_of(own.cards.begin(), own.cards.end(), [&](const node_card& card) {
        return std::any_of(card.urls.begin(), card.urls.end(), leads_there);
    });
    if (reached) return;
    throw error(errc::address_invalid, "join_job: rank " + std::to_string(far - said.begin()) +
                                           " runs under another kernel or in another network than rank " +
                                           std::to_string(from_->rank()) + ", but " + from_->name() +
                                           " says that all ranks are on one host, where nodes listen at "
                                           "127.0.0.1: set RDMACORO_ADDRESS to an "
                                           "address of each host");
}

RDMACORO_COLD task<job> job_join::exchange(std::vector<node_card> cards) {
    job_blob own{.host = cards.front().host,
                 .launched_on = from_->host(),
                 .cards = std::move(cards),
                 .compares_calls = rank_links::wants_comparison()};
    launcher::blob mine = encode_job_blob(own);
    const std::vector<launcher::blob> all = co_await give_and_take(std::move(mine), true);
    std::vector<job_blob> said = decode_job_blobs(all);
    check_one_host(said);
    job made;
    made.rank_ = from_->rank();
    made.launcher_ = from_->name();
    made.silent_ = silent_;
    made.hosts_ = number_hosts(said);
    for (std::uint32_t rank = 0; rank < made.size(); ++rank) {
        // All do where one wants it, as one that was compiled for debugging among others: a comparison is a collective of its own.
        made.compares_calls_ = made.compares_calls_ || said[rank].compares_calls;
        if (said[rank].cards.empty())
            throw error(errc::protocol_violation, "rank " + std::to_string(rank) + " of the job has no node");
        made.cards_.push_back(std::move(said[rank].cards));
        made.host_count_ = std::max(made.host_count_, made.hosts_[rank] + 1);
        if (made.hosts_[rank] != made.hosts_[made.rank_]) continue;
        if (rank < made.rank_) ++made.local_rank_;
        made.here_.push_back(rank);
    }
    co_return made;
}

RDMACORO_COLD node_card job_join::reachable_card(const job& of, std::uint32_t rank, std::size_t place) const {
    node_card card = of.cards(rank)[place];
    if (of.host_of(rank) != of.host_of(of.rank()))
        std::erase_if(card.urls, [](const std::string& url) { return url.starts_with("shm://"); });
    return card;
}

RDMACORO_COLD void job_join::open_world(job& of, counted_ptr<rank_links> links) {
    links->set_hosts({of.hosts_.begin(), of.hosts_.end()});
    links->compare_calls(of.compares_calls_);
    std::vector<unsigned> all(of.size());
    for (unsigned rank = 0; rank < of.size(); ++rank) all[rank] = rank;
    of.world_ = group(counted_ptr<group_state>(
        new group_state(links, std::move(all), world_context, &default_collectives::choose)));
    of.links_ = std::move(links);
}

}  // namespace detail
}  // namespace rdmacoro
