// job: the processes that a launcher started together find each other.
#pragma once

#include <rdmacoro/coro/task.hpp>
#include <rdmacoro/service/detail/job_blob.hpp>
#include <rdmacoro/service/detail/launcher.hpp>
#include <rdmacoro/service/detail/rank_links_over.hpp>
#include <rdmacoro/service/group.hpp>
#include <rdmacoro/service/node.hpp>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

namespace rdmacoro {

/// How a process joins its job. May be written in braces after `co_await`, as long as none of its members there is made from a temporary with a
/// destructor, such as `.address = std::string(...)`: g++ 12 destroys that twice. Give such an object a name before.
struct job_options {
    /// How long it waits for the launcher and for the other ranks.
    duration limit = std::chrono::seconds(30);
    /// Whether a process that no launcher started is a job of one. Without it that is an error.
    bool alone = false;
    /// Where the node is to listen, as for `node::listen`. Empty: at an address of each of its transports; see `join_job`.
    std::span<const std::string> urls{};
    /// The address of this host, a name or numbers, at which the node listens. Empty: the variable RDMACORO_ADDRESS, and without it
    /// 127.0.0.1 where all ranks are on this host, else the address towards the launcher, or that of the first network interface; that one, too,
    /// where the launcher's host has a name that leads to 127.x here.
    std::string_view address{};
    /// Whether `job::world` is wanted: collectives have connections of their own, for which the process listens once more. The same at all
    /// ranks.
    bool groups = true;
    /// `pmix_launcher` of adapters/pmix.hpp, in programs that are linked with PMIx.
    detail::launcher_maker pmix = nullptr;
};

namespace detail {
class job_join;
}

/// The ranks of a job: processes that one launcher started. A value, independent of the node that joined. Copies and groups share the
/// connections of collectives, which end with the last of them, and before their scheduler.
class job {
public:
    /// Of this process, from 0.
    [[nodiscard]] std::uint32_t rank() const noexcept { return rank_; }
    /// How many ranks there are.
    [[nodiscard]] std::uint32_t size() const noexcept { return static_cast<std::uint32_t>(hosts_.size()); }

    /// The ranks on this host, this one included, in their order.
    [[nodiscard]] std::span<const std::uint32_t> ranks_on_this_host() const noexcept { return here_; }
    /// The place of this rank among those on this host, from 0.
    [[nodiscard]] std::uint32_t local_rank() const noexcept { return local_rank_; }
    /// The number of the rank's host: the same for ranks on one host. Hosts are numbered from 0, in the order of their lowest ranks. Throws
    /// `errc::invalid_argument` for a rank that there is not.
    [[nodiscard]] std::uint32_t host_of(std::uint32_t rank) const { return hosts_[checked(rank)]; }
    /// How many hosts there are.
    [[nodiscard]] std::uint32_t hosts() const noexcept { return host_count_; }

    /// The id of the rank's node, for `node::peer`. Throws `errc::invalid_argument` for a rank that there is not.
    [[nodiscard]] node_id node_of(std::uint32_t rank) const { return card(rank).id; }
    /// The card of the rank's node. Throws `errc::invalid_argument` for a rank that there is not.
    [[nodiscard]] const node_card& card(std::uint32_t rank) const { return cards(rank).front(); }
    /// The cards of all nodes that the rank has, the first of which is that of `card`. Throws `errc::invalid_argument` for a rank that there
    /// is not.
    [[nodiscard]] std::span<const node_card> cards(std::uint32_t rank) const { return cards_[checked(rank)]; }

    /// The launcher, for people: "PMI-1", "PMI-2", "PMIx", "tcp://127.0.0.1:7470", "alone".
    [[nodiscard]] std::string_view launcher() const noexcept { return launcher_; }
    /// A line for each rank: its host, its node, where that listens; and what of this process's transports does not listen. For people.
    [[nodiscard]] std::string explain() const;

    /// The group of all ranks, in their order. Throws `errc::invalid_argument` where the job was joined without groups.
    [[nodiscard]] group world() const;

    /// Awaitable.
    /// Completes: when what collectives of this rank have sent has arrived, and their connections are closed in good order. Without it, a rank that
    /// ends may take messages with it that others wait for.
    /// Buffers: none.
    /// Concurrency: once, after the last collective; no rank may begin one that this one does not take part in.
    /// Errors: `errc::timed_out`, as `node::close`. It takes 300 ms for the last words about groups, and then `node_options::close_limit` three
    ///     times, at most.
    /// Cancellation: closes at once.
    /// Example:
    ///     co_await ranks.leave();
    [[nodiscard]] task<> leave();

private:
    friend class detail::job_join;

