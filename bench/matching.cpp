// matching [PEERS...]: what receives of a mailbox cost beside idle peers, and what destroying it costs, with so many peers
// (default: 1, 100, 1,000 and 4,000).
//
// Each row should be the same in all columns but for the processor's cache. At last what a service's receives cost while another
// service has 16,384 requests stored. Over the simulated network, all in one thread, so
// that thousands of links cost no descriptors; only this library's own work is timed.
#include <rdmacoro/rdmacoro.hpp>
#include <rdmacoro/transport/sim.hpp>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <exception>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace rc = rdmacoro;

namespace {

constexpr int rounds = 5;  // of which the best counts

double now_ns() {
    return std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now().time_since_epoch())
        .count();
}

template <class Work>
double timed(Work work) {
    const double begin = now_ns();
    work();
    return now_ns() - begin;
}

struct figures {
    double any_source = 1e99;   ///< a receive from any source begins, nothing is there
    double one_of_each = 1e99;  ///< a message meets a masked receive; there is one for each peer
    double behind = 1e99;  ///< a message comes behind 16,000 of another peer, and a masked receive takes it
    double destroyed = 1e99;  ///< a mailbox with 50 messages of each peer ends: for each message
};

struct request final : rc::detail::receive_request {
    explicit request(rc::peer_id from, rc::tag_match wanted = rc::any_tag) noexcept
        : receive_request(nullptr, wanted, from, rc::mutable_buffers(), nullptr) {}
};

/// The matcher alone: masked receives of each peer, and messages behind those of another.
void of_the_matcher(rc::peer_id peers, figures& best) {
    rc::detail::matcher matching(true);
    for (rc::peer_id peer = 0; peer <= peers; ++peer) {
        if (!matching.add_source(peer)) throw std::bad_alloc();
    }
    constexpr int messages = 4000;
    std::deque<request> posted;
    matching.post(posted.emplace_back(0, 99));  // the only receive there is would be a case of its own
    for (rc::peer_id peer = 0; peer < peers; ++peer) matching.post(posted.emplace_back(peer));
    std::deque<rc::detail::unexpected_message> kept(16000);
    for (int round = 0; round < rounds; ++round) {
        const double took = timed([&] {
            for (int n = 0; n < messages; ++n) {
                rc::detail::receive_request* met =
                    matching.arrived(static_cast<rc::peer_id>(n) * 2654435761u % peers, 7);
                matching.post(*met);
            }
        });
        best.one_of_each = std::min(best.one_of_each, took / messages);
    }
    for (request& one : posted) matching.withdraw(one);
    for (auto& m : kept) matching.add(m);
    std::deque<rc::detail::unexpected_message> own(peers);
    for (rc::peer_id peer = 0; peer < peers; ++peer) own[peer].source = peer + 1;
    const rc::peer_id repeats = messages / peers + 1;
    for (int round = 0; round < rounds; ++round) {
        const double took = timed([&] {
            for (rc::peer_id n = 0; n < repeats; ++n) {
                for (auto& m : own) matching.add(m);
                for (rc::peer_id peer = 0; peer < peers; ++peer)
                    matching.remove(*matching.find(peer + 1, rc::any_tag));
            }
        });
        best.behind = std::min(best.behind, took / repeats / peers);
    }
}

// As calls have them: requests to services.
constexpr rc::tag_type request_to(rc::tag_type service, rc::tag_type number) {
    return rc::tag_type{1} << 63 | service << 44 | number;
}
constexpr rc::tag_match requests_to(rc::tag_type service) {
    return {request_to(service, 0), rc::tag_type{3} << 62 | rc::tag_type{0xffff} << 44};
}

/// A service posts its receive again after each request, while another one has `stored` requests that it does not take yet.
double beside_a_saturated_service(std::size_t stored) {
    rc::detail::matcher matching(false);
    std::deque<rc::detail::unexpected_message> kept(stored);
    for (std::size_t n = 0; n < stored; ++n) {
        kept[n].tag = request_to(1, n);
        matching.add(kept[n]);
    }
    constexpr int requests = 20000;
    request standing(0, requests_to(2));
    double best = 1e99;
    for (int round = 0; round < rounds; ++round) {
        const double took = timed([&] {
            for (int n = 0; n < requests; ++n) {
                if (matching.find(0, standing.wanted_) != nullptr) throw std::bad_alloc();
                matching.post(standing);
                if (matching.arrived(0, request_to(2, static_cast<rc::tag_type>(n))) != &standing)
                    throw std::bad_alloc();
            }
        });
        best = std::min(best, took / requests);
    }
    matching.drop_stored(false, [](rc::detail::unexpected_message&) {});
    return best;
}

rc::task<> of_the_mailbox(rc::peer_id count, figures& best) {
    rc::scheduler& on = *rc::scheduler::current();
    rc::sim::domain here(on);
    rc::sim::domain there(on);
    auto listening = co_await rc::listen<rc::sim>(there, "matching");
    auto box = std::make_unique<rc::mailbox<rc::sim>>();
    std::deque<rc::endpoint<rc::sim>> clients;
    for (rc::peer_id n = 0; n < count; ++n) {
        clients.push_back(co_await rc::connect<rc::sim>(here, "sim://matching"));
        box->attach(co_await listening.accept());
    }
    std::byte into[8];
    const std::byte data[8] = {};
    double began = 1e99;
    for (int n = 0; n < 200; ++n) {
        const double begin = now_ns();
        auto receiving = rc::start(box->recv(into, 7));
        began = std::min(began, now_ns() - begin);
        co_await clients[static_cast<std::size_t>(n) * 61 % count].send(data, 7);
        co_await receiving;
    }
    best.any_source = std::min(best.any_source, began);

    constexpr int kept = 50;
    for (auto& client : clients) {
        for (int n = 0; n < kept; ++n) co_await client.send(data, 8);
    }
    while (box->base().matching().unexpected() < std::size_t{count} * kept) co_await rc::yield();
    const double took = timed([&] { box.reset(); });
    best.destroyed = std::min(best.destroyed, took / (static_cast<double>(count) * kept));
}

figures measure(rc::peer_id peers) {
    figures best;
    of_the_matcher(peers, best);
    for (int round = 0; round < (peers > 1000 ? 1 : 3); ++round)
        rc::scheduler(rc::idle::spin{}).run(of_the_mailbox(peers, best));
    return best;
}

}  // namespace

int main(int argc, char** argv) {
    try {
        std::printf("%-8s %22s %22s %22s %22s\n", "peers", "recv(tag, any) begins", "any_tag of each: met",
                    "behind 16,000: taken", "destroyed, a message");
        std::vector<rc::peer_id> counts{1, 100, 1000, 4000};
        if (argc > 1) counts.clear();
        for (int n = 1; n < argc; ++n)
            counts.push_back(static_cast<rc::peer_id>(std::max(1L, std::strtol(argv[n], nullptr, 10))));
        for (const rc::peer_id peers : counts) {
            const figures f = measure(peers);
            std::printf("%-8u %19.0f ns %19.0f ns %19.0f ns %19.0f ns\n", peers, f.any_source, f.one_of_each,
                        f.behind, f.destroyed);
            std::fflush(stdout);
        }
        for (const std::size_t stored : {std::size_t{0}, std::size_t{16384}})
            std::printf("a receive of a service's requests, posted and met, beside %zu stored ones of "
                        "another: %.0f ns\n",
                        stored, beside_a_saturated_service(stored));
    } catch (const std::exception& failure) {
        std::fprintf(stderr, "matching: %s\n", failure.what());
        return 1;
    }
}
