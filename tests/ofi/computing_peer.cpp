// A peer that computes for long makes no progress where its provider needs its calls for that: it is not lost.

#include <rdmacoro/transport/ofi.hpp>

#include "ofi/pair.hpp"

#include "support/child_process.hpp"
#include "support/pattern.hpp"

#include <chrono>
#include <stdexcept>
#include <string>
#include <thread>

namespace test_ofi_computing_peer {

using namespace rdmacoro;
using namespace rdmacoro::test;
using namespace std::chrono_literals;

namespace {

constexpr std::uint64_t messages = 20;

ofi_options watched(const std::string& provider) {
    ofi_options o = ofi_here(provider);
    o.peer_timeout = 2s;
    return o;
}

task<> connect_to(ofi_any_domain& by, ofi_end& end, std::string address) {
    end.link = std::make_unique<ofi_recorded_link>(co_await by.connect(address), end.sink);
}

/// Takes one message, then nothing for more than `peer_timeout`, then everything.
void compute(const std::string& provider, const std::string& address) {
    scheduler on{impatient{}};
    ofi_any_domain domain(on, watched(provider));
    ofi_end end;
    on.run(connect_to(domain, end, address));
    on.run_until([&] { return end.sink.count != 0; });
    std::this_thread::sleep_for(2500ms);  // no turn of the scheduler
    recording_completion none;
    on.run_until([&] { return end.link->post(header_of(1), {}, none) == post_result::done; });
    on.run_until([&] { return end.sink.count == messages || end.sink.downs != 0; });
    if (end.sink.count != messages) throw std::runtime_error("lost");
    on.run_until([&] { return end.link->post(header_of(2), {}, none) == post_result::done; });
    on.run_until([&] { return end.sink.downs != 0; });
}

task<ofi_connection> accept_one(ofi_any_domain& domain, child_process& child) {
    ofi_listener listening = co_await domain.listen("127.0.0.1:0");
    child.tell(listening.address());
    co_return co_await listening.accept();
}

}  // namespace

TEST_CASE("a peer that computes for longer than a silent host may is not lost, and takes then what was sent "
          "meanwhile") {
    const std::string provider =
        GENERATE(as<std::string>{}, "gni", "cxi", "efa", "tcp", "udp", "shm", "sockets");
    CAPTURE(provider);
    child_process child([provider](const std::string& address) { compute(provider, address); });
    scheduler on{impatient{}};
    ofi_any_domain domain(on, watched(provider));
    ofi_end end;
    end.link = std::make_unique<ofi_recorded_link>(on.run(accept_one(domain, child)), end.sink);
    const auto data = pattern(3000);
    std::uint64_t sent = 0;
    on.run_until([&] {
        recording_completion none;
        if (sent < messages &&
            end.link->post(header_of(sent), const_buffers(data), none) == post_result::done)
            ++sent;
        return end.sink.count != 0 || end.sink.downs != 0;
    });
    CHECK(end.sink.downs == 0);
    on.run_until([&] { return end.sink.count == 2 || end.sink.downs != 0; });
    CHECK(end.sink.downs == 0);
    CHECK(sent == messages);
    end.link.reset();
    CHECK(child.wait() == 0);
    on.run_until([&] { return domain.connections() == 0; });
}

}  // namespace test_ofi_computing_peer
