#include "ofi/pair.hpp"

#include "support/child_process.hpp"

using namespace rdmacoro;
using namespace rdmacoro::test;

namespace {

/// Connects, sends ten messages, echoes what comes, and gets from the region that the first message names again and again.
void busy_child(const std::string& provider, const std::string& address) {
    scheduler on;
    ofi_any_domain domain(on, ofi_here(provider));
    ofi_end end;
    end.link = std::make_unique<ofi_recorded_link>(on.run(domain.connect(address)), end.sink);
    for (std::uint64_t n = 0; n < 10; ++n) {
        recording_completion none;
        on.run_until([&] { return end.link->post(header_of(n), {}, none) == post_result::done; });
    }
    on.run_until([&] { return end.sink.count == 1; });
    remote_region there;
    std::memcpy(&there, end.sink.messages.front().payload.data(), sizeof there);
    std::vector<std::byte> here(there.length);
    for (;;) {
        recording_completion got;
        if (end.link->get(there, here, got) != post_result::posted) return;
        on.run_until([&] { return got.calls != 0; });
    }
}

task<ofi_connection> accept_one(ofi_any_domain& domain, child_process& child) {
    ofi_listener listening = co_await domain.listen("127.0.0.1:0");
    child.tell(listening.address());
    co_return co_await listening.accept();
}

void dies_under_way(const std::string& provider) {
    child_process child([provider](const std::string& address) { busy_child(provider, address); });
    scheduler on{impatient{}};
    ofi_any_domain domain(on, ofi_here(provider));
    ofi_end end;
    end.link = std::make_unique<ofi_recorded_link>(on.run(accept_one(domain, child)), end.sink);
    std::vector<std::byte> memory(std::size_t{1} << 20);
    region open = domain.register_memory(memory, access_rights::all);
    on.run_until([&] { return end.sink.count == 10; });
    recording_completion none;
    const remote_region named = open.remote();
    on.run_until([&] {
        return end.link->post(header_of(0), const_buffers(std::as_bytes(std::span(&named, 1))), none) ==
               post_result::done;
    });
    for (int n = 0; n < 2000; ++n) on.turn();  // it is busy by now
    child.kill();
    on.run_until([&] { return end.sink.downs != 0; });
    CHECK(end.sink.reason == errc::peer_lost);
    CHECK(end.link->post(header_of(1), {}, none) == post_result::failed);
    end.link.reset();
    on.run_until([&] { return domain.connections() == 0; });
}

}  // namespace

TEST_CASE("a peer that is killed while it gets ends its link, over tcp") { dies_under_way("tcp"); }

TEST_CASE("a peer that is killed while it gets ends its link, over shm") { dies_under_way("shm"); }
