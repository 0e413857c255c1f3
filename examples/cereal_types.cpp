// cereal_types: arguments of calls that have functions for the library cereal, and no public members.
#include <rdmacoro/adapters/cereal.hpp>
#include <rdmacoro/rdmacoro.hpp>
#include <rdmacoro/service/calls.hpp>

#include <cereal/types/string.hpp>
#include <cereal/types/vector.hpp>

#include <iostream>

namespace rc = rdmacoro;

/// As a program has it that keeps its reports in files by cereal.
class report {
public:
    report() = default;
    report(std::string station, std::vector<int> values)
        : station_(std::move(station)), values_(std::move(values)) {}
    [[nodiscard]] const std::string& station() const { return station_; }
    [[nodiscard]] const std::vector<int>& values() const { return values_; }

private:
    friend class cereal::access;
    template <class Archive>
    void serialize(Archive& archive) {
        archive(station_, values_);
    }
    std::string station_;
    std::vector<int> values_;
};

struct reports {
    static constexpr rc::method<"reports.worth", int(report)> worth{};
};

rc::task<> serve(rc::endpoint<rc::shm> peer) {
    rc::service office;
    office.on(reports::worth, [](rc::call_context&, report got) -> rc::task<int> {
        int sum = 0;
        for (const int one : got.values()) sum += one;
        std::cout << got.station() << ": " << got.values().size() << " values";
        co_return sum;
    });
    rc::calls served(peer, office);
    static_cast<void>(
        co_await rc::as_result(peer.recv_lent(rc::tag_match(0, 1ULL << 63))));  // until the client closes
    co_await served.drain();
}

rc::task<> both() {
    auto listener = co_await rc::listen<rc::shm>("shm://cereal");
    rc::task_group server;
    auto accepting = rc::start(listener.accept());
    auto client = co_await rc::connect<rc::shm>(listener.address());
    server.spawn(serve, co_await accepting);
    {
        rc::calls peer(client);
        const report made("north", {1, 2, 3});
        const int worth = co_await peer.call(reports::worth, made);
        std::cout << ", worth " << worth << '\n';
    }
    co_await client.close();
    co_await server.join();
}

int main() { rc::scheduler{}.run(both()); }
