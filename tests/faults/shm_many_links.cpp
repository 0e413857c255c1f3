// Many links of one shared-memory domain: no news is lost when they cool down, heat up and sleep, and a peer that scribbles
// on the notice board, or a listener's queue, hurts no other link.
#include <rdmacoro/rdmacoro.hpp>
#include <rdmacoro/transport/shm/handshake.hpp>
#include <rdmacoro/transport/shm/listener.hpp>

#include "support/bytes.hpp"
#include "support/catch.hpp"
#include "support/late_timers.hpp"
#include "support/run.hpp"
#include "support/shm_links.hpp"
#include "support/sleep_teller.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

namespace test_faults_shm_many_links {

using namespace rdmacoro;
using namespace rdmacoro::test;
using namespace std::chrono_literals;
namespace inner = rdmacoro::detail::shm;

namespace {

constexpr auto case_limit = 60s;

/// Small, so that thousands of them cost little.
shm_options small_links() {
    shm_options options;
    options.shape = {.cells = 64, .blocks = 4, .block_bytes = 4096};
    return options;
}

/// Parks at every wait, so that each message races with a scheduler that falls asleep.
idle::adaptive sleepy() { return idle::adaptive(duration::zero(), duration::zero()); }

/// Notes how many links were cold when a message came, and makes those cold that have had none since.
task<> echo(endpoint<shm>& end, shm::domain& in, std::size_t& most_cold) {
    for (;;) {
        std::uint64_t value = 0;
        const auto got = co_await as_result(end.recv(room_for(value)));
        if (!got) co_return;
        most_cold = std::max(most_cold, in.cold_links());
        in.cool();
        co_await end.send(bytes_of(value));
    }
}

/// Makes links cold as fast as it can, until it is told to stop.
task<> cools(shm::domain& domain, const bool& stop, std::size_t& most_cold) {
    while (!stop) {
        domain.cool();
        most_cold = std::max(most_cold, domain.cold_links());
        co_await yield();
    }
}

/// Echoes on `count` links, all at once, while they become cold at every turn.
template <class Idle>
void serve_many(std::atomic<bool>& listens, const std::string& name, std::size_t count, Idle idle,
                const shm_options& options, std::size_t& most_cold, std::uint64_t& parks, bool cooling,
                sleep_teller& tells) {
    late_timers time;
    scheduler on{idle, time};
    on.add_source(time);
    on.add_source(tells);
    shm::domain domain(on, options);
    on.run([](shm::domain& in, std::atomic<bool>& ready, const std::string& where, std::size_t links,
              std::size_t& hot, bool cool) -> task<> {
        auto listening = co_await listen<shm>(in, where);
        ready = true;
        ready.notify_all();
        std::vector<std::unique_ptr<endpoint<shm>>> ends;
        for (std::size_t n = 0; n < links; ++n)
            ends.push_back(std::make_unique<endpoint<shm>>(co_await listening.accept()));
        task_group echoes;
        for (auto& end : ends) echoes.spawn(echo, std::ref(*end), std::ref(in), std::ref(hot));
        bool stop = false;
        task_group coolers;
        if (cool) coolers.spawn(cools, std::ref(in), std::cref(stop), std::ref(hot));
        co_await echoes.join();
        stop = true;
        co_await coolers.join();
    }(domain, listens, name, count, most_cold, cooling));
    parks = on.parks();
    on.remove_source(tells);
    on.remove_source(time);
}

/// In each tenth round the server may be awake, or on its way to sleep, when the message comes; in all others it sleeps.
bool waits_for_sleep(int round) { return round % 10 != 9; }

/// `sleeper`: what tells that the server sleeps; null: it never does.
task<> rounds_on_random_links(shm::domain& in, const std::string& where, std::size_t links, int rounds,
                              bool cool, const sleep_teller* sleeper) {
    std::vector<std::unique_ptr<endpoint<shm>>> ends;
    for (std::size_t n = 0; n < links; ++n)
        ends.push_back(std::make_unique<endpoint<shm>>(co_await connect<shm>(in, where)));
    std::mt19937 random(17);
    int wrong = 0;
    bool unwoken = false;
    for (int round = 0; round < rounds && !unwoken; ++round) {
        endpoint<shm>& over = *ends[random() % links];
        const std::uint64_t value = random();
        std::uint64_t back = 0;
        if (cool) in.cool();
        if (sleeper != nullptr && waits_for_sleep(round)) sleeper->until_it_falls_asleep();
        const auto began = std::chrono::steady_clock::now();
        co_await over.send(bytes_of(value));
        co_await timeout(over.recv(room_for(back)), 20s);
        if (back != value) ++wrong;
        unwoken = std::chrono::steady_clock::now() - began > late_timers::woken_within;
    }
    CHECK(wrong == 0);
    CHECK_FALSE(unwoken);
    for (auto& end : ends) co_await end->close();
}

template <class Idle>
void races(Idle idle, const shm_options& options, std::size_t links, int rounds, bool cooling) {
    const std::string name = shm_test_name();
    std::atomic<bool> listens{false};
    std::size_t most_cold = 0;
    std::uint64_t parks = 0;
    sleep_teller tells;
    std::thread server(
        [&] { serve_many(listens, name, links, idle, options, most_cold, parks, cooling, tells); });
    listens.wait(false);
    {
        late_timers time;
        scheduler on{idle, time};
        on.add_source(time);
        shm::domain domain(on, options);
        on.run([](shm::domain& in, const std::string& where, std::size_t count, int times, bool cool,
                  const sleep_teller* sleeper) -> task<> {
            co_await timeout(rounds_on_random_links(in, where, count, times, cool, sleeper), case_limit);
        }(domain, name, links, rounds, cooling, cooling ? nullptr : &tells));
        on.remove_source(time);
    }
    server.join();
    CHECK(most_cold >= links - 2);
    // Once for each round in which the client waited for it, but where a timer was due when it was about to sleep.
    if (!cooling) CHECK(parks > static_cast<std::uint64_t>(rounds) / 10 * 8);
}

}  // namespace

TEST_CASE("no news is lost while links become cold at every turn") {
    races(idle::yield{}, small_links(), 20, 1000, true);
}

TEST_CASE("no news is lost while links become cold at every turn, and there is no membarrier") {
    shm_options options = small_links();
    options.use_membarrier = false;
    races(idle::yield{}, options, 20, 1000, true);
}

TEST_CASE("no news of a cold link is lost by a scheduler that parks at once") {
    races(sleepy(), small_links(), 50, 2000, false);
}

namespace {

/// Links of which all but one are cold.
struct many_links : shm_links {
    explicit many_links(std::size_t count) : shm_links(count, small_links()) { cool(); }
    void cool() {
        for (int n = 0; n < 2; ++n) {  // the first call notes what was read before
            while (near.cool()) {}
            while (far.cool()) {}
        }
    }
    template <class Done>
    bool until(Done done) {
        const auto limit = std::chrono::steady_clock::now() + 30s;
        while (!done()) {
            if (std::chrono::steady_clock::now() > limit) return false;
            on.turn();
        }
        return true;
    }
    bool send(std::size_t over, std::uint64_t number) {
        return links[over]->to_far->post_copied(header_of(number), {}) == post_result::done;
    }
};

}  // namespace

TEST_CASE("marks that a peer clears or sets without sense delay news of others and lose none") {
    many_links m(200);
    REQUIRE(m.far.hot_links() == 1);
    inner::notice_board& board = *m.far.shared_arena().board();
    std::mt19937_64 random(5);
    for (std::uint64_t round = 1; round <= 50; ++round) {
        m.cool();
        const std::size_t over = random() % 199 + 1;
        const std::uint64_t before = m.links[over]->at_far.count;
        REQUIRE(m.send(over, round));
        if (round % 2 == 0) {  // a peer that clears all
            board.marked_groups.store(0);
            for (auto& word : board.marked_links) word.store(0);
        } else {
            board.marked_groups.store(random());
            for (auto& word : board.marked_links) word.fetch_or(random());
        }
        REQUIRE(m.until([&] { return m.links[over]->at_far.count == before + 1; }));
        CHECK(m.links[over]->at_far.messages.back().number == round);
    }
}

TEST_CASE("whatever a peer writes where it asks for notice, sending to it and to others goes on") {
    many_links m(3);
    std::mt19937 random(6);
    // Written by the reader of that direction: links 0 and 1 belong to a hostile one.
    const std::uint32_t odd[] = {
        1,   2,       64,      inner::notice_board::most_links, inner::notice_board::most_links + 1,
        ~0u, ~0u - 1, 1u << 31};
    for (int round = 0; round < 40; ++round) {
        const std::uint32_t word = round < 8 ? odd[round] : static_cast<std::uint32_t>(random());
        for (std::size_t n = 0; n < 2; ++n) {
            m.links[n]->to_near->want_notice(word);
            REQUIRE(m.send(n, 1));
        }
        const std::uint64_t before = m.links[2]->at_far.count;
        REQUIRE(m.send(2, 1));
        REQUIRE(m.until([&] { return m.links[2]->at_far.count == before + 1; }));
    }
    REQUIRE(m.until([&] { return m.links[1]->at_far.count == 40 && m.links[0]->at_far.count == 40; }));
}

TEST_CASE("a cold link notices that its peer is gone, and waits for room and for its own gets") {
    many_links m(10);
    m.links[9]->to_far->close(make_error_code(errc::closed));
    REQUIRE(m.until([&] { return m.links[9]->at_far.downs == 1; }));
    m.links[8]->at_far.refuse_all = true;
    std::uint64_t posted = 0;
    while (m.send(8, posted)) ++posted;
    m.links[8]->at_far.refuse_all = false;
    REQUIRE(m.until([&] { return m.links[8]->at_near.writables == 1; }));
    CHECK(m.links[8]->at_far.count > 0);
}

namespace {

/// Keeps the scheduler for a millisecond at a time, and counts how often it gave it back.
task<> burdens(const bool& stop, unsigned& turns) {
    while (!stop) {
        const auto until = std::chrono::steady_clock::now() + 1ms;
        while (std::chrono::steady_clock::now() < until) {}
        ++turns;
        co_await yield();
    }
}

}  // namespace

TEST_CASE("a loaded domain accepts, and notices a death, within a few turns") {
    scheduler on{impatient{}};
    shm::domain near(on);
    shm::domain far(on);
    on.run([](shm::domain& here, shm::domain& there) -> task<> {
        bool stop = false;
        unsigned turns = 0;
        task_group load;
        load.spawn(burdens, std::cref(stop), std::ref(turns));
        auto listening = co_await listen<shm>(there, shm_test_name());
        for (int n = 0; n < 200; ++n) co_await yield();  // the turns are known to be long
        const unsigned before = turns;
        auto accepting = start(listening.accept());
        auto a = co_await timeout(connect<shm>(here, listening.address()), case_limit);
        auto b = co_await timeout(accepting, case_limit);
        // Two handshakes' steps, each at the next turn or after it, as turns take longer than the pauses between two looks: 3 to 5.
        CHECK(turns - before <= 10);
        auto receiving = start(as_result(b.recv({}, 1)));
        co_await yield();
        const unsigned alive = turns;
        a.abort();
        const auto got = co_await timeout(receiving, case_limit);
        CHECK(got.error() == errc::peer_lost);
        CHECK(turns - alive <= 10);
        stop = true;
        co_await load.join();
    }(near, far));
}

namespace {

inner::unique_fd client_of(const inner::socket_name& name) {
    inner::unique_fd made(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    if (::connect(made.get(), name.raw(), name.length()) != 0) made.reset();
    return made;
}

/// The descriptors that this process has open, up to a bound.
int descriptors() {
    int open = 0;
    for (int fd = 0; fd < 2048; ++fd) open += ::fcntl(fd, F_GETFD) >= 0 ? 1 : 0;
    return open;
}

}  // namespace

TEST_CASE("a listener takes a bounded number of clients between two polls of everything else") {
    scheduler on{impatient{}};
    shm::domain domain(on);
    const inner::socket_name name(shm_test_name());
    inner::acceptor listening(domain, name);
    std::vector<inner::unique_fd> clients;
    for (int n = 0; n < 200; ++n) {
        clients.push_back(client_of(name));
        REQUIRE(clients.back());
    }
    const int before = descriptors();
    domain.arm();  // the next poll looks at the socket
    domain.poll();
    domain.disarm();
    const int taken = descriptors() - before;
    CHECK(taken > 0);
    CHECK(taken <= 32);
}

TEST_CASE("a client waits while its listener's queue is full") {
    scheduler on{impatient{}};
    shm::domain domain(on);
    on.run([](shm::domain& in) -> task<> {
        const inner::socket_name name(shm_test_name());
        const inner::unique_fd listening(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
        REQUIRE(::bind(listening.get(), name.raw(), name.length()) == 0);
        REQUIRE(::listen(listening.get(), 1) == 0);
        std::vector<inner::unique_fd> others;
        for (auto other = client_of(name); other; other = client_of(name)) others.push_back(std::move(other));
        REQUIRE(!others.empty());
        auto connecting = start(as_result(in.connect(name.text())));
        co_await sleep_for(5ms);
        CHECK_FALSE(connecting.done());
        // With room in the queue it goes on, up to what this listener answers.
        std::vector<inner::unique_fd> accepted;
        inner::hello refusal;
        refusal.status = static_cast<std::uint32_t>(errc::permission_denied);
        while (!connecting.done()) {
            inner::unique_fd next(::accept4(listening.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
            if (next) {
                inner::send_hello(next.get(), refusal, nullptr, 0);
                accepted.push_back(std::move(next));
            }
            co_await yield();
        }
        const auto ended = co_await connecting;
        CHECK(ended.error() == errc::permission_denied);
        CHECK(accepted.size() == others.size() + 1);
    }(domain));
}

TEST_CASE("a side without descriptors says so, and does not call its peer a violator") {
    scheduler on;
    shm::domain domain(on);
    const auto segment = inner::segment::create(domain.options().shape);
    const auto own = inner::introduce(domain, domain.options().shape, segment.get());
    int ends[2];
    REQUIRE(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) == 0);
    const inner::unique_fd from(ends[0]);
    const inner::unique_fd to(ends[1]);
    inner::send_hello(from.get(), own.contents, own.descriptors, own.count);
    rlimit before{};
    REQUIRE(::getrlimit(RLIMIT_NOFILE, &before) == 0);
    rlimit none = before;
    none.rlim_cur = static_cast<rlim_t>(to.get()) + 1;  // all below are in use, or as good as that
    REQUIRE(::setrlimit(RLIMIT_NOFILE, &none) == 0);
    std::error_code refused;
    try {
        static_cast<void>(inner::receive_hello(to.get()));
    } catch (const std::system_error& failure) {
        refused = failure.code();
    }
    REQUIRE(::setrlimit(RLIMIT_NOFILE, &before) == 0);
    CHECK(refused == errc::no_resources);
}

}  // namespace test_faults_shm_many_links
