#include "worker.hpp"

#include "journal.hpp"
#include "session.hpp"
#include "transports.hpp"

#include <rdmacoro/rdmacoro.hpp>
#if RDMACORO_WITH_TCP
#include <rdmacoro/transport/tcp.hpp>
#endif
#if RDMACORO_WITH_OFI
#include <rdmacoro/transport/ofi.hpp>
#endif

#include <chrono>
#include <exception>
#include <memory>
#include <system_error>
#include <utility>

namespace soak {

namespace {

namespace rc = rdmacoro;
using namespace std::chrono_literals;

/// The state that the parts of a worker share.
struct shared_state {
    const options& asked;
    const worker_place& place;
    journal log;
    random own;
    bool over = false;  ///< no further sessions; clients close after their round
};

/// All sessions over one transport.
template <class T>
class over_transport {
public:
    over_transport(shared_state& all, std::size_t index)
        : all_(all), index_(index), name_(all.asked.transports[index]) {}

    /// Listens and serves until it is stopped. An end of another kind is a fault: connects to it would be refused, as by a worker that is dead.
    rc::task<> serve() {
        const auto ended = co_await rc::as_result(accept_all());
        if (!ended && ended.error() != rc::errc::canceled)
            all_.log.tell_fault("accepts no more over " + name_ + ": " + ended.error().message());
    }

    /// One session with that worker, if it is there. False if not.
    rc::task<bool> play(unsigned other) {
        const auto began = std::chrono::steady_clock::now();
        auto connected = co_await rc::as_result(rc::timeout(rc::connect<T>(domain_, address(other)), 10s));
        if (!connected) {
            const std::error_code how = connected.error();
            if (how == rc::errc::timed_out) {
                all_.log.tell({mishap::kind::unanswered, other, name_, began, how.message()});
                co_return false;
            }
            if (how != rc::errc::connection_refused && how != rc::errc::peer_lost &&
                how != rc::errc::closed && how != rc::errc::canceled) {
                all_.log.tell_fault("connecting to worker " + std::to_string(other) + " over " + name_ +
                                    ": " + how.message());
            }
            ++all_.log.sums.refused;
            co_return false;
        }
        rc::endpoint<T> peer = std::move(*connected);
        session_facts facts{name_, other, true, all_.own.next(), began};
        const hello first{facts.seed, all_.place.number, 0, began.time_since_epoch().count()};
        auto sent = co_await rc::as_result(peer.send(std::as_bytes(std::span(&first, 1)), hello_tag));
        if (!sent) {
            if (sent.error() == rc::errc::peer_lost)
                all_.log.tell({mishap::kind::lost, other, name_, began, sent.error().message()});
            co_return false;
        }
        co_await run(peer, facts);
        co_return true;
    }

    [[nodiscard]] bool ready() const noexcept { return ready_; }
    /// Waits for the clients to close, since a server that stops in a round cancels what its client waits for.
    rc::task<> end_clients() {
        const bool closed = static_cast<bool>(co_await rc::as_result(rc::timeout(clients_.join(), 30s)));
        if (!closed) all_.log.tell_fault("clients did not close over " + name_);
        co_await clients_.join();
    }

private:
    rc::task<> accept_all() {
        rc::listener<T> listener = co_await listen();
        ready_ = true;
        for (;;) {
            rc::endpoint<T> accepted = co_await listener.accept();
            clients_.spawn([this](rc::endpoint<T> peer) { return serve_one(std::move(peer)); },
                           std::move(accepted));
            if (++accepted_ == all_.asked.deafen) rc::listener<T>(std::move(listener));
        }
    }
    /// The port of a worker that was dead may be that of another one's connection meanwhile.
    rc::task<rc::listener<T>> listen() {
        const auto until = std::chrono::steady_clock::now() + 30s;
        for (;;) {
            auto made = co_await rc::as_result(rc::listen<T>(domain_, address(all_.place.number)));
            if (made) co_return std::move(*made);
            if (made.error() != rc::errc::address_in_use || std::chrono::steady_clock::now() > until)
                throw std::system_error(made.error());
            co_await rc::sleep_for(100ms);
        }
    }
    [[nodiscard]] std::string address(unsigned worker) const {
        return address_of(name_, all_.place.run,
                          all_.place.ports[worker * all_.asked.transports.size() + index_]);
    }

    rc::task<> serve_one(rc::endpoint<T> peer) {
        hello first;
        auto got = co_await rc::as_result(
            rc::timeout(peer.recv(std::as_writable_bytes(std::span(&first, 1)), hello_tag), 30s));
        if (!got) co_return;  // it was killed, or connected and gave up
        session_facts facts{name_, first.worker, false, first.seed,
                            mishap::time_point(mishap::time_point::duration(first.began))};
        co_await run(peer, facts);
    }

