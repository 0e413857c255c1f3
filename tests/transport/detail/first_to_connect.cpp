#include <rdmacoro/transport/detail/first_to_connect.hpp>

#include "support/catch.hpp"
#include "support/run.hpp"
#include "support/scripted_names.hpp"

#include <rdmacoro/coro/when_all.hpp>
#include <rdmacoro/transport/plain_stream.hpp>

#include <array>
#include <cstddef>
#include <string>
#include <vector>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#if RDMACORO_WITH_TCP
#include <rdmacoro/transport/bare_link.hpp>
#include <rdmacoro/transport/tcp.hpp>
#endif

namespace test_transport_detail_first_to_connect {

using namespace rdmacoro;
using namespace rdmacoro::test;
using namespace std::chrono_literals;

namespace {

/// 127.0.0.2, at a port where connecting never ends: what its queue holds is connected already, and nothing accepts it.
class silent_host {
public:
    explicit silent_host(const std::string& url) {
        sockaddr_in at{};
        at.sin_family = AF_INET;
        at.sin_addr.s_addr = htonl(INADDR_LOOPBACK + 1);
        at.sin_port = htons(static_cast<std::uint16_t>(std::stoul(url.substr(url.rfind(':') + 1))));
        const auto* const address = reinterpret_cast<const sockaddr*>(&at);
        const int listening = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        REQUIRE(::bind(listening, address, sizeof at) == 0);
        REQUIRE(::listen(listening, 0) == 0);
        open_.push_back(listening);
        for (int n = 0; n < 4; ++n) {
            open_.push_back(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
            static_cast<void>(::connect(open_.back(), address, sizeof at));
        }
    }
    silent_host(const silent_host&) = delete;
    silent_host& operator=(const silent_host&) = delete;
    ~silent_host() {
        for (const int one : open_) ::close(one);
    }

private:
    std::vector<int> open_;
};

std::string name_at(const std::string& url) { return "two.test" + url.substr(url.rfind(':')); }

struct tried {
    int value = 0;
    [[nodiscard]] bool connected() const noexcept { return value > 0; }
};

}  // namespace

TEST_CASE("a plain stream connects to a name of which one address does not answer") {
    scheduler().run([]() -> task<> {
        plain_listener listening = co_await listen_plain("127.0.0.1:0");
        const silent_host silent(listening.address());
        scripted_names names;
        names.set("two.test", {"127.0.0.2", "127.0.0.1"});
        const auto made = co_await as_result(timeout(connect_plain(name_at(listening.address())), 10s));
        CHECK(made);
    }());
}

#if RDMACORO_WITH_TCP
TEST_CASE("tcp connects to a name of which one address does not answer") {
    scheduler().run([]() -> task<> {
        auto listening = co_await listen<tcp>("tcp://127.0.0.1:0");
        const silent_host silent(listening.address());
        scripted_names names;
        names.set("two.test", {"127.0.0.2", "127.0.0.1"});
        task_group accepting;
        accepting.spawn([&]() -> task<> {
            auto end = co_await listening.accept();
            co_await end.close();
        });
        auto end = co_await timeout(connect<tcp>("tcp://" + name_at(listening.address())), 10s);
        co_await end.close();
        co_await accepting.join();
    }());
}
#endif

TEST_CASE("each address has its head start and the last failure is what is reported") {
    virtual_time().run([]() -> task<> {
        const std::vector<detail::inet_endpoint> all(3);
        std::size_t begun = 0;
        const auto fails = [&](const detail::inet_endpoint&) -> task<tried> {
            co_return tried{-static_cast<int>(++begun)};
        };
        const tried last = co_await detail::first_to_connect<tried>(all, fails);
        CHECK(last.value == -3);
        begun = 0;
        std::size_t canceled = 0;
        const auto first_waits = [&](const detail::inet_endpoint&) -> task<tried> {
            const int own = static_cast<int>(++begun);
            if (own == 1) {
                const auto slept = co_await as_result(sleep_for(1h));
                if (!slept) ++canceled;
            }
            co_return tried{own == 3 ? 3 : -own};
        };
        const tried third = co_await detail::first_to_connect<tried>(all, first_waits);
        CHECK(third.value == 3);
        CHECK(canceled == 1);
        const auto all_wait = [&](const detail::inet_endpoint&) -> task<tried> {
            co_await sleep_for(1h);
            co_return tried{1};
        };
        const auto stopped = co_await as_result(timeout(detail::first_to_connect<tried>(all, all_wait), 1ms));
        CHECK(stopped.error() == errc::timed_out);
    }());
}

}  // namespace test_transport_detail_first_to_connect
