#include "../../tools/soaking/mishap.hpp"

#include "support/catch.hpp"

#include <chrono>
#include <string>
#include <vector>

namespace test_tools_mishap {

using soak::mishap;
using soak::treatment;

namespace {

/// A worker's line about worker 1, of a session that began then, as the overseer judges it; four workers, times in seconds.
class run {
public:
    std::vector<treatment> workers{4};
    bool disturbed = true;

    [[nodiscard]] bool is_fault(const char* kind, const char* transport, double began, double now) const {
        const auto count =
            mishap::time_point::duration(static_cast<mishap::time_point::rep>(began * 1e9)).count();
        const auto told = mishap::parse(std::string(kind) + " 1 " + transport + " " + std::to_string(count) +
                                        " some reason");
        REQUIRE(told.has_value());
        const double since = std::chrono::duration<double>(told->began.time_since_epoch()).count();
        const std::string fault = soak::judge(0, *told, since, workers, disturbed, now);
        INFO(fault);
        CHECK((fault.empty() || fault.find("worker 1 over " + std::string(transport)) != std::string::npos));
        return !fault.empty();
    }
};

}  // namespace

TEST_CASE("a line about a mishap is read as it was written and others are not") {
    const mishap::time_point began{mishap::time_point::duration(123456789012345)};
    for (const auto what : {mishap::kind::lost, mishap::kind::cut, mishap::kind::unanswered}) {
        const mishap told{what, 17, "tcp", began, "the peer was lost"};
        const auto read = mishap::parse(told.line());
        REQUIRE(read.has_value());
        CHECK(read->what == what);
        CHECK(read->peer == 17);
        CHECK(read->transport == "tcp");
        CHECK(read->began == began);
        CHECK(read->why == "the peer was lost");
    }
    CHECK(mishap::parse("lost 1 tcp 5").has_value());
    for (const char* text :
         {"", "lost", "lost 1 tcp", "lost 1 tcp why", "lost tcp 1 5", "found 1 tcp 5 why", "ready"}) {
        CAPTURE(text);
        CHECK_FALSE(mishap::parse(text).has_value());
    }
}

TEST_CASE("a lost peer is a fault unless it was killed after its session began") {
    run r;
    for (const char* transport : {"shm", "tcp", "ofi"}) {
        CAPTURE(transport);
        CHECK(r.is_fault("lost", transport, 10, 12));
    }
    r.workers[1].kill(20);
    for (const char* transport : {"shm", "tcp", "ofi"}) {
        CAPTURE(transport);
        CHECK_FALSE(r.is_fault("lost", transport, 10, 21));
        CHECK_FALSE(r.is_fault("lost", transport, 10, 200));   // noticed late, of that life all the same
        CHECK_FALSE(r.is_fault("lost", transport, 20.9, 22));  // noted late
        CHECK(r.is_fault("lost", transport, 21.1, 22));        // with its next life
        CHECK(r.is_fault("lost", transport, 40, 41));
    }
}

TEST_CASE("the death or the stop of a worker excuses the loss of another one over libfabric alone") {
    run r;
    r.workers[2].kill(20);
    CHECK(r.is_fault("lost", "shm", 10, 21));
    CHECK(r.is_fault("lost", "tcp", 10, 21));
    CHECK_FALSE(r.is_fault("lost", "ofi", 10, 21));
    CHECK(r.is_fault("lost", "ofi", 22, 23));  // in a session that began after that
    CHECK(r.is_fault("lost", "ofi", 10, 70));  // long after

    r = {};
    r.workers[3].stop(20);
    CHECK(r.is_fault("lost", "ofi", 10, 20.5));  // not for long yet
    CHECK_FALSE(r.is_fault("lost", "ofi", 10, 21.2));
    CHECK(r.is_fault("lost", "tcp", 10, 21.2));
    r.workers[3].let_go_on(22);
    CHECK_FALSE(r.is_fault("lost", "ofi", 10, 23));
    CHECK_FALSE(r.is_fault("lost", "ofi", 21, 23));
    CHECK(r.is_fault("lost", "ofi", 23.5, 24));
    r.workers[3].stop(30);
    r.workers[3].let_go_on(30.5);
    CHECK(r.is_fault("lost", "ofi", 29, 31));
    CHECK_FALSE(r.is_fault("lost", "ofi", 10, 31));  // for the longer one before
    r.workers[1].stop(40);
    CHECK(r.is_fault("lost", "shm", 39, 45));
    CHECK(r.is_fault("lost", "tcp", 39, 45));
}

TEST_CASE(
    "a round that is cut short and a connect without an answer are faults where no worker is disturbed") {
    run r;
    for (const char* kind : {"cut", "unanswered"}) {
        CAPTURE(kind);
        r.disturbed = true;
        CHECK_FALSE(r.is_fault(kind, "tcp", 10, 20));
        r.disturbed = false;
        CHECK(r.is_fault(kind, "tcp", 10, 20));
    }
}

}  // namespace test_tools_mishap
