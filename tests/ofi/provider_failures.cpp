// Failures that a provider reports beside those of single gets, puts and sends: made by the stand-ins.

#include <rdmacoro/messaging/messaging.hpp>
#include <rdmacoro/transport/ofi.hpp>

#include "ofi/pair.hpp"

#include "support/pattern.hpp"
#include "support/with_variable.hpp"

#include <cerrno>
#include <string>
#include <system_error>

namespace test_ofi_provider_failures {

using namespace rdmacoro;
using namespace rdmacoro::test;

namespace {

std::string stand_in() { return GENERATE(as<std::string>{}, "gni", "cxi", "efa"); }

/// The text of the error that `what` ends with, and its code.
struct ended {
    std::error_code code;
    std::string text;
};
template <class Operation>
task<ended> end_of(Operation what) {
    try {
        static_cast<void>(co_await std::move(what));
    } catch (const std::system_error& thrown) {
        co_return ended{thrown.code(), thrown.what()};
    }
    co_return ended{};
}

/// Two links between the same domains: the end of the first is not the second's.
struct two_links {
    ofi_world w;
    ofi_end a;
    ofi_end b;
    ofi_end c;
    ofi_end d;

    explicit two_links(const std::string& provider) : w(ofi_here(provider)) {
        w.link(a, b);
        w.link(c, d);
    }
    /// An injected message from `a` was lost: its link ends, and the domain says why.
    void lose_the_first() {
        w.until([&] { return a.sink.downs == 1 && b.sink.downs == 1; });
        CHECK(a.sink.reason == errc::peer_lost);
        CHECK(w.client.counts().failed_injects == 1);
        CHECK(w.client.last_failure() == "Input/output error (lost by the stand-in)");
    }
};

}  // namespace

TEST_CASE("a completion queue that cannot be read breaks its domain: links end, and connects, accepts and "
          "listens name the "
          "provider's reason") {
    const std::string provider = stand_in();
    CAPTURE(provider);
    ofi_world w(ofi_here(provider));
    ofi_end a;
    ofi_end b;
    w.link(a, b);
    ofi_end c;
    ofi_end d;
    w.link(c, d);
    struct all_ends {
        ended accept, connect, listen, next_accept;
    };
    const auto all = w.on.run([](ofi_world& in, auto down) -> task<all_ends> {
        ofi_listener listening = co_await in.server.listen("127.0.0.1:0");
        auto accepting = start(end_of(listening.accept()));
        {
            // Both domains read, and both break.
            const with_variable broken("RDMACORO_STAND_IN_CQ_ERROR", std::to_string(FI_EIO));
            while (down() != 4) co_await yield();
        }
        all_ends found;
        found.accept = co_await accepting;
        found.connect = co_await end_of(in.client.connect(listening.address()));
        found.listen = co_await end_of(in.server.listen("127.0.0.1:0"));
        found.next_accept = co_await end_of(listening.accept());
        co_return found;
    }(w, [&] { return a.sink.downs + b.sink.downs + c.sink.downs + d.sink.downs; }));
    for (const ofi_end* one : {&a, &b, &c, &d}) CHECK(one->sink.reason == errc::peer_lost);
    for (const ended& one : {all.accept, all.connect, all.listen, all.next_accept}) {
        CAPTURE(one.text);
        CHECK(one.code == errc::no_resources);
        CHECK(one.text.find(provider) != std::string::npos);
        CHECK(one.text.find("read the completion queue: Input/output error") != std::string::npos);
        CHECK(one.text.find("open another") != std::string::npos);
    }
    CHECK(w.client.describe().find("no endpoint any more: read the completion queue") != std::string::npos);
    CHECK(w.client.last_failure() == "read the completion queue: Input/output error");
    for (ofi_end* one : {&a, &b, &c, &d}) one->link.reset();
    w.until_all_gone();
}

TEST_CASE("a completion queue whose errors cannot be read breaks its domain, for the provider's reason") {
    const std::string provider = stand_in();
    CAPTURE(provider);
    ofi_world w(ofi_here(provider));
    ofi_end a;
    ofi_end b;
    w.link(a, b);
    {
        const with_variable entry("RDMACORO_STAND_IN_CQ_ERROR", std::to_string(FI_EAVAIL));
        const with_variable broken("RDMACORO_STAND_IN_CQ_READERR", std::to_string(FI_EIO));
        w.until([&] { return a.sink.downs == 1 && b.sink.downs == 1; });
    }
    CHECK(a.sink.reason == errc::peer_lost);
    CHECK(w.client.last_failure() == "read the completion queue's errors: Input/output error");
    CHECK(w.client.describe().find("no endpoint any more: read the completion queue's errors") !=
          std::string::npos);
}

TEST_CASE("a completion queue of tagged messages that cannot be read, or whose errors cannot, ends its link "
          "for the "
          "provider's reason, and no other link") {
    const std::string provider = GENERATE(as<std::string>{}, "gni", "cxi");
    const bool errors = GENERATE(false, true);
    CAPTURE(provider, errors);
    ofi_world w(ofi_here(provider));
    ofi_end a;
    ofi_end b;
    ofi_end c;
    ofi_end d;
    w.link(a, b);
    w.link(c, d);
    for (const ofi_end* one : {&a, &b}) static_cast<void>(one->link->matching());
    recording_completion none;
    // The peer's address for such messages has come.
    w.until([&] { return a.link->post_tagged(1, 0, {}, none) == post_result::done; });
    {
        const with_variable which("RDMACORO_STAND_IN_CQ_OF", "tagged");
        const with_variable entry("RDMACORO_STAND_IN_CQ_ERROR", std::to_string(errors ? FI_EAVAIL : FI_EIO));
        const with_variable broken("RDMACORO_STAND_IN_CQ_READERR", std::to_string(FI_EIO));
        w.until([&] { return a.sink.downs == 1 && b.sink.downs == 1; });
    }
    CHECK(a.sink.reason == errc::peer_lost);
    CHECK(b.sink.reason == errc::peer_lost);
    CHECK(w.client.last_failure() == std::string(errors ? "read the errors of" : "read") +
                                         " a completion queue of tagged messages: Input/output error");
    post_for_sure(w, c, 1);
    w.until([&] { return d.sink.count == 1; });
    CHECK(c.sink.downs + d.sink.downs == 0);
}

TEST_CASE("a link for whose matched messages there is no descriptor or memory ends with errc::no_resources, "
          "and the "
          "domain has the reason") {
    const int number = GENERATE(EMFILE, ENFILE, ENOMEM, ENOSPC);
    CAPTURE(number);
    ofi_world w(ofi_here("cxi"));
    ofi_end a;
    ofi_end b;
    w.link(a, b);
    {
        const with_variable refused("RDMACORO_STAND_IN_TAGGED_ERROR", std::to_string(number));
        static_cast<void>(a.link->matching());
    }
    w.until([&] { return a.sink.downs == 1; });
    CHECK(a.sink.reason == errc::no_resources);
    CHECK(w.client.last_failure() ==
          "open an endpoint for tagged messages: " + rdmacoro::detail::fabric::text_of(-number));
}

TEST_CASE(
    "a listener whose own domain opens no endpoint for matched messages ends, and does not blame its peers") {
    using matched = protocols<provider_matched>;
    const std::string provider = GENERATE(as<std::string>{}, "gni", "cxi");
    CAPTURE(provider);
    ofi_world w(ofi_here(provider));
    const with_variable refused("RDMACORO_STAND_IN_TAGGED_ERROR", std::to_string(FI_ENOSYS));
    w.on.run([](ofi_any_domain& from, ofi_any_domain& to) -> task<> {
        listener<ofi_any, matched> listening = co_await listen<ofi_any, matched>(to, "127.0.0.1:0");
        auto accepting = start(end_of(listening.accept()));
        const ofi_connection made = co_await from.connect(listening.address());
        const ended how = co_await accepting;
        CHECK(how.code == errc::unsupported);
    }(w.client, w.server));
}

TEST_CASE(
    "a completion queue that overran breaks its domain and no other, and a get that was under way ends") {
    const std::string provider = stand_in();
    CAPTURE(provider);
    scheduler on{impatient{}};
    ofi_any_domain here(on, ofi_here(provider));
    auto few = std::make_unique<with_variable>("RDMACORO_STAND_IN_CQ_SIZE", "8");
    ofi_any_domain there(on, ofi_here(provider));
    few.reset();
    ofi_end a;
    ofi_end b;
    on.run([](ofi_any_domain& from, ofi_any_domain& to, ofi_end& one, ofi_end& other) -> task<> {
        ofi_listener listening = co_await to.listen("127.0.0.1:0");
        auto accepting = start(listening.accept());
        ofi_connection made = co_await from.connect(listening.address());
        one.link = std::make_unique<ofi_recorded_link>(std::move(made), one.sink);
        other.link = std::make_unique<ofi_recorded_link>(co_await accepting, other.sink);
    }(here, there, a, b));
    std::vector<std::byte> memory(std::size_t{1} << 20);
    const region open = here.register_memory(memory, access_rights::remote_read);
    std::vector<std::byte> into(memory.size());
    recording_completion got;
    // More messages than the queue has room for, of which the other side reads nothing: it does not turn.
    recording_completion none;
    unsigned taken = 0;
    while (taken < 20) {
        if (a.link->post(header_of(taken), {}, none) == post_result::done) ++taken;
        a.link->poll(0);
    }
    REQUIRE(b.link->get(open.remote(), into, got) == post_result::posted);
    on.run_until([&] { return b.sink.downs == 1; });
    CHECK(got.calls == 1);
    CHECK(got.outcome);
    CHECK(there.last_failure().find("read the completion queue: ") == 0);
    CHECK(here.describe().find("no endpoint") == std::string::npos);
    on.run_until([&] { return a.sink.downs == 1; });
    CHECK(a.sink.reason == errc::peer_lost);
}

TEST_CASE("an injected message that fails is counted and ends its link, also when it was the last, and no "
          "other link") {
    const std::string provider = GENERATE(as<std::string>{}, "gni", "cxi", "efa");
    CAPTURE(provider);
    two_links both(provider);
    auto& [w, a, b, c, d] = both;
    post_for_sure(w, c, 1);  // so that the other link is in doubt, too
    {
        const with_variable lost("RDMACORO_STAND_IN_LOSE_INJECTS", "1");
        recording_completion none;
        REQUIRE(a.link->post(header_of(7), {}, none) == post_result::done);
    }
    both.lose_the_first();
    CHECK(b.sink.reason == errc::peer_lost);
    CHECK(b.sink.count == 0);
    CHECK(c.sink.downs + d.sink.downs == 0);
    post_for_sure(w, c, 2);
    w.until([&] { return d.sink.count == 2; });
    CHECK(w.client.counts().reopened + w.server.counts().reopened == 0);
}

TEST_CASE("a tagged message that was injected and failed is counted and ends its link, and no other link") {
    const std::string provider = GENERATE(as<std::string>{}, "gni", "cxi", "efa");
    CAPTURE(provider);
    two_links both(provider);
    auto& [w, a, b, c, d] = both;
    for (const ofi_end* one : {&a, &b}) static_cast<void>(one->link->matching());
    recording_completion none;
    // The peer's address for such messages has come.
    w.until([&] { return a.link->post_tagged(1, 0, {}, none) == post_result::done; });
    const std::uint64_t injected = a.link->counts().injected;
    {
        const with_variable lost("RDMACORO_STAND_IN_LOSE_INJECTS", "1");
        REQUIRE(a.link->post_tagged(2, 0, {}, none) == post_result::done);
    }
    CHECK(a.link->counts().injected == injected + 1);
    both.lose_the_first();
    post_for_sure(w, c, 1);
    w.until([&] { return d.sink.count == 1; });
    CHECK(c.sink.downs + d.sink.downs == 0);
}

TEST_CASE("an idle link sends a frame now and then, so that a peer that the provider does not reach any more "
          "is lost, though its host "
          "answers otherwise") {
    const std::string provider = GENERATE(as<std::string>{}, "gni", "cxi", "efa");
    CAPTURE(provider);
    ofi_options o = ofi_here(provider);
    o.peer_timeout = ofi_options::least_peer_timeout;
    ofi_world w(o);
    ofi_end a;
    ofi_end b;
    w.link(a, b);
    const std::uint64_t before = a.link->counts().control_frames;
    const std::uint32_t credits = a.link->credits();
    w.until([&] { return a.link->counts().control_frames >= before + 2; });
    CHECK(a.link->credits() + 2 >= credits);
    CHECK(a.sink.downs + b.sink.downs == 0);
    const with_variable lost("RDMACORO_STAND_IN_LOSE_SENDS", "1");
    w.until([&] { return a.sink.downs == 1 && b.sink.downs == 1; });
    CHECK(a.sink.reason == errc::peer_lost);
    CHECK(b.sink.reason == errc::peer_lost);
    CHECK((w.client.last_failure() + w.server.last_failure()).find("lost by the stand-in") !=
          std::string::npos);
}

namespace {

/// As over ofi_rxm on verbs: the queue is read before its endpoint closes.
constexpr ofi_profile reading = [] {
    ofi_profile p = provider::cxi;
    p.reads_before_close = true;
    return p;
}();

}  // namespace

TEST_CASE("a queue that cannot be read ends a domain that reads it before its endpoint closes, once, and is "
          "no hindrance to closing it") {
    const bool amid_links = GENERATE(true, false);
    CAPTURE(amid_links);
    using reading_domain = ofi<reading>::domain;
    scheduler on{impatient{}};
    auto here = std::make_unique<reading_domain>(on);
    auto there = std::make_unique<reading_domain>(on);
    ofi_end a;
    ofi_end b;
    on.run([](reading_domain& from, reading_domain& to, ofi_end& one, ofi_end& other) -> task<> {
        ofi_listener listening = co_await to.listen("127.0.0.1:0");
        auto accepting = start(listening.accept());
        ofi_connection made = co_await from.connect(listening.address());
        one.link = std::make_unique<ofi_recorded_link>(std::move(made), one.sink);
        other.link = std::make_unique<ofi_recorded_link>(co_await accepting, other.sink);
    }(*here, *there, a, b));
    const auto all_gone = [&] { return here->connections() == 0 && there->connections() == 0; };
    if (!amid_links) {
        for (ofi_end* one : {&a, &b}) one->link.reset();
        on.run_until(all_gone);
    }
    const with_variable broken("RDMACORO_STAND_IN_CQ_ERROR", std::to_string(FI_EIO));
    if (amid_links) {
        on.run_until([&] { return a.sink.downs == 1 && b.sink.downs == 1; });
        CHECK(here->describe().find("no endpoint any more: read the completion queue") != std::string::npos);
        for (ofi_end* one : {&a, &b}) one->link.reset();
        on.run_until(all_gone);
    }
    here.reset();
    there.reset();
    CHECK((a.sink.downs + b.sink.downs == 2) == amid_links);
}

}  // namespace test_ofi_provider_failures
