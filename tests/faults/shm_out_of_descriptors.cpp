// A listener over shared memory whose process has no descriptors left, and what its clients are told.

#include <rdmacoro/messaging/messaging.hpp>
#include <rdmacoro/transport/shm.hpp>

#include "support/catch.hpp"
#include "support/child_process.hpp"
#include "support/counting_new.hpp"
#include "support/shm_pair.hpp"

#include <stdexcept>
#include <string>

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

namespace test_faults_shm_out_of_descriptors {

using namespace rdmacoro;
using namespace rdmacoro::test;
using namespace std::chrono_literals;

namespace {

/// Listens with `spare` descriptors left, and says so on `listening`.
void serve(const std::string& address, int listening, int spare) {
    scheduler on;
    shm::domain domain(on);
    on.run([](shm::domain& in, std::string where, int say, int left) -> task<> {
        auto here = co_await listen<shm>(in, where);
        // The lowest free number is the next one that the kernel gives; nothing above it is open.
        const int lowest = ::fcntl(say, F_DUPFD_CLOEXEC, 0);
        ::close(lowest);
        rlimit limit{};
        if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) throw std::runtime_error("getrlimit");
        limit.rlim_cur = static_cast<rlim_t>(lowest + left);
        if (::setrlimit(RLIMIT_NOFILE, &limit) != 0) throw std::runtime_error("setrlimit");
        if (::write(say, "l", 1) != 1) throw std::runtime_error("write");
        for (;;) static_cast<void>(co_await as_result(here.accept()));
    }(domain, address, listening, spare));
}

struct answer {
    std::error_code code;
    std::string text;
};

/// The answer to a client of a listener with so many spare descriptors.
answer connect_to_one_with(int spare) {
    int listening[2];
    if (::pipe2(listening, O_CLOEXEC) != 0) throw std::runtime_error("pipe");
    child_process server([&](const std::string& address) { serve(address, listening[1], spare); });
    const std::string address = shm_test_name();
    server.tell(address);
    ::close(listening[1]);
    char byte = 0;
    const bool listens = ::read(listening[0], &byte, 1) == 1;
    ::close(listening[0]);
    if (!listens) throw std::runtime_error("the server does not listen");
    scheduler on;
    shm_options options;
    options.handshake_limit = 1s;
    shm::domain domain(on, options);
    return on.run([](shm::domain& in, std::string where) -> task<answer> {
        try {
            auto end = co_await connect<shm>(in, where);
            co_return answer{};
        } catch (const error& refused) {
            co_return answer{refused.code(), refused.what()};
        }
    }(domain, address));
}

}  // namespace

TEST_CASE("a listener out of descriptors says so to its clients, and calls none of them a violator") {
    // UndefinedBehaviorSanitizer makes a pipe to look at an object.
    if (!counts_allocations) SKIP_TEST("a sanitizer needs descriptors of its own");
    int told = 0;
    int opened = 0;
    for (int spare = 0; spare < 12 && opened == 0; ++spare) {
        const answer got = connect_to_one_with(spare);
        CAPTURE(spare, got.code.message(), got.text);
        if (!got.code) {
            ++opened;
        } else if (got.code == errc::no_resources) {
            ++told;
            CHECK_THAT(got.text, contains("ulimit -n") && contains("the listener's process"));
        } else {
            // It could not even accept the socket: the client waits for as long as it may.
            CHECK(got.code == errc::timed_out);
        }
    }
    CHECK(told > 0);
    CHECK(opened == 1);
}

}  // namespace test_faults_shm_out_of_descriptors
