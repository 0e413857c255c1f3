#include "verbs/between.hpp"
#include "verbs/pair.hpp"

#include "support/catch.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <deque>

using namespace rdmacoro;
using namespace rdmacoro::test;

// Adapters remove the completions of a queue pair that is destroyed, mlx5 for one. The devices in software do not; here one does.

namespace {

/// While one lives, the completion queue of `context` is as that of such an adapter.
class purging_device {
public:
    explicit purging_device(ibv_cq* queue)
        : queue_(*queue), context_(*queue->context), real_(context_.ops.poll_cq) {
        REQUIRE(one == nullptr);
        one = this;
        between::destroying = [](const ibv_qp& of) { one->purge(of); };
        context_.ops.poll_cq = [](ibv_cq* of, int most, ibv_wc* into) {
            REQUIRE(of == &one->queue_);
            one->collect();
            const int count = std::min(most, static_cast<int>(one->waiting_.size()));
            std::copy_n(one->waiting_.begin(), count, into);
            one->waiting_.erase(one->waiting_.begin(), one->waiting_.begin() + count);
            return count;
        };
    }
    ~purging_device() {
        context_.ops.poll_cq = real_;
        one = nullptr;
    }
    purging_device(const purging_device&) = delete;
    purging_device& operator=(const purging_device&) = delete;

    /// Until so many completions wait to be polled.
    void wait_for(std::size_t count) {
        const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(20);
        while (waiting_.size() < count && std::chrono::steady_clock::now() < limit) collect();
        REQUIRE(waiting_.size() == count);
    }
    void purge(const ibv_qp& of) {
        if (of.recv_cq != &queue_) return;
        collect();
        purged_ += std::erase_if(waiting_, [&](const ibv_wc& wc) { return wc.qp_num == of.qp_num; });
    }
    [[nodiscard]] std::size_t purged() const noexcept { return purged_; }

    inline static purging_device* one = nullptr;

private:
    void collect() {
        ibv_wc some[16];
        for (int got = 1; got > 0;) {
            got = real_(&queue_, 16, some);
            for (int i = 0; i < got; ++i) waiting_.push_back(some[i]);
        }
    }

    between hooks_;
    ibv_cq& queue_;
    ibv_context& context_;
    int (*real_)(ibv_cq*, int, ibv_wc*);
    std::deque<ibv_wc> waiting_;
    std::size_t purged_ = 0;
};

}  // namespace

TEST_CASE(
    "links that close under load lose no receive slot, even where their completions go with the queue pair") {
    FOR_EACH_VERBS_DEVICE_BUT_IWARP(way);
    verbs_world w(way.options);
    constexpr unsigned loads = 4;
    constexpr unsigned victims = 3;
    std::array<verbs_end, loads> a;
    std::array<verbs_end, loads> b;
    for (unsigned n = 0; n < loads; ++n) w.link(a[n], b[n]);
    std::array<verbs_connection, victims> closing;
    std::array<verbs_end, victims> senders;
    for (unsigned n = 0; n < victims; ++n) {
        auto made = w.connect();
        closing[n] = std::move(made.server);
        senders[n].link = std::make_unique<verbs_recorded_link>(std::move(made.client), senders[n].sink);
    }
    w.turns(200);
    purging_device device(b[0].link->queue_pair()->recv_cq);
    std::size_t sent = 0;
    const auto send = [&](verbs_end& from, unsigned count) {
        recording_completion none;
        for (unsigned n = 0; n < count; ++n) {
            REQUIRE(from.link->post(header_of(n), {}, none) == post_result::done);
            static_cast<void>(from.link->poll(1));  // hands it to the client's device
        }
        sent += count;
        device.wait_for(sent);
    };
    for (verbs_end& from : a) send(from, 50);
    for (verbs_end& from : senders) send(from, 30);
    for (verbs_connection& one : closing) one.reset();
    w.turns(3);  // the first polls of many completions
    for (verbs_end& one : senders) one.link.reset();
    for (unsigned n = 1; n < loads; ++n) {
        a[n].link.reset();
        b[n].link.reset();
    }
    w.until([&] { return w.client.connections() == 1 && w.server.connections() == 1; });
    CHECK(device.purged() == 0);
    b[0].sink.count_only = true;
    const auto before = b[0].sink.count;
    constexpr std::uint64_t all = 1000;
    for (std::uint64_t n = 0; n < all; ++n) post_for_sure(w, a[0], n);
    w.until([&] { return b[0].sink.count >= all + before; });
}
