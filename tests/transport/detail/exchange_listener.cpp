#include <rdmacoro/transport/detail/exchange_listener.hpp>

#include <rdmacoro/transport/detail/connect_info_exchange.hpp>

#include <rdmacoro/coro/sleep_for.hpp>

#include "support/catch.hpp"
#include "support/run.hpp"

#include <cerrno>
#include <string>
#include <vector>

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

namespace test_transport_detail_exchange_listener {

using namespace rdmacoro;
using namespace rdmacoro::test;

namespace {

detail::inet_endpoint on_loopback() {
    const auto any = detail::inet_address::parse("net", "127.0.0.1:0", "");
    return detail::inet_resolved::ask(any, AI_NUMERICHOST).endpoints.at(0);
}

/// Closes its descriptors.
struct accepted {
    std::vector<int> fds;
    ~accepted() {
        for (const int fd : fds) ::close(fd);
    }
    static void add(void* self, int fd) noexcept { static_cast<accepted*>(self)->fds.push_back(fd); }
};

}  // namespace

TEST_CASE("a listener hands over each connection that is made to its address") {
    scheduler on{impatient{}};
    detail::polled_watcher watching;
    accepted came;
    accepted made;
    detail::exchange_listener listening(on, watching, &came, &accepted::add);
    REQUIRE(listening.listen(on_loopback(), 8) == nullptr);
    CHECK(listening.address().bytes != 0);
    for (std::size_t n = 1; n <= 3; ++n) {
        int refused = -1;
        made.fds.push_back(detail::connect_for_exchange(listening.address(), refused));
        REQUIRE(made.fds.back() >= 0);
        for (int i = 0; i < 1'000'000 && came.fds.size() < n; ++i) watching.look();
        CHECK(came.fds.size() == n);
    }
}

TEST_CASE("a listener on an address in use fails, and says at which step") {
    scheduler on{impatient{}};
    detail::polled_watcher watching;
    accepted none;
    detail::exchange_listener first(on, watching, &none, &accepted::add);
    REQUIRE(first.listen(on_loopback(), 8) == nullptr);
    detail::exchange_listener second(on, watching, &none, &accepted::add);
    const char* const step = second.listen(first.address(), 8);
    const int why = errno;
    REQUIRE(step != nullptr);
    CHECK(std::string(step) == "bind");
    CHECK(why == EADDRINUSE);
}

TEST_CASE("a listener that is destroyed is not called any more, and its address is free") {
    scheduler on{impatient{}};
    detail::polled_watcher watching;
    accepted none;
    detail::inet_endpoint at;
    {
        detail::exchange_listener gone(on, watching, &none, &accepted::add);
        REQUIRE(gone.listen(on_loopback(), 8) == nullptr);
        at = gone.address();
    }
    watching.look();
    detail::exchange_listener next(on, watching, &none, &accepted::add);
    CHECK(next.listen(at, 8) == nullptr);
}

namespace {

/// This process can open nothing more, until it goes.
class no_descriptors {
public:
    no_descriptors() {
        REQUIRE(::getrlimit(RLIMIT_NOFILE, &before_) == 0);
        const int lowest = ::fcntl(0, F_DUPFD_CLOEXEC, 0);
        REQUIRE(lowest >= 0);
        ::close(lowest);
        rlimit none = before_;
        none.rlim_cur = static_cast<rlim_t>(lowest);
        REQUIRE(::setrlimit(RLIMIT_NOFILE, &none) == 0);
    }
    no_descriptors(const no_descriptors&) = delete;
    no_descriptors& operator=(const no_descriptors&) = delete;
    ~no_descriptors() { ::setrlimit(RLIMIT_NOFILE, &before_); }

private:
    rlimit before_{};
};

task<> pass(duration time) { co_await sleep_for(time); }

}  // namespace

TEST_CASE("a listener out of descriptors costs a look nothing, and goes on when there is one") {
#if defined(__has_feature)
#if __has_feature(undefined_behavior_sanitizer)
    SKIP_TEST("UndefinedBehaviorSanitizer looks at memory through descriptors of its own");
#endif
#endif
    virtual_time with;
    detail::polled_watcher watching;
    accepted came;
    accepted made;
    detail::exchange_listener listening(with.on, watching, &came, &accepted::add);
    REQUIRE(listening.listen(on_loopback(), 8) == nullptr);
    int refused = -1;
    made.fds.push_back(detail::connect_for_exchange(listening.address(), refused));
    REQUIRE(made.fds.back() >= 0);
    const auto looks_that_called = [&] {
        int calls = 0;
        for (int i = 0; i < 1000; ++i) calls += watching.look() ? 1 : 0;
        return calls;
    };
    {
        const no_descriptors out;
        for (int i = 0; i < 1'000'000 && !watching.look(); ++i) {}
        CHECK(looks_that_called() == 0);
        // One call for each pause.
        for (int n = 0; n < 5; ++n) {
            with.run(pass(detail::exchange_listener::pause));
            CHECK(looks_that_called() == 1);
        }
        CHECK(came.fds.empty());
    }
    with.run(pass(detail::exchange_listener::pause));
    CHECK(looks_that_called() == 1);
    CHECK(came.fds.size() == 1);
    // From now on it accepts at once.
    made.fds.push_back(detail::connect_for_exchange(listening.address(), refused));
    for (int i = 0; i < 1'000'000 && came.fds.size() < 2; ++i) watching.look();
    CHECK(came.fds.size() == 2);
}

TEST_CASE("a listener that was closed refuses connections, and those that wait are over") {
    virtual_time with;
    detail::polled_watcher watching;
    accepted came;
    accepted made;
    detail::exchange_listener listening(with.on, watching, &came, &accepted::add);
    REQUIRE(listening.listen(on_loopback(), 8) == nullptr);
    const auto at = listening.address();
    int refused = -1;
    made.fds.push_back(detail::connect_for_exchange(at, refused));  // is not accepted any more
    REQUIRE(made.fds.back() >= 0);
    listening.close();
    for (int i = 0; i < 1000; ++i) CHECK_FALSE(watching.look());
    CHECK(came.fds.empty());
    const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    REQUIRE(fd >= 0);
    made.fds.push_back(fd);
    CHECK(::connect(fd, at.get(), at.bytes) != 0);
    CHECK(errno == ECONNREFUSED);
    char byte = 0;
    CHECK(::recv(made.fds.front(), &byte, 1, 0) <= 0);
    listening.close();  // once more is no harm
}

}  // namespace test_transport_detail_exchange_listener
