// Long gets that are given up: none more of them is asked for, and no other link notices.

#include "ofi/pair.hpp"

#include "support/child_process.hpp"
#include "support/with_variable.hpp"

#include <atomic>
#include <csignal>
#include <cstring>
#include <thread>

#include <sys/mman.h>
#include <sys/wait.h>

namespace test_ofi_revoke {

using namespace rdmacoro;
using namespace rdmacoro::test;

namespace {

/// Takes some hundreds of milliseconds to get. Little of it is ever touched.
constexpr std::size_t huge = std::size_t{1} << 30;

class mapping {
public:
    mapping() {
        void* const got =
            ::mmap(nullptr, huge, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        REQUIRE(got != MAP_FAILED);
        memory_ = static_cast<std::byte*>(got);
    }
    mapping(const mapping&) = delete;
    mapping& operator=(const mapping&) = delete;
    ~mapping() { ::munmap(memory_, huge); }
    [[nodiscard]] std::span<std::byte> all() const { return {memory_, huge}; }

private:
    std::byte* memory_;
};

constexpr std::byte untouched{0xee};

/// Connects, names a region of zeros, and lets its peer get from it until the link ends.
void offer(const std::string& provider, const std::string& address) {
    scheduler on{idle::yield{}};
    ofi_any_domain domain(on, ofi_here(provider));
    ofi_end end;
    end.link = std::make_unique<ofi_recorded_link>(on.run(domain.connect(address)), end.sink);
    const mapping memory;
    const region open = domain.register_memory(memory.all(), access_rights::remote_read);
    const remote_region there = open.remote();
    recording_completion none;
    on.run_until([&] {
        return end.link->post(header_of(0), const_buffers(std::as_bytes(std::span(&there, 1))), none) ==
               post_result::done;
    });
    on.run_until([&] { return end.sink.downs != 0; });
}

/// A domain with a link to a peer in another process that offers memory, and one to this process.
template <class Idle = impatient>
struct beside_a_child {
    explicit beside_a_child(const ofi_options& options)
        : child([name = options.provider](const std::string& address) { offer(name, address); }),
          domain(on, options),
          elsewhere(on, ofi_here(options.provider)) {
        on.run([](beside_a_child& all) -> task<> {
            ofi_listener listening = co_await all.domain.listen("127.0.0.1:0");
            auto accepting = start(listening.accept());
            ofi_connection made = co_await all.elsewhere.connect(listening.address());
            all.near.link = std::make_unique<ofi_recorded_link>(co_await accepting, all.near.sink);
            all.far.link = std::make_unique<ofi_recorded_link>(std::move(made), all.far.sink);
            all.child.tell(listening.address());
            all.end.link = std::make_unique<ofi_recorded_link>(co_await listening.accept(), all.end.sink);
        }(*this));
        on.run_until([&] { return end.sink.count == 1; });
        std::memcpy(&there, end.sink.messages.front().payload.data(), sizeof there);
        into.all().front() = into.all().back() = untouched;
    }

    /// Begins to get all of it, and returns when some of it has come.
    void get(recording_completion& got) {
        REQUIRE(end.link->get(there, into.all(), got) == post_result::posted);
        on.run_until(
            [&] { return std::atomic_ref(into.all().front()).load(std::memory_order_relaxed) != untouched; });
        REQUIRE(got.calls == 0);
    }
    [[nodiscard]] bool whole() const { return into.all().back() != untouched; }

    /// Whether the other link works.
    void check_other_link() {
        CHECK(domain.counts().reopened == 0);
        CHECK(near.sink.downs + far.sink.downs == 0);
        recording_completion none;
        on.run_until([&] { return far.link->post(header_of(1), {}, none) == post_result::done; });
        on.run_until([&] { return near.sink.count == 1; });
    }

