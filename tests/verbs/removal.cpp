#include "verbs/between.hpp"
#include "verbs/pair.hpp"
#include "verbs/spare_device.hpp"

#include "support/catch.hpp"

#include <chrono>

using namespace rdmacoro;
using namespace rdmacoro::test;
using namespace std::chrono_literals;

// A device that is taken away while it is in use, and a port that goes down and comes back.

namespace {

/// What an accept ended with.
struct accept_end {
    bool over = false;
    std::error_code code;
    std::string text;
};
task<> accept_until_it_ends(verbs_listener* on, accept_end* into) {
    try {
        for (;;) static_cast<void>(co_await on->accept());
    } catch (const std::system_error& why) {
        into->code = why.code();
        into->text = why.what();
    }
    into->over = true;
}

}  // namespace

TEST_CASE("a device that is taken away ends links, accepts and connects with an error that says so") {
    NEEDS_SPARE_DEVICE();
    const spare_device device;
    {
        verbs_world w(device.options());
        verbs_end a;
        verbs_end b;
        w.link(a, b);
        verbs_listener listening = w.on.run(w.server.listen("*:0"));
        accept_end ended;
        task_group waiting;
        w.on.run([](task_group* group, verbs_listener* on, accept_end* into) -> task<> {
            group->spawn(accept_until_it_ends, on, into);
            co_return;
        }(&waiting, &listening, &ended));
        w.turns(100);
        // Linux's devices in software tell nobody when they are taken away. An event of theirs becomes that of an adapter.
        const between hooks;
        between::event = [](ibv_async_event& event) {
            if (event.event_type == IBV_EVENT_PORT_ERR) event.event_type = IBV_EVENT_DEVICE_FATAL;
        };
        spare_device::run("ip link set " + device.interface + " down");
        w.until([&] { return a.sink.downs == 1 && b.sink.downs == 1; });
        CHECK(a.sink.reason == errc::peer_lost);
        w.until([&] { return ended.over; });
        CHECK(ended.code == errc::unsupported);
        CHECK_THAT(ended.text, contains(device.name));
        const refusal late = refused([&] { static_cast<void>(w.on.run(listening.accept())); });
        CHECK(late.code == errc::unsupported);
        const refusal seen =
            refused([&] { static_cast<void>(w.on.run(w.client.connect(listening.address()))); });
        CHECK(seen.code == errc::unsupported);
        CHECK_THAT(seen.text, contains(device.name));
        CHECK_THAT(seen.text, contains("taken away"));
        CHECK(w.client.broken());
        const refusal deaf = refused([&] { static_cast<void>(w.on.run(w.server.listen("*:0"))); });
        CHECK(deaf.code == errc::unsupported);
        w.on.run([](task_group* group) -> task<> { co_await group->join(); }(&waiting));
        a.link.reset();
        b.link.reset();
    }
}

TEST_CASE("a port that goes down for a moment ends no link") {
    NEEDS_SPARE_DEVICE();
    const spare_device device;
    verbs_world w(device.options());
    verbs_end a;
    verbs_end b;
    w.link(a, b);
    spare_device::run("ip link set " + device.interface + " down");
    w.turns(200);
    spare_device::run("ip link set " + device.interface + " up");
    w.turns(200);
    recording_completion none;
    CHECK(a.link->post(header_of(1), {}, none) == post_result::done);
    w.until([&] { return b.sink.count == 1 || a.sink.downs + b.sink.downs != 0; });
    CHECK(a.sink.downs + b.sink.downs == 0);
    // And connections are made over it again.
    verbs_end c;
    verbs_end d;
    w.link(c, d);
}
