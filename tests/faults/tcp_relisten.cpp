// A tcp server that is killed, and started again at once: the kernel ends the accept of its io_uring some milliseconds after the
// process was waited for, and until then the port is taken.

#include <rdmacoro/rdmacoro.hpp>
#include <rdmacoro/transport/tcp.hpp>

#include "support/catch.hpp"
#include "support/child_process.hpp"
#include "support/run.hpp"

#include <stdexcept>
#include <string>

#include <sys/wait.h>
#include <unistd.h>

namespace test_faults_tcp_relisten {

using namespace rdmacoro;
using namespace rdmacoro::test;
using namespace std::chrono_literals;

namespace {

/// Listens, says where, and waits to be killed with an accept under way in the kernel.
task<> serve(std::string where, int say) {
    const auto listening = co_await listen<tcp>(where);
    co_await sleep_for(5ms);  // the scheduler hands the accept to the kernel in one of its turns
    const std::string address = listening.address() + '\n';
    if (::write(say, address.data(), address.size()) != static_cast<ssize_t>(address.size()))
        throw std::runtime_error("write");
    co_await sleep_for(1h);
}

std::string read_line(int from) {
    std::string line;
    for (char c = 0; ::read(from, &c, 1) == 1 && c != '\n';) line += c;
    return line;
}

}  // namespace

TEST_CASE("a server that is killed and waited for leaves its port to one that starts at once") {
    for (int n = 0; n < 20; ++n) {
        int said[2];
        REQUIRE(::pipe(said) == 0);
        child_process server([&](const std::string& where) {
            ::close(said[0]);
            scheduler on;
            on.run(serve(where, said[1]));
        });
        ::close(said[1]);
        server.tell("127.0.0.1:0");
        const std::string address = read_line(said[0]);
        ::close(said[0]);
        REQUIRE_FALSE(address.empty());
        server.kill();
        const int status = server.wait();
        REQUIRE(WIFSIGNALED(status));

        scheduler on{impatient{}};
        const std::string again = on.run([](std::string where) -> task<std::string> {
            const auto listening = co_await listen<tcp>(where);
            co_return listening.address();
        }(address));
        CHECK(again == address);
    }
}

}  // namespace test_faults_tcp_relisten
