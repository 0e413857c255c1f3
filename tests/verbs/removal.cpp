#include "verbs/between.hpp"
#include "verbs/pair.hpp"
#include "verbs/spare_device.hpp"

#include <rdmacoro/messaging/messaging.hpp>

#include "support/catch.hpp"
#include "support/pattern.hpp"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <utility>

#include <fcntl.h>
#include <unistd.h>

namespace test_verbs_removal {

using namespace rdmacoro;
using namespace rdmacoro::test;
using namespace std::chrono_literals;

// A device that is taken away while it is in use, and a port that goes down and comes back.

namespace {

/// Makes of the event of a port that goes down that of an adapter that is taken away.
void port_event_is_removal() {
    between::event = [](ibv_async_event& event) {
        if (event.event_type == IBV_EVENT_PORT_ERR) event.event_type = IBV_EVENT_DEVICE_FATAL;
    };
}

/// The outcome of an accept.
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

/// A coroutine that accepts until that ends with an error.
struct accepting {
    accept_end end;

    accepting(verbs_world& world, verbs_listener& listening) : world_(world) {
        world.on.run([](accepting* self, verbs_listener* on) -> task<> {
            self->waiting_.spawn(accept_until_it_ends, on, &self->end);
            co_return;
        }(this, &listening));
        world.turns(100);
    }
    ~accepting() {
        world_.on.run([](task_group* group) -> task<> { co_await group->join(); }(&waiting_));
    }
    accepting(const accepting&) = delete;
    accepting& operator=(const accepting&) = delete;

private:
    verbs_world& world_;
    task_group waiting_;
};

}  // namespace

TEST_CASE("a device that is taken away ends links, accepts and connects with an error that says so") {
    NEEDS_SPARE_DEVICE();
    const verbs_connect how = GENERATE(verbs_connect::rdma_cm, verbs_connect::tcp);
    const bool by_event = GENERATE(false, true);
    CAPTURE(static_cast<int>(how), by_event);
    const spare_device device;
    {
        verbs_world w(connecting_by(device.options(), how));
        verbs_end a;
        verbs_end b;
        w.link(a, b);
        verbs_listener listening = w.on.run(w.server.listen("*:0"));
        const accepting waits(w, listening);
        const accept_end& ended = waits.end;
        const between hooks;
        if (by_event) {
            // Linux's devices in software do not report it themselves. An event of theirs becomes that of an adapter.
            port_event_is_removal();
            spare_device::run("ip link set " + device.interface + " down");
        } else {
            // The command waits until nobody has the device open any more; librdmacm has, until this process ends.
            spare_device::run("rdma link delete " + device.name + " >/dev/null 2>&1 &");
        }
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
        a.link.reset();
        b.link.reset();
    }
}

TEST_CASE("a queue of the device that fails ends the domain's links, accepts and connects, as new links "
          "would share it") {
    NEEDS_SPARE_DEVICE();
    enum class failure { completion_queue, receive_queue, read };
    const failure how = GENERATE(failure::completion_queue, failure::receive_queue, failure::read);
    CAPTURE(static_cast<int>(how));
    const spare_device device;
    verbs_world w(device.options());
    verbs_end a;
    verbs_end b;
    w.link(a, b);
    verbs_listener listening = w.on.run(w.server.listen("*:0"));
    const accepting waits(w, listening);
    const accept_end& ended = waits.end;
    const between hooks;
    static ibv_async_event failing;
    failing.event_type = how == failure::completion_queue ? IBV_EVENT_CQ_ERR : IBV_EVENT_SRQ_ERR;
    between::event = [](ibv_async_event& event) {
        if (event.event_type == IBV_EVENT_PORT_ERR) event.event_type = failing.event_type;
    };
    ibv_context& server = *b.link->queue_pair()->context;
    const auto poll = server.ops.poll_cq;
    if (how == failure::read) {
        server.ops.poll_cq = [](ibv_cq*, int, ibv_wc*) { return -1; };
    } else {
        spare_device::run("ip link set " + device.interface + " down");
    }
    w.until([&] { return b.sink.downs == 1 && ended.over; });
    server.ops.poll_cq = poll;
    CHECK(b.sink.reason == errc::peer_lost);
    CHECK(ended.code == errc::unsupported);
    CHECK_THAT(ended.text, contains("a queue of it failed"));
    CHECK(w.server.broken());
    CHECK(w.client.broken() == (how != failure::read));
    CHECK(refused([&] { static_cast<void>(w.on.run(w.server.listen("*:0"))); }).code == errc::unsupported);
    between::event = nullptr;
    a.link.reset();
    b.link.reset();
}

TEST_CASE(
    "a client of another host is refused by a listener over TCP whose device was taken away, not for lack "
    "of room") {
    NEEDS_SPARE_DEVICE();
    const spare_device device;
    verbs_world w(connecting_by(device.options(), verbs_connect::tcp));
    const verbs_listener listening = w.on.run(w.server.listen("127.0.0.1:0"));
    const between hooks;
    port_event_is_removal();
    spare_device::run("ip link set " + device.interface + " down");
    w.until([&] { return w.client.broken() && w.server.broken(); });
    between::event = nullptr;
    spare_device::run("ip link set " + device.interface + " up");
    // The domain of another process is not broken.
    verbs_domain elsewhere(w.on, connecting_by(device.options(), verbs_connect::tcp));
    const refusal seen =
        refused([&] { static_cast<void>(w.on.run(elsewhere.connect(listening.address()))); });
    CHECK(seen.code == errc::connection_refused);
    CHECK_THAT(seen.text, !contains("room"));
}

namespace {

/// Pipes in place of the descriptors of a device's events and completions, for a domain that is opened meanwhile and has no link. When
/// the device is taken away they report an error for ever, as the kernel's do.
class pipes_for_events {
public:
    pipes_for_events() {
        for (auto& both : ends) REQUIRE(::pipe2(both, O_CLOEXEC) == 0);
        between::channel = [](const ibv_comp_channel& made) { channel = made.fd; };
        // The memory of its slots is locked after its queues were created, which needs the real ones, and before it watches them.
        between::may_not_lock = [](const ibv_pd& of) {
            REQUIRE(::dup2(ends[0][0], of.context->async_fd) >= 0);
            REQUIRE(::dup2(ends[1][0], channel) >= 0);
            return false;
        };
    }
    ~pipes_for_events() {
        for (const auto& both : ends) {
            for (const int fd : both) {
                if (fd >= 0) ::close(fd);
            }
        }
    }
    pipes_for_events(const pipes_for_events&) = delete;
    pipes_for_events& operator=(const pipes_for_events&) = delete;

