#include <rdmacoro/transport/detail/host_arrivals.hpp>

#include "support/catch.hpp"
#include "support/child_process.hpp"
#include "support/held.hpp"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

namespace test_transport_detail_host_arrivals {

using rdmacoro::detail::host_arrivals;

namespace {

using numbers = std::vector<std::uint32_t>;

/// No other job of this machine has it.
std::string fresh_job() {
    static std::atomic<int> jobs{0};
    return "test-" + std::to_string(::getpid()) + '-' + std::to_string(++jobs);
}

}  // namespace

TEST_CASE("a rank sees those that came before it, and those that came after, and no others") {
    const std::string job = fresh_job();
    const numbers here{1, 2, 5, 9};
    host_arrivals first(job, 2, here);
    CHECK(first.unseen() == numbers{1, 5, 9});
    host_arrivals second(job, 9, here);
    CHECK(second.unseen() == numbers{1, 5});
    CHECK(first.unseen() == numbers{1, 5});
    {
        // One that comes and goes was there.
        const host_arrivals third(job, 1, here);
    }
    CHECK(first.unseen() == numbers{5});
    CHECK(second.unseen() == numbers{5});
    host_arrivals last(job, 5, here);
    CHECK(last.unseen() == numbers{1});  // it had gone
    CHECK(first.unseen().empty());
}

TEST_CASE("ranks of another job, and of other hosts, are not seen") {
    const std::string job = fresh_job();
    const numbers here{0, 1};
    host_arrivals one(job, 0, here);
    const host_arrivals stranger(fresh_job(), 1, here);
    const host_arrivals elsewhere(job, 7, {6, 7});
    CHECK(one.unseen() == numbers{1});
    // A second process of one rank has no mark, and hides none.
    const host_arrivals twice(job, 0, here);
    const host_arrivals other(job, 1, here);
    CHECK(one.unseen().empty());
}

TEST_CASE("a rank whose knock is taken before it says its number is seen when it has said it") {
    const std::string job = fresh_job();
    const std::size_t open = rdmacoro::test::open_descriptors();
    {
        host_arrivals first(job, 0, {0, 1, 2});
        const std::string name =
            "rdmacoro-" + std::to_string(::getuid()) + "-0-" + std::to_string(job.size()) + '-' + job;
        sockaddr_un mark{};
        mark.sun_family = AF_UNIX;
        std::copy(name.begin(), name.end(), mark.sun_path + 1);
        const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
        int knocks[4];
        for (int& knock : knocks) {
            knock = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
            REQUIRE(::connect(knock, reinterpret_cast<const sockaddr*>(&mark), length) == 0);
        }
        CHECK(first.unseen() == numbers{1, 2});
        const std::uint32_t rank = 1;
        CHECK(::send(knocks[0], &rank, sizeof rank, MSG_NOSIGNAL) == sizeof rank);
        ::close(knocks[0]);
        CHECK(first.unseen() == numbers{2});
        // Of those that say nothing it keeps no more than there are ranks.
        char none = 0;
        CHECK(::recv(knocks[3], &none, 1, MSG_DONTWAIT) == 0);
        for (int n = 1; n < 4; ++n) ::close(knocks[n]);
        CHECK(first.unseen() == numbers{2});
    }
    CHECK(rdmacoro::test::open_descriptors() == open);
}

TEST_CASE("a child made by fork that destroys its copy takes its parent's mark from no rank") {
    const std::string job = fresh_job();
    const numbers here{0, 1};
    auto first = std::make_unique<host_arrivals>(job, 0, here);
    rdmacoro::test::child_process child([&](const std::string&) { first.reset(); });
    child.tell("go");
    REQUIRE(child.wait() == 0);
    host_arrivals second(job, 1, here);
    CHECK(second.unseen().empty());
    CHECK(first->unseen().empty());
}

TEST_CASE("names of jobs may be of any length, and many ranks may be on a host") {
    const std::string job = fresh_job() + std::string(300, 'x') + fresh_job();
    numbers here;
    for (std::uint32_t rank = 0; rank < 100; ++rank) here.push_back(rank);
    std::vector<std::unique_ptr<host_arrivals>> all;
    for (const std::uint32_t rank : here) all.push_back(std::make_unique<host_arrivals>(job, rank, here));
    for (const auto& one : all) CHECK(one->unseen().empty());
}

}  // namespace test_transport_detail_host_arrivals
