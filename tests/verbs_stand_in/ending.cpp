#include "support/verbs_stand_in/pair.hpp"

#include <rdmacoro/transport/bare_link.hpp>

#include "support/catch.hpp"

#include <array>
#include <memory>
#include <vector>

namespace test_verbs_stand_in_ending {

using namespace rdmacoro;
using namespace rdmacoro::test;

namespace stand_in = verbs_stand_in;

namespace {

using bare = bare_link<verbs_rc>;

/// The two ends of a link, and coroutines that put to the other domain's memory until they are told to stop.
class putting_link {
public:
    putting_link(stand_in::world& w, const remote_region& there) : there_(there) {
        stand_in::world::connected made = w.connect();
        client_ = std::make_unique<bare>(std::move(made.client));
        server_ = std::make_unique<bare>(std::move(made.server));
    }
    task<> put_until(const bool& stop, std::uint64_t& count) {
        const std::array<std::byte, 8> from{};
        while (!stop) {
            co_await client_->rdma_put(std::span<const std::byte>(from), there_);
            ++count;
        }
    }

private:
    remote_region there_;
    std::unique_ptr<bare> client_;
    std::unique_ptr<bare> server_;
};

}  // namespace

TEST_CASE("a link that failed goes down, and one that is closed is released, while others keep the "
          "completion queue "
          "full") {
    verbs_options o = stand_in::by_tcp();
    constexpr unsigned links = 16;
    constexpr unsigned puts = 24;
    o.completion_entries = (links + 2) * (o.send_depth + o.credits);
    stand_in::world w(o);
    std::vector<std::byte> memory(8);
    const region open = w.server.register_memory(memory, access_rights::all);
    stand_in::end a;
    stand_in::end b;
    stand_in::end c;
    stand_in::end d;
    w.link(a, b);
    w.link(c, d);
    std::vector<std::unique_ptr<putting_link>> loads;
    for (unsigned n = 0; n < links; ++n) loads.push_back(std::make_unique<putting_link>(w, open.remote()));
    w.on.run([](stand_in::world& in, auto& putting, stand_in::end& failing,
                stand_in::end& closing) -> task<> {
        task_group all;
        bool stop = false;
        std::uint64_t count = 0;
        for (auto& one : putting) {
            for (unsigned n = 0; n < puts; ++n)
                all.spawn([&one, &stop, &count] { return one->put_until(stop, count); });
        }
        while (count < 10'000) co_await yield();
        CHECK(stand_in::most_waiting() > 128);
        const std::uint64_t before = count;
        stand_in::fail(*failing.link->queue_pair(), stand_in::report::event);
        closing.link.reset();
        // Many times what the queue holds.
        while (count < before + 200'000 && (failing.sink.downs == 0 || in.client.connections() != links + 1))
            co_await yield();
        CHECK(failing.sink.downs == 1);
        CHECK(failing.sink.reason == errc::peer_lost);
        CHECK(in.client.connections() == links + 1);  // the one that failed is still owned
        stop = true;
        co_await all.join();
    }(w, loads, a, c));
}

}  // namespace test_verbs_stand_in_ending
