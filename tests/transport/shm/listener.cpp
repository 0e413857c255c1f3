#include <rdmacoro/transport/shm/listener.hpp>

#include <rdmacoro/coro/coro.hpp>
#include <rdmacoro/transport/detail/close_elsewhere.hpp>
#include <rdmacoro/transport/shm.hpp>

#include "support/catch.hpp"
#include "support/child_process.hpp"
#include "support/lingering_socket.hpp"
#include "support/shm_pair.hpp"
#include "support/user_namespace.hpp"

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

namespace test_transport_shm_listener {

using namespace rdmacoro;
using namespace rdmacoro::test;
using namespace std::chrono_literals;

TEST_CASE("connections are accepted in the order in which they were made") {
    scheduler on{impatient{}};
    shm::domain near(on);
    shm::domain far(on);
    on.run([](shm::domain& from, shm::domain& at) -> task<> {
        auto listening = co_await at.listen(shm_test_name());
        std::vector<shm::connection> made;
        std::vector<shm::connection> accepted;
        for (int n = 0; n < 3; ++n) made.push_back(co_await from.connect(listening.address()));
        for (int n = 0; n < 3; ++n) accepted.push_back(co_await listening.accept());
        for (int n = 0; n < 3; ++n) {
            const auto number = static_cast<std::size_t>(n);
            const detail::shm::channel_ref one = made[number].release();
            const detail::shm::channel_ref other = accepted[number].release();
            one->out_words->region_in_use = 100 + number;  // seen by the other end of the same segment alone
            CHECK(other->in.region_in_use() == 100 + number);
        }
    }(near, far));
}

TEST_CASE("accepts that wait are served in order, and one that is canceled takes no connection with it") {
    scheduler on{impatient{}};
    shm::domain near(on);
    shm::domain far(on);
    on.run([](shm::domain& from, shm::domain& at) -> task<> {
        auto listening = co_await at.listen(shm_test_name());
        local_stop_source stop;
        auto canceled = start(as_result(with_stop(listening.accept(), stop.get_token())));
        auto waiting = start(listening.accept());
        stop.request_stop();
        const auto ended = co_await canceled;
        CHECK(ended.error() == errc::canceled);
        auto made = co_await from.connect(listening.address());
        auto accepted = co_await waiting;
        CHECK(accepted.release());
    }(near, far));
}

TEST_CASE("a connect waits while too many sockets are being closed by threads of their own") {
    scheduler on{impatient{}};
    shm::domain near(on);
    shm::domain far(on);
    on.run([](shm::domain& from, shm::domain& at) -> task<> {
        auto listening = co_await at.listen(shm_test_name());
        std::vector<detail::shm::unique_fd> kept;
        for (std::size_t n = 0; n < detail::most_closing; ++n)
            detail::close_elsewhere(lingering_socket(kept).release());
        const detail::shm::socket_name name(listening.address());
        detail::shm::connector early(from, name);
        CHECK_FALSE(early.try_connect());
        CHECK(detail::closing_elsewhere() == detail::most_closing);
        CHECK_THROWS_WITH(early.give_up(), contains("of other users"));
        auto accepting = start(listening.accept());
        auto made = co_await timeout(from.connect(listening.address()), 20s);
        auto accepted = co_await accepting;
        CHECK(detail::closing_elsewhere() < detail::most_closing);
        while (detail::closing_elsewhere() != 0) co_await sleep_for(2ms);  // they linger for seconds
    }(near, far));
}

TEST_CASE(
    "a name that is taken is tried again for a moment, as that of a process that was killed comes free") {
    scheduler on{impatient{}};
    shm::domain here(on);
    on.run([](shm::domain& at) -> task<> {
        const std::string name = shm_test_name();
        std::optional<shm::listener> former(co_await at.listen(name));
        task_group beside;
        beside.spawn([&former]() -> task<> {
            co_await sleep_for(20ms);
            former.reset();
        });
        const auto taken = co_await as_result(at.listen(name));
        CHECK(!taken.error());
        co_await beside.join();
    }(here));
}

TEST_CASE("a listener that goes ends accepts that wait, drops connections not accepted, and frees its name") {
    scheduler on{impatient{}};
    shm::domain near(on);
    shm::domain far(on);
    on.run([](shm::domain& from, shm::domain& at) -> task<> {
        const std::string name = shm_test_name();
        shm::connection unclaimed;
        {
            auto listening = co_await at.listen(name);
            const auto twice = co_await as_result(at.listen(name));
            CHECK(twice.error() == errc::address_in_use);
            unclaimed = co_await from.connect(name);
        }
        detail::shm::channel_ref made = unclaimed.release();
        detail::shm::readable_operation end(from, made->socket.get(), 10s);
        co_await end;  // the other end was closed
        const auto nobody = co_await as_result(from.connect(name));
        CHECK(nobody.error() == errc::connection_refused);
        auto again = co_await at.listen(name);
        auto waiting = start(as_result(again.accept()));
        again = co_await at.listen(shm_test_name());  // the old one goes
        const auto ended = co_await waiting;
        CHECK(ended.error() == errc::closed);
    }(near, far));
}

TEST_CASE("no link is made where a user namespace shows other users under this user's number") {
    child_process child([](const std::string& name) {
        if (!enter_user_namespace_as(65534)) ::_exit(77);
        scheduler on{impatient{}};
        shm::domain domain(on);
        on.run([](shm::domain& d, const std::string& where) -> task<> {
            auto listening = co_await d.listen(where);
            std::string why;
            try {
                static_cast<void>(co_await d.connect(where));
            } catch (const error& refused) {
                if (refused.code() == errc::permission_denied) why = refused.what();
            }
            if (why.find("user namespace") == std::string::npos) ::_exit(3);
            // One that does not look first is refused by the listener.
            const detail::shm::socket_name there(where);
            const detail::shm::unique_fd socket(
                ::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
            if (::connect(socket.get(), there.raw(), there.length()) != 0) ::_exit(4);
            detail::shm::readable_operation reply(d, socket.get(), 20s);
            co_await reply;
            try {
                static_cast<void>(detail::shm::receive_hello(socket.get()));
            } catch (const error& refused) {
                if (refused.code() == errc::permission_denied) co_return;
            }
            ::_exit(5);
        }(domain, name));
    });
    child.tell(shm_test_name());
    const int status = child.wait();
    REQUIRE(WIFEXITED(status));
    if (WEXITSTATUS(status) == 77) SKIP_TEST("this system gives no user namespace");
    CHECK(WEXITSTATUS(status) == 0);
}

TEST_CASE("waiting for a descriptor ends with its event, at its limit, or canceled") {
    scheduler on{impatient{}};
    shm::domain domain(on);
    detail::shm::unique_fd event(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
    on.run([](shm::domain& d, int fd) -> task<> {
        detail::shm::readable_operation late(d, fd, 1ms);
        const auto ended = co_await as_result(late);
        CHECK(ended.error() == errc::timed_out);
        const std::uint64_t one = 1;
        CHECK(::write(fd, &one, sizeof one) == sizeof one);
        detail::shm::readable_operation ready(d, fd, 1h);
        const auto came = co_await as_result(ready);
        CHECK_FALSE(came.error());
        detail::shm::readable_operation bad(d, -1, 1h);
        const auto none = co_await as_result(bad);
        CHECK(none.error());
    }(domain, event.get()));
}

}  // namespace test_transport_shm_listener
