#include "ofi/pair.hpp"

#include "support/child_process.hpp"

namespace test_ofi_peer_killed {

using namespace rdmacoro;
using namespace rdmacoro::test;

namespace {

/// Sends a message that names a region.
void name(scheduler& on, ofi_end& to, std::uint64_t number, const remote_region& what) {
    recording_completion none;
    on.run_until([&] {
        return to.link->post(header_of(number), const_buffers(std::as_bytes(std::span(&what, 1))), none) ==
               post_result::done;
    });
}
/// The region that the first message named.
remote_region named(const ofi_end& by) {
    remote_region what;
    std::memcpy(&what, by.sink.messages.front().payload.data(), sizeof what);
    return what;
}

/// Connects, sends ten messages that name a region of its own, and gets from the region that the first message to it names, again
/// and again; where it may write there it puts. After the first get or put it sends another message.
void busy_child(const std::string& provider, const std::string& address) {
    scheduler on;
    ofi_any_domain domain(on, ofi_here(provider));
    ofi_end end;
    end.link = std::make_unique<ofi_recorded_link>(on.run(domain.connect(address)), end.sink);
    std::vector<std::byte> own(std::size_t{8} << 20);
    const region to_be_got = domain.register_memory(own, access_rights::remote_read);
    for (std::uint64_t n = 0; n < 10; ++n) name(on, end, n, to_be_got.remote());
    on.run_until([&] { return end.sink.count == 1; });
    const remote_region there = named(end);
    std::vector<std::byte> here(there.length);
    for (bool first = true;; first = false) {
        recording_completion moved;
        const post_result posted = there.rights == access_rights::remote_write
                                       ? end.link->put(here, there, moved)
                                       : end.link->get(there, here, moved);
        if (posted != post_result::posted) return;
        on.run_until([&] { return moved.calls != 0; });
        if (first) name(on, end, 10, to_be_got.remote());
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
    name(on, end, 0, open.remote());
    on.run_until([&] { return end.sink.count == 11; });  // one get is over, and the next begins
    child.kill();
    on.run_until([&] { return end.sink.downs != 0; });
    CHECK(end.sink.reason == errc::peer_lost);
    CHECK(end.link->post(header_of(1), {}, none) == post_result::failed);
    end.link.reset();
    on.run_until([&] { return domain.connections() == 0; });
}

}  // namespace

TEST_CASE(
    "a peer that is killed while it puts ends its link and no other, and its memory is touched no more") {
    child_process child([](const std::string& address) { busy_child("tcp", address); });
    const bool gets = GENERATE(false, true);
    CAPTURE(gets);
    scheduler on{impatient{}};
    ofi_options little = ofi_here("tcp");
    little.inject_bytes = gets ? little.inject_bytes : 0;
    ofi_any_domain domain(on, little);
    ofi_any_domain elsewhere(on, ofi_here("tcp"));
    ofi_end end;
    ofi_end near;
    ofi_end far;
    on.run([](ofi_any_domain& here, ofi_any_domain& there, ofi_end& a, ofi_end& b) -> task<> {
        ofi_listener listening = co_await here.listen("127.0.0.1:0");
        auto accepting = start(listening.accept());
        ofi_connection made = co_await there.connect(listening.address());
        a.link = std::make_unique<ofi_recorded_link>(co_await accepting, a.sink);
        b.link = std::make_unique<ofi_recorded_link>(std::move(made), b.sink);
    }(domain, elsewhere, near, far));
    end.link = std::make_unique<ofi_recorded_link>(on.run(accept_one(domain, child)), end.sink);
    std::vector<std::byte> memory(std::size_t{8} << 20);
    region open = end.link->expose(memory, access_rights::remote_write);
    on.run_until([&] { return end.sink.count == 10; });
    name(on, end, 0, open.remote());
    memory.back() = std::byte{1};
    on.run_until([&] { return memory.back() == std::byte{0}; });  // a whole put has come
    const remote_region theirs = named(end);
    std::vector<std::byte> into(theirs.length);
    recording_completion got;
    if (gets) REQUIRE(end.link->get(theirs, into, got) == post_result::posted);
    for (int n = 0; n < 5; ++n) on.turn();
    child.kill();
    on.run_until([&] { return end.sink.downs != 0; });
    CHECK(end.sink.reason == errc::peer_lost);
    open.reset();
    std::fill(memory.begin(), memory.end(), std::byte{7});
    for (int n = 0; n < 2000; ++n) on.turn();
    CHECK(std::all_of(memory.begin(), memory.end(), [](std::byte one) { return one == std::byte{7}; }));
    CHECK(domain.counts().reopened == 0);
    CHECK(near.sink.downs == 0);
    recording_completion none;
    on.run_until([&] { return far.link->post(header_of(1), {}, none) == post_result::done; });
    on.run_until([&] { return near.sink.count == 1; });
}

TEST_CASE("a peer that is killed while it gets ends its link, over tcp") { dies_under_way("tcp"); }

TEST_CASE("a peer that is killed while it gets ends its link, over shm") { dies_under_way("shm"); }

TEST_CASE("a peer that is killed while it gets ends its link, over stand-ins for hardware") {
    dies_under_way(GENERATE(as<std::string>{}, "gni", "cxi", "efa"));
}

}  // namespace test_ofi_peer_killed
