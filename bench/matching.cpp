// matching: what receives of a mailbox cost beside idle peers, and what destroying it costs, with more and more peers.
//
// Each row should be the same in all columns but for the processor's cache. At last what a service's receives cost while another
// service has 16,384 requests stored. Over the simulated network, all in one thread, so
// that thousands of links cost no descriptors; only this library's own work is timed.

#include "common/report.hpp"

#include "../tools/pingpong/cpus.hpp"

#include <rdmacoro/rdmacoro.hpp>
#include <rdmacoro/transport/sim.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <deque>
#include <memory>
#include <string>
#include <vector>

namespace {

using namespace bench;

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
        if (!matching.add_source(peer)) throw run_error("no memory for a source");
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
                if (matching.find(0, standing.wanted_) != nullptr)
                    throw run_error("a receive took another service's request");
                matching.post(standing);
                if (matching.arrived(0, request_to(2, static_cast<rc::tag_type>(n))) != &standing)
                    throw run_error("a request did not meet its receive");
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

void run(int argc, char** argv) {
    settings asked;
    asked.name = "matching";
    std::vector<unsigned> counts{1, 100, 1000, 4000};
    options app("Measures receives of a mailbox beside idle peers, and its end.", asked.name);
    app.add("--peers", counts, "numbers of peers").between(1, 100'000).separated_by(',').show_default();
    app.add("--json", asked.json, "a file for the results; - for standard output");
    if (!app.parse(argc, argv)) return;
    asked.cpus = pingpong::usable_cpus();
    report out(asked, {{"", 13},
                       {"recv(tag, any) begins", 21},
                       {"any_tag of each: met", 21},
                       {"behind 16,000: taken", 21},
                       {"destroyed, a message", 21},
                       {"a service's receive", 21}});
    out.section(
        "a mailbox with so many peers; a service beside another one that has so many requests stored");
    for (const rc::peer_id peers : counts) {
        const figures f = measure(peers);
        out.row({std::to_string(peers) + " peers", time_text(f.any_source), time_text(f.one_of_each),
                 time_text(f.behind), time_text(f.destroyed)},
                {{"test", "peers"},
                 {"peers", peers},
                 {"any_source_ns", rounded(f.any_source)},
                 {"one_of_each_ns", rounded(f.one_of_each)},
                 {"behind_ns", rounded(f.behind)},
                 {"destroyed_ns", rounded(f.destroyed)}});
    }
    for (const std::size_t stored : {std::size_t{0}, std::size_t{16384}}) {
        const double took = beside_a_saturated_service(stored);
        out.row({std::to_string(stored) + " stored", "", "", "", "", time_text(took)},
                {{"test", "service"}, {"stored", stored}, {"receive_ns", rounded(took)}});
    }
    out.finish();
}

}  // namespace

int main(int argc, char** argv) { return bench::run_program("matching", argc, argv, run); }
