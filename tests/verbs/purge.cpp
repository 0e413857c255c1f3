#include "verbs/between.hpp"
#include "verbs/pair.hpp"
#include "verbs/stranger.hpp"

#include "support/catch.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <deque>

namespace test_verbs_purge {

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

namespace {

/// A device that takes slots from the shared receive queue in advance, and reports when a queue pair has given the last of them back.
/// The devices in software do not: the report is made of another one, of a receive queue that runs short, which they have.
class last_receive_device {
public:
    last_receive_device() {
        between::device = [](ibv_device_attr& attributes) {
            attributes.vendor_id = attributes.vendor_part_id = 0x1234;
        };
        between::event = [](ibv_async_event& event) {
            if (event.event_type != IBV_EVENT_SRQ_LIMIT_REACHED || whose == nullptr) return;
            event.event_type = IBV_EVENT_QP_LAST_WQE_REACHED;
            event.element.qp = whose;
            ++reports;
        };
        between::destroying = [](const ibv_qp& one) {
            if (&one != whose) return;
            whose = nullptr;
            reports_before_the_end = reports;
        };
        whose = nullptr;
        reports = reports_before_the_end = 0;
    }

    /// The report of this queue pair comes with the next message for `other`, which has the same receive queue.
    static void report_with_next(const verbs_end& other) {
        ibv_srq_attr limit{};
        limit.srq_limit = 1000;  // more than are posted
        REQUIRE(::ibv_modify_srq(other.link->queue_pair()->srq, &limit, IBV_SRQ_LIMIT) == 0);
    }

    inline static ibv_qp* whose = nullptr;
    inline static int reports = 0;
    inline static int reports_before_the_end = 0;

private:
    between hooks_;
};

/// While one lives, the shared receive queue of `queue_pair` loses slots with each queue pair that is destroyed: an adapter had taken
/// them in advance. Here it loses as many of those that are posted next.
class losing_device {
public:
    losing_device(ibv_qp* queue_pair, unsigned each)
        : context_(*queue_pair->context), real_(context_.ops.post_srq_recv) {
        shared = queue_pair->srq;
        loss = each;
        to_lose = 0;
        post = real_;
        between::destroying = [](const ibv_qp& one) {
            if (one.srq == shared) to_lose += loss;
        };
        context_.ops.post_srq_recv = [](ibv_srq* to, ibv_recv_wr* first, ibv_recv_wr** refused) {
            for (; to == shared && to_lose != 0 && first != nullptr; first = first->next) --to_lose;
            return first != nullptr ? post(to, first, refused) : 0;
        };
    }
    ~losing_device() {
        context_.ops.post_srq_recv = real_;
        between::destroying = nullptr;
    }
    losing_device(const losing_device&) = delete;
    losing_device& operator=(const losing_device&) = delete;

    inline static unsigned to_lose = 0;

private:
    inline static ibv_srq* shared = nullptr;
    inline static unsigned loss = 0;
    inline static int (*post)(ibv_srq*, ibv_recv_wr*, ibv_recv_wr**) = nullptr;