    rc::task<> run(rc::endpoint<T>& peer, const session_facts& facts) {
        ++all_.log.sums.sessions;
        session<rc::endpoint<T>, typename T::domain> with(peer, domain_, all_.log, all_.asked, facts,
                                                          all_.over);
        co_await with.run();
        ++all_.log.sums.ended;
    }

    shared_state& all_;
    std::size_t index_;
    std::string name_;
    typename T::domain domain_{*rc::scheduler::current()};
    rc::task_group clients_;
    std::uint64_t accepted_ = 0;
    bool ready_ = false;
};

/// A transport, whichever: what the loops below need of it.
class any_over {
public:
    virtual ~any_over() = default;
    virtual rc::task<> serve() = 0;
    virtual rc::task<bool> play(unsigned other) = 0;
    virtual bool ready() = 0;
    virtual rc::task<> end_clients() = 0;
};

template <class T>
class some_over final : public any_over {
public:
    some_over(shared_state& all, std::size_t index) : over_(all, index) {}
    rc::task<> serve() override { return over_.serve(); }
    rc::task<bool> play(unsigned other) override { return over_.play(other); }
    bool ready() override { return over_.ready(); }
    rc::task<> end_clients() override { return over_.end_clients(); }

private:
    over_transport<T> over_;
};

std::unique_ptr<any_over> make_over(shared_state& all, std::size_t index) {
    [[maybe_unused]] const std::string& name = all.asked.transports[index];
#if RDMACORO_WITH_TCP
    if (name == "tcp") return std::make_unique<some_over<rc::tcp>>(all, index);
#endif
#if RDMACORO_WITH_OFI
    if (name == "ofi") return std::make_unique<some_over<rc::ofi<rc::provider::any>>>(all, index);
#endif
    return std::make_unique<some_over<rc::shm>>(all, index);
}

/// Keeps one link open, to one worker after the other.
rc::task<> keep_link(shared_state& all, std::vector<std::unique_ptr<any_over>>& over) {
    while (!all.over) {
        unsigned other = static_cast<unsigned>(all.own.below(all.asked.workers - 1));
        if (other >= all.place.number) ++other;
        const bool found = co_await over[all.own.below(over.size())]->play(other);
        if (!found) co_await rc::sleep_for(std::chrono::milliseconds(20 + all.own.below(200)));
    }
}

rc::task<> report(shared_state& all) {
    for (;;) {
        co_await rc::sleep_for(500ms);
        all.log.tell_totals();
    }
}

rc::task<> work(shared_state& all) {
    std::vector<std::unique_ptr<any_over>> over;
    for (std::size_t t = 0; t < all.asked.transports.size(); ++t) over.push_back(make_over(all, t));
    rc::task_group serving;
    for (auto& each : over) serving.spawn([&each] { return each->serve(); });
    for (auto& each : over) {
        while (!each->ready() && serving.size() == over.size()) co_await rc::yield();
    }
    all.log.tell_ready();
    rc::task_group reporting;
    reporting.spawn([&all] { return report(all); });
    rc::task_group links;
    for (unsigned n = 0; n < all.asked.links; ++n) links.spawn([&] { return keep_link(all, over); });

    co_await rc::sleep_for(
        std::chrono::duration_cast<rc::duration>(std::chrono::duration<double>(all.place.seconds)));
    all.over = true;
    // Each client ends its round and closes its link. The listeners close next, and the served links end when their clients close.
    const auto ended = co_await rc::as_result(rc::timeout(links.join(), 60s));
    if (!ended) all.log.tell_fault("sessions did not end: " + ended.error().message());
    serving.request_stop();
    static_cast<void>(co_await rc::as_result(serving.join()));
    for (auto& each : over) co_await each->end_clients();
    reporting.request_stop();
    static_cast<void>(co_await rc::as_result(reporting.join()));
}

}  // namespace

int run_worker(const options& asked, const worker_place& place) {
    shared_state all{asked, place, journal(place.pipe),
                     random(asked.seed + place.number * 1000003 + place.life * 7919)};
    try {
        rc::scheduler scheduler;
        scheduler.run(work(all));
    } catch (const std::exception& error) {
        all.log.tell_fault("worker " + std::to_string(place.number) + " ended: " + error.what());
        return status_fault;
    }
    all.log.tell_totals();
    return status_well;
}

}  // namespace soak