    job() = default;
    [[nodiscard]] std::size_t checked(std::uint32_t rank) const;

    std::uint32_t rank_ = 0;
    std::uint32_t local_rank_ = 0;
    std::uint32_t host_count_ = 0;
    std::vector<std::uint32_t> hosts_;  // by rank
    std::vector<std::uint32_t> here_;
    std::vector<std::vector<node_card>> cards_;  // by rank
    std::string launcher_;
    std::string silent_;  // transports that do not listen, a line each
    bool compares_calls_ = false;
    detail::counted_ptr<detail::rank_links> links_;
    group world_;
};

/// An id for the node of this process, which needs one before it joins: its rank + 1, as the launcher's variables say it (RDMACORO_RANK,
/// PMI_RANK, PMIX_RANK, OMPI_COMM_WORLD_RANK, and SLURM_PROCID in a step of more than one task), and a random one in a process that no launcher
/// started, so that two that were started by hand differ. Throws `errc::invalid_argument` for a variable that is no rank.
[[nodiscard]] RDMACORO_DECL node_id job_node_id();

namespace detail {

/// The part of `join_job` that does not depend on the node's transports, which are types.
class job_join {
public:
    job_join(job_options options, const launch_environment& from);

    /// Speaks with the launcher, until all that decides where to listen is known.
    [[nodiscard]] task<> open();
    /// Where a node that listens nowhere is to: at what the options say, or else, for a transport of this name, at the URL of `url_of`.
    [[nodiscard]] std::span<const std::string> urls() const noexcept { return options_.urls; }
    [[nodiscard]] std::string url_of(std::string_view transport) const;
    /// A transport does not listen.
    void note_silent(std::string_view url, const std::system_error& why);
    /// After listening. Throws where no other rank could reach the node.
    void check_reachable(const node_card& card) const;
    /// Gives the cards of this process to all ranks. Ends with the job.
    [[nodiscard]] task<job> exchange(std::vector<node_card> cards);
    [[nodiscard]] bool wants_groups() const noexcept { return options_.groups; }
    [[nodiscard]] unsigned rank() const noexcept { return from_->rank(); }
    [[nodiscard]] unsigned size() const noexcept { return from_->size(); }
    /// Gives the job its collectives.
    static void open_world(job& of, counted_ptr<rank_links> links);
    /// The card under which this process knows the rank's node: without shared memory where the launcher speaks of another host.
    [[nodiscard]] node_card reachable_card(const job& of, std::uint32_t rank, std::size_t place = 0) const;

private:
    [[nodiscard]] task<> call(std::function<void(const patience&)> work);
    [[nodiscard]] task<std::vector<launcher::blob>> give_and_take(launcher::blob mine, bool last);
    [[nodiscard]] std::string own_address() const;
    /// Throws where ranks are on several hosts that the launcher calls one, and do not reach this one at the address chosen for one.
    void check_one_host(std::span<const job_blob> said) const;