    ibv_context& context_;
    int (*real_)(ibv_srq*, ibv_recv_wr*, ibv_recv_wr**);
};

/// So that only the server waits for reports.
verbs_options without_sharing(verbs_options o) {
    o.share_receives = false;
    return o;
}

}  // namespace

TEST_CASE("a queue pair outlives the report that the device is done with its receives, and loses no slot") {
    FOR_EACH_VERBS_DEVICE_BUT_IWARP(way);
    if (!way.rxe) SKIP_TEST("a stand-in for an adapter's report, made of rxe's events: adapters make theirs");
    const last_receive_device device;
    verbs_world w(without_sharing(way.options), way.options);
    verbs_end a;
    verbs_end b;
    verbs_end c;
    verbs_end d;
    w.link(a, b);
    w.link(c, d);
    for (std::uint64_t n = 0; n < 20; ++n) post_for_sure(w, c, n);
    ibv_qp* const victim = d.link->queue_pair();
    device.whose = victim;
    d.link.reset();
    c.link.reset();
    w.until([&] { return w.client.connections() == 1; });
    w.turns(100);
    CHECK(device.whose == victim);  // it is still there: the device has not said that it was done
    CHECK(w.server.connections() == 2);
    device.report_with_next(b);
    const auto before = b.sink.count;
    post_for_sure(w, a, 1);
    w.until([&] { return w.server.connections() == 1; });
    CHECK(device.reports_before_the_end == 1);
    CHECK(w.server.counts().late_closes == 0);
    CHECK(w.server.counts().lost_receives == 0);
    w.until([&] { return b.sink.count == before + 1; });
}

TEST_CASE("the queue pair of a client that has not finished connecting by TCP outlives that report, too") {
    FOR_EACH_VERBS_DEVICE_BUT_IWARP(way);
    if (!way.rxe) SKIP_TEST("a stand-in for an adapter's report, made of rxe's events: adapters make theirs");
    const last_receive_device device;
    const verbs_options o = connecting_by(way.options, verbs_connect::tcp);
    verbs_world w(without_sharing(o), o);
    verbs_end a;
    verbs_end b;
    w.link(a, b);
    // The client's queue pair would send to that of the server, which is ready to receive.
    static bool ready = false;
    static bool ended = false;
    ready = ended = false;
    between::created = [](const ibv_qp& made) {
        if (made.srq != nullptr) last_receive_device::whose = const_cast<ibv_qp*>(&made);
    };
    between::modifying = [](const ibv_qp& of, ibv_qp_attr& wanted, int) {
        ready |= &of == last_receive_device::whose && wanted.qp_state == IBV_QPS_RTS;
        ended |= &of == last_receive_device::whose && wanted.qp_state == IBV_QPS_ERR;
        return 0;
    };
    const verbs_listener listening = w.on.run(w.server.listen("127.0.0.1:0"));
    {
        ibv_qp_attr now{};
        ibv_qp_init_attr made{};
        REQUIRE(::ibv_query_qp(b.link->queue_pair(), &now, IBV_QP_AV, &made) == 0);
        const stranger client(listening.address());
        client.send_connect_info(now.ah_attr.grh.dgid);
        w.until([] { return ready; });
    }
    ibv_qp* const victim = last_receive_device::whose;
    w.until([] { return ended; });
    w.turns(100);
    CHECK(device.whose == victim);  // it is still there: the device has not said that it was done
    CHECK(w.server.connections() == 2);
    device.report_with_next(b);
    const auto before = b.sink.count;
    post_for_sure(w, a, 1);
    w.until([&] { return w.server.connections() == 1; });
    CHECK(device.reports_before_the_end == 1);
    CHECK(w.server.counts().late_closes == 0);
    CHECK(w.server.counts().lost_receives == 0);
    w.until([&] { return b.sink.count == before + 1; });
}

TEST_CASE("slots that a device has not given back in time are replaced, and counted") {
    FOR_EACH_VERBS_DEVICE_BUT_IWARP(way);
    if (!way.rxe)
        SKIP_TEST("a stand-in for an adapter that makes no report, on rxe: adapters give slots back");
    const last_receive_device reports;
    verbs_world w(without_sharing(way.options), way.options);
    verbs_end a;
    verbs_end b;
    w.link(a, b);
    const losing_device device(b.link->queue_pair(), way.options.credits);
    constexpr unsigned rounds = 2;
    for (unsigned n = 0; n < rounds; ++n) {
        verbs_end c;
        verbs_end d;
        w.link(c, d);
        c.link.reset();
        d.link.reset();
        w.until([&] { return w.client.connections() == 1 && w.server.connections() == 1; });
    }
    CHECK(w.server.counts().late_closes == rounds);
    CHECK(w.server.counts().lost_receives == rounds * way.options.credits);
    b.sink.count_only = true;
    const auto before = b.sink.count;
    constexpr std::uint64_t all = 1000;
    for (std::uint64_t n = 0; n < all; ++n) post_for_sure(w, a, n);
    w.until([&] { return b.sink.count >= all + before; });
    CHECK(device.to_lose == 0);  // the slots were lost indeed
}

}  // namespace test_verbs_purge
