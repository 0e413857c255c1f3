#include <rdmacoro/transport/verbs_rc/receive_queue.hpp>

#include "verbs/pair.hpp"

#include "support/catch.hpp"

namespace test_transport_verbs_rc_receive_queue {

using namespace rdmacoro;
using namespace rdmacoro::test;
namespace verbs = rdmacoro::detail::verbs;

namespace {

/// A device with slots, a completion queue, and what a domain's receive queues have in common.
struct bench {
    explicit bench(const verbs_options& options)
        : device(options),
          slots(device.domain(), 4096),
          completions(::ibv_create_cq(device.context(), 64, nullptr, nullptr, 0)) {
        totals.most_lent = 2;
        REQUIRE(completions != nullptr);
        REQUIRE(slots.reserve(64) == 0);
    }
    /// Unused slots.
    [[nodiscard]] std::size_t unused() {
        verbs::slot_queue all;
        std::size_t count = 0;
        while (verbs::slot* s = slots.take()) {
            all.push_back(*s);
            ++count;
        }
        while (verbs::slot* s = all.pop_front()) slots.give(*s);
        return count;
    }

    verbs::device device;
    verbs::slot_pool slots;
    verbs::receive_totals totals;
    verbs::unique_queue completions;
};

}  // namespace

TEST_CASE(
    "slots of a shared receive queue are posted when they are wanted, and again when they are recycled") {
    FOR_EACH_VERBS_DEVICE(way);
    bench b(way.options);
    ibv_srq_init_attr wanted{};
    wanted.attr.max_wr = 32;
    wanted.attr.max_sge = 1;
    const verbs::unique_receive_queue shared(::ibv_create_srq(b.device.domain(), &wanted));
    REQUIRE(shared != nullptr);
    verbs::receive_queue queue(b.slots, b.totals);
    queue.open_shared(shared.get());
    REQUIRE(queue.add_wanted(20));
    const std::uint64_t before = queue.epoch();
    queue.post();
    CHECK(queue.pool().posted() == 20);
    CHECK(queue.epoch() == before + 1);
    CHECK(b.totals.posts == 2);  // sixteen at a time
    CHECK(b.unused() == 44);
    CHECK(b.totals.refills.empty());
}

TEST_CASE("a receive queue of one link takes all of its slots back when its queue pair is gone") {
    FOR_EACH_VERBS_DEVICE(way);
    bench b(way.options);
    ibv_qp_init_attr wanted{};
    wanted.send_cq = wanted.recv_cq = b.completions.get();
    wanted.cap.max_send_wr = 1;
    wanted.cap.max_recv_wr = 16;
    wanted.cap.max_send_sge = wanted.cap.max_recv_sge = 1;
    wanted.qp_type = IBV_QPT_RC;
    verbs::receive_queue queue(b.slots, b.totals);
    for (int again = 0; again < 2; ++again) {
        verbs::unique_queue_pair made(::ibv_create_qp(b.device.domain(), &wanted));
        REQUIRE(made != nullptr);
        REQUIRE(queue.add_wanted(16));
        queue.post();  // there is no queue pair yet
        CHECK(queue.pool().posted() == 0);
        queue.open_own(made.get());
        ibv_qp_attr first{};
        first.qp_state = IBV_QPS_INIT;
        first.port_num = 1;
        const int mask = b.device.iwarp()
                             ? IBV_QP_STATE
                             : IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
        REQUIRE(::ibv_modify_qp(made.get(), &first, mask) == 0);
        queue.post();
        CHECK(queue.pool().posted() == 16);
        CHECK(b.unused() == 48);
        made.reset();
        queue.close_own();
        queue.remove_wanted(16);
        queue.withdraw();
        CHECK(queue.pool().posted() == 0);
        CHECK(queue.pool().queued() == 0);
        CHECK(b.unused() == 64);
    }
}

}  // namespace test_transport_verbs_rc_receive_queue