    job_options options_;
    std::string address_variable_;
    std::shared_ptr<launcher> from_;
    time_point until_;
    bool opened_ = false;
    bool on_one_host_ = false;
    std::string silent_;
};

/// A process that a launcher has started joins its job once.
RDMACORO_DECL void claim_only_join(const launch_environment& from);

template <transport T, transport... Rest, class Node>
[[nodiscard]] task<> listen_for_job(job_join& with, Node& here) {
    const std::string url = with.url_of(T::name);
    try {
        static_cast<void>(co_await here.listen(url));
    } catch (const std::system_error& why) {
        if (why.code() == errc::canceled) throw;
        with.note_silent(url, why);
    }
    // One after another without a fold over co_await, which is more than g++ 12 does well.
    if constexpr (sizeof...(Rest) != 0) co_await listen_for_job<Rest...>(with, here);
}

/// While it lives, messages are kept of nodes that the address book does not have yet: a rank that has all cards first may send, and leave, before
/// this one has them.
class node_joining {
public:
    template <transport... Ts>
    explicit node_joining(node<Ts...>& of) noexcept : of_(of.state_.get()) {
        of_->keep_of_strangers();
    }
    node_joining(const node_joining&) = delete;
    node_joining& operator=(const node_joining&) = delete;
    ~node_joining() { of_->drop_of_strangers(); }

private:
    counted_ptr<node_core> of_;
};

template <transport... Ts>
[[nodiscard]] task<job> join_job_of(node<Ts...>& here, job_options options, launch_environment from) {
    const node_joining expects_cards(here);
    job_join with(std::move(options), from);
    co_await with.open();
    if (here.card().urls.empty()) {
        for (const std::string& url : with.urls()) static_cast<void>(co_await here.listen(url));
        if (with.urls().empty()) co_await listen_for_job<Ts...>(with, here);
        with.check_reachable(here.card());
    }
    std::vector<node_card> cards{here.card()};
    counted_ptr<rank_links_over<Ts...>> links;
    if (with.wants_groups()) {
        links =
            counted_ptr<rank_links_over<Ts...>>(new rank_links_over<Ts...>(with.rank(), with.size(), here));
        co_await listen_for_job<Ts...>(with, links->over());
        with.check_reachable(links->over().card());
        cards.push_back(links->over().card());
    }
    job made = co_await with.exchange(std::move(cards));
    for (std::uint32_t rank = 0; rank < made.size(); ++rank) {
        if (rank != made.rank()) here.add(with.reachable_card(made, rank));
    }
    if (links) {
        std::vector<node_card> others;
        for (std::uint32_t rank = 0; rank < made.size(); ++rank)
            others.push_back(with.reachable_card(made, rank, 1));
        links->open(others);
        job_join::open_world(made, counted_ptr<rank_links>(links.get()));
    }
    co_return made;
}

/// Its parameters are copied where no coroutine awaits: g++ 12 destroys such copies twice.
template <transport... Ts>
[[nodiscard]] task<job> join_job_here(node<Ts...>& here, job_options options) {
    launch_environment from = launch_environment::own();
    claim_only_join(from);
    task<job> joining = join_job_of(here, std::move(options), std::move(from));
    job made = co_await std::move(joining);
    co_return made;
}

}  // namespace detail

/// Joins the job that this process was started in, by `rdmacoro-run`, `mpiexec`, `mpirun`, `srun`, or by any program that sets RDMACORO_JOB,
/// RDMACORO_RANK and RDMACORO_SIZE. The ranks tell each other their nodes' cards through the launcher; `here` gets those of all others into
/// its address book, and connects to them when the first message is sent.
///
/// A node that listens nowhere listens then: over shared memory at a name that no other process has, over each other transport at a
/// free port of this host's address (`job_options::address`). A transport that cannot, for want of a device, is left out, as long as all ranks
/// can be reached; `job::explain` says why. Ranks on one host are those with the same `host_identity`, unless their launcher names
/// different hosts.
///
/// Where a variable says that there is a launcher, but it cannot be spoken to, that is an error; never a job of one.
///
/// Awaitable.
/// Ends with the job.
/// Completes: when every rank has joined.
/// Buffers: what the options refer to is borrowed, and `here` lives, until then.
/// Concurrency: once in a process that a launcher has started; a job of one (`job_options::alone`) may be joined again. A thread of
///     its own speaks with the launcher; the scheduler goes on.
/// Errors: `errc::timed_out` after `job_options::limit`, with the ranks in the text that have not come, as far as the launcher lets one know,
///     else those of this host;
///     `errc::invalid_argument` in a process that no launcher started, without `job_options::alone`, and for two ranks with one node id;
///     `errc::unsupported`, `errc::version_mismatch`, `errc::protocol_violation`, `errc::peer_lost`, `errc::permission_denied` for a launcher
///     that does not speak as it should, or another rank that has gone, or waited to its limit; `errc::address_invalid` where nothing listens,
///     and where the launcher calls hosts one that are several.
///     A process that was stopped past its limit waits for a second more at most, and joins where the others still wait for it.
/// Cancellation: at any time. A process that a launcher has started cannot join after that.
/// Example:
///     rdmacoro::node<rdmacoro::shm, rdmacoro::tcp> here(rdmacoro::job_node_id());
///     rdmacoro::job_options options;
///     options.limit = 10s;
///     rdmacoro::job ranks = co_await rdmacoro::join_job(here, options);
///     co_await here.peer(ranks.node_of((ranks.rank() + 1) % ranks.size())).send(text);
///     co_await ranks.world().allreduce(rdmacoro::in_place, numbers, std::plus<>{});
template <transport... Ts>
[[nodiscard]] task<job> join_job(node<Ts...>& here, const job_options& options) {
    return detail::join_job_here(here, options);
}
/// As above, without options.
///
/// Awaitable.
/// Ends with the job.
/// Completes: as above.
/// Buffers: as above.
/// Concurrency: as above.
/// Errors: as above.
/// Cancellation: as above.
/// Example:
///     rdmacoro::job ranks = co_await rdmacoro::join_job(here);
template <transport... Ts>
[[nodiscard]] task<job> join_job(node<Ts...>& here) {
    return detail::join_job_here(here, job_options());
}

}  // namespace rdmacoro

#if !defined(RDMACORO_SEPARATE_COMPILATION)
#include <rdmacoro/service/impl/job.ipp>
#endif
