#include <rdmacoro/transport/detail/exchange_listener.hpp>

#include <rdmacoro/transport/detail/connect_info_exchange.hpp>

#include "support/catch.hpp"

#include <cerrno>
#include <string>
#include <vector>

#include <unistd.h>

using namespace rdmacoro;

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
    detail::polled_watcher watching;
    accepted came;
    accepted made;
    detail::exchange_listener listening(watching, &came, &accepted::add);
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
    detail::polled_watcher watching;
    accepted none;
    detail::exchange_listener first(watching, &none, &accepted::add);
    REQUIRE(first.listen(on_loopback(), 8) == nullptr);
    detail::exchange_listener second(watching, &none, &accepted::add);
    const char* const step = second.listen(first.address(), 8);
    const int why = errno;
    REQUIRE(step != nullptr);
    CHECK(std::string(step) == "bind");
    CHECK(why == EADDRINUSE);
}

TEST_CASE("a listener that is destroyed is not called any more, and its address is free") {
    detail::polled_watcher watching;
    accepted none;
    detail::inet_endpoint at;
    {
        detail::exchange_listener gone(watching, &none, &accepted::add);
        REQUIRE(gone.listen(on_loopback(), 8) == nullptr);
        at = gone.address();
    }
    watching.look();
    detail::exchange_listener next(watching, &none, &accepted::add);
    CHECK(next.listen(at, 8) == nullptr);
}