    child_process child;
    scheduler on{Idle{}};
    ofi_any_domain domain;
    ofi_any_domain elsewhere;
    mapping into;
    remote_region there;
    ofi_end near;
    ofi_end far;
    ofi_end end;
};

std::string any_provider() { return GENERATE(as<std::string>{}, "tcp", "shm", "gni", "cxi", "efa"); }

}  // namespace

namespace {

/// A domain gives up waiting for a get that is given up when it does not end for a second, and then every link of it ends: so it may go where the
/// machine has no processor for the peer for so long. Tries until `attempt` has not met that.
template <class F>
void where_it_gets_a_processor(F attempt) {
    constexpr int most = 5;
    for (int n = 1; !attempt(); ++n) REQUIRE(n < most);
}

}  // namespace

TEST_CASE("a long get that is canceled in the middle leaves its memory at once, and its link and all others "
          "go on") {
    const std::string provider = any_provider();
    CAPTURE(provider);
    where_it_gets_a_processor([&provider] {
        beside_a_child<> w(ofi_here(provider));
        recording_completion got;
        w.get(got);
        w.end.link->revoke(got);
        CHECK(got.calls == 0);
        REQUIRE_FALSE(w.whole());
        w.into.all().front() = untouched;
        for (int n = 0; n < 200; ++n) w.on.turn();
        CHECK(w.into.all().front() == untouched);
        CHECK_FALSE(w.whole());
        CHECK(got.calls == 0);
        if (w.domain.counts().reopened != 0) return false;
        CHECK(w.end.sink.downs == 0);
        w.check_other_link();
        // The same link gets again.
        remote_region part = w.there;
        part.length = 64;
        REQUIRE(w.end.link->get(part, w.into.all().first(64), got) == post_result::posted);
        w.on.run_until([&] { return got.calls == 1; });
        CHECK_FALSE(got.outcome);
        CHECK(w.into.all().front() == std::byte{0});
        return true;
    });
}

TEST_CASE("a link that is closed in the middle of a long get ends alone") {
    const std::string provider = any_provider();
    CAPTURE(provider);
    where_it_gets_a_processor([&provider] {
        beside_a_child<> w(ofi_here(provider));
        recording_completion got;
        w.get(got);
        w.end.link.reset();
        CHECK(got.calls == 1);
        CHECK(got.outcome == errc::closed);
        REQUIRE_FALSE(w.whole());
        if (w.domain.counts().reopened != 0) return false;
        w.check_other_link();
        CHECK(w.child.wait() == 0);
        return true;
    });
}

TEST_CASE("a peer that stands still for less than a second while a link with a get from it closes costs no "
          "other link") {
    const std::string provider = GENERATE(as<std::string>{}, "tcp", "shm");
    CAPTURE(provider);
    where_it_gets_a_processor([&provider] {
        beside_a_child<> w(ofi_here(provider));
        recording_completion got;
        w.get(got);
        ::kill(w.child.pid(), SIGSTOP);
        int status = 0;
        REQUIRE(::waitpid(w.child.pid(), &status, WUNTRACED) == w.child.pid());
        std::thread later([pid = w.child.pid()] {
            std::this_thread::sleep_for(std::chrono::milliseconds(400));
            ::kill(pid, SIGCONT);
        });
        w.end.link.reset();  // waits
        later.join();
        CHECK(got.calls == 1);
        CHECK(got.outcome == errc::closed);
        if (w.domain.counts().reopened != 0) return false;
        w.check_other_link();
        CHECK(w.child.wait() == 0);
        return true;
    });
}

namespace {

ofi_options slots_only(const std::string& provider) {
    ofi_options o = ofi_here(provider);
    o.inject_bytes = 0;  // so that the message that is lost names its link
    return o;
}

/// Stops the peer in the middle of a get from it, and makes the link to it fail.
template <class Idle>
task<> fail_amid_get(beside_a_child<Idle>& w) {
    ::kill(w.child.pid(), SIGSTOP);
    int status = 0;
    REQUIRE(::waitpid(w.child.pid(), &status, WUNTRACED) == w.child.pid());
    REQUIRE(WIFSTOPPED(status));
    // What lies in sockets arrives.
    std::uint64_t posts = 0;
    for (int unchanged = 0; unchanged != 2000;) {
        co_await yield();
        unchanged = posts == w.end.link->counts().posts ? unchanged + 1 : 0;
        posts = w.end.link->counts().posts;
    }
    recording_completion none;
    {
        const with_variable lost("RDMACORO_STAND_IN_LOSE_SENDS", "1");
        REQUIRE(w.end.link->post(header_of(1), {}, none) == post_result::done);
    }
    while (w.end.link->post(header_of(2), {}, none) != post_result::failed) co_await yield();
}

}  // namespace

TEST_CASE("a link that fails while its peer stands still in the middle of its get goes down in time, and "
          "holds up no coroutine meanwhile") {
    const std::string provider = GENERATE(as<std::string>{}, "gni", "cxi", "efa");
    CAPTURE(provider);
    beside_a_child<> w(slots_only(provider));
    recording_completion got;
    w.get(got);
    w.on.run(fail_amid_get(w));
    for (int n = 0; n < 8; ++n) {
        CHECK(w.end.sink.downs == 0);
        CHECK(got.calls == 0);
        w.on.turn();
    }
    w.on.run_until([&] { return w.end.sink.downs == 1; });
    CHECK(w.end.sink.reason == errc::peer_lost);
    CHECK(got.calls == 1);
    CHECK(got.outcome);
    CHECK(w.domain.counts().reopened == 1);  // nothing else keeps such a peer's answer from the memory
}

TEST_CASE("a scheduler that sleeps wakes to look after a link that has failed") {
    beside_a_child<park_at_once> w(slots_only("cxi"));
    recording_completion got;
    w.get(got);
    const std::uint64_t before = w.on.run([](auto& all) -> task<std::uint64_t> {
        co_await fail_amid_get(all);
        const std::uint64_t slept = all.on.parks();
        co_await sleep_for(std::chrono::seconds(1));
        co_return slept;
    }(w));
    CHECK(w.end.sink.downs == 1);
    CHECK(got.calls == 1);
    CHECK(w.on.parks() - before >= 5);  // one for the second's end would be too late
}

}  // namespace test_ofi_revoke