    static void take_device_away() {
        // As the kernel tells it: struct ib_uverbs_async_event_desc.
        struct {
            std::uint64_t element = 0;
            std::uint32_t type = IBV_EVENT_DEVICE_FATAL;
            std::uint32_t reserved = 0;
        } const event;
        REQUIRE(::write(ends[0][1], &event, sizeof event) == static_cast<ssize_t>(sizeof event));
        for (auto& both : ends) ::close(std::exchange(both[1], -1));
    }

private:
    inline static int ends[2][2] = {};
    inline static int channel = -1;
    between hooks_;
};

}  // namespace

TEST_CASE("a scheduler parks beside a domain whose device was taken away, though the device's descriptors "
          "report an "
          "error for ever") {
    FOR_EACH_VERBS_DEVICE_BUT_IWARP(way);
    const pipes_for_events events;
    scheduler on{park_at_once{}};
    verbs_domain domain(on, way.options);
    const auto polls_meanwhile = [&] {
        const std::uint64_t before = domain.counts().polls;
        on.run([]() -> task<> { co_await sleep_for(50ms); }());
        return domain.counts().polls - before;
    };
    CHECK(polls_meanwhile() < 100);
    CHECK_FALSE(domain.broken());
    events.take_device_away();
    on.run([](verbs_domain* of) -> task<> {
        while (!of->broken()) co_await yield();
    }(&domain));
    CHECK(polls_meanwhile() < 100);
}

namespace {

/// The device of a context whose driver is gone: it completes nothing, and takes no calls.
class dead_device {
public:
    explicit dead_device(ibv_context& which) : context_(which), poll_(which.ops.poll_cq) {
        dead = &which;
        which.ops.poll_cq = [](ibv_cq*, int, ibv_wc*) { return 0; };
        between::modifying = [](const ibv_qp& of, ibv_qp_attr&, int) { return of.context == dead ? EIO : 0; };
    }
    ~dead_device() {
        context_.ops.poll_cq = poll_;
        between::modifying = nullptr;
    }
    dead_device(const dead_device&) = delete;
    dead_device& operator=(const dead_device&) = delete;

private:
    inline static const ibv_context* dead = nullptr;
    ibv_context& context_;
    int (*poll_)(ibv_cq*, int, ibv_wc*);
};

}  // namespace

TEST_CASE("a get that is under way when its device is taken away ends, and its memory is its owner's again") {
    NEEDS_SPARE_DEVICE();
    const spare_device device;
    verbs_world w(device.options());
    std::vector<std::byte> there(std::size_t{32} << 20, std::byte{1});
    std::vector<std::byte> here(there.size(), std::byte{2});
    const region open = w.server.register_memory(there, access_rights::all);
    verbs_end a;
    verbs_end b;
    w.link(a, b);
    const between hooks;
    port_event_is_removal();
    recording_completion got;
    REQUIRE(a.link->get(open.remote(), here, got) == post_result::posted);
    w.until([&] { return here.front() == std::byte{1}; });
    REQUIRE(got.calls == 0);
    const dead_device dead(*a.link->queue_pair()->context);
    spare_device::run("ip link set " + device.interface + " down && ip link set " + device.interface + " up");
    w.until([&] { return a.sink.downs == 1 && b.sink.downs == 1; });
    CHECK(a.sink.reason == errc::peer_lost);
    CHECK(got.calls == 1);
    CHECK(got.outcome == errc::peer_lost);
    CHECK(here.back() == std::byte{2});  // or it was over before
    std::fill(here.begin(), here.end(), std::byte{0x77});
    w.turns(200);
    CHECK(std::all_of(here.begin(), here.end(), [](std::byte x) { return x == std::byte{0x77}; }));
    CHECK(got.calls == 1);
    // Back again, the device serves another domain.
    verbs_world next(device.options());
    verbs_end c;
    verbs_end d;
    next.link(c, d);
}

TEST_CASE("the connection manager's report that the device is taken away ends the domain, and the report of "
          "another device does not") {
    FOR_EACH_VERBS_DEVICE(way);
    if (verbs_ways().size() < 2) SKIP_TEST("this machine has one RDMA device only");
    static ibv_context* other = nullptr;  // of another device
    static ibv_context* real = nullptr;
    static rdma_cm_id* id = nullptr;
    static int reports = 0;
    scheduler elsewhere;
    verbs_domain of_other(elsewhere, verbs_ways()[way.name == verbs_ways()[0].name ? 1 : 0].options);
    for (const bool own : {false, true}) {
        CAPTURE(own);
        verbs_options o = way.options;
        o.connect_by = verbs_connect::rdma_cm;
        verbs_world w(o);
        verbs_end a;
        verbs_end b;
        verbs_end c;
        verbs_end d;
        w.link(a, b);
        w.link(c, d);
        verbs_listener listening = w.on.run(w.server.listen("*:0"));
        int count = 0;
        ibv_device** const list = ::ibv_get_device_list(&count);
        other = nullptr;
        for (int n = 0; n < count && !own; ++n) {
            if (of_other.device_name() == ::ibv_get_device_name(list[n])) other = ::ibv_open_device(list[n]);
        }
        REQUIRE((own || other != nullptr));
        const between hooks;
        reports = 0;
        id = nullptr;
        between::cm_event = [](rdma_cm_event& event) {
            if (event.event != RDMA_CM_EVENT_DISCONNECTED || reports != 0) return;
            ++reports;
            event.event = RDMA_CM_EVENT_DEVICE_REMOVAL;
            if (other == nullptr) return;
            id = event.id;
            real = std::exchange(id->verbs, other);
        };
        between::destroying_id = [](const rdma_cm_id& which) {
            if (&which == id) id->verbs = real;
        };
        a.link.reset();
        w.until([&] { return b.sink.downs == 1 && reports == 1; });
        CHECK(b.sink.reason == errc::peer_lost);
        if (own) {
            CHECK(w.client.broken() + w.server.broken() == 1);
            w.until([&] { return c.sink.downs == 1 && d.sink.downs == 1; });
        } else {
            CHECK_FALSE(w.client.broken());
            CHECK_FALSE(w.server.broken());
            post_for_sure(w, c, 1);
            w.until([&] { return d.sink.count == 1 || d.sink.downs != 0; });
            CHECK(d.sink.downs == 0);
            CHECK(static_cast<bool>(w.on.run(w.client.connect(listening.address()))));
        }
        b.link.reset();
        c.link.reset();
        d.link.reset();
        listening = {};
        if (id != nullptr && id->verbs == other) id->verbs = real;
        ::ibv_free_device_list(list);
        w.turns(100);
        if (other != nullptr) ::ibv_close_device(other);
    }
}

TEST_CASE("a scheduler whose default domain lost its device opens another one") {
    NEEDS_SPARE_DEVICE();
    const spare_device device;
    ::setenv("RDMACORO_VERBS_DEVICE", device.name.c_str(), 1);
    struct restore {
        ~restore() { ::unsetenv("RDMACORO_VERBS_DEVICE"); }
    };
    const restore at_the_end;
    scheduler on{impatient{}};
    auto& chosen = on.service<rdmacoro::detail::verbs::domains>();
    verbs_domain& first = *on.run(rdmacoro::detail::verbs::choose_domain(chosen, "*:0"));
    CHECK(&first == &on.service<verbs_domain>());
    {
        const between hooks;
        port_event_is_removal();
        spare_device::run("ip link set " + device.interface + " down");
        on.run_until([&] { return first.broken(); });
        spare_device::run("ip link set " + device.interface + " up");
    }
    on.run([](scheduler* of, std::string name) -> task<> {
        auto listening = co_await listen<verbs_rc>("*:0");
        auto accepting = start(listening.accept());
        endpoint<verbs_rc> a = co_await connect<verbs_rc>(listening.address());
        endpoint<verbs_rc> b = co_await accepting;
        co_await a.send(pattern(100, std::uint64_t{1}), 1);
        std::vector<std::byte> into(100);
        co_await b.recv(into, 1);
        CHECK(is_pattern(into, 1));
        auto& domains = of->service<rdmacoro::detail::verbs::domains>();
        for (const char* address : {"*:0", "localhost:1", "10.97.0.1:1"}) {
            verbs_domain& next = *co_await rdmacoro::detail::verbs::choose_domain(domains, address);
            CHECK_FALSE(next.broken());
            CHECK(next.device_name() == name);
            verbs_domain* const again = co_await rdmacoro::detail::verbs::choose_domain(domains, address);
            CHECK(again == &next);
        }
    }(&on, device.name));
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

}  // namespace test_verbs_removal
