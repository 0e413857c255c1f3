// Processes that say their word and leave while each of all stands still for a moment now and then, as on a machine that is busy: what was sent, and
// closed in good order, is heard. Coroutines find that more has happened than one step since they were made ready.

#include "support/catch.hpp"
#include "support/child_process.hpp"
#include "support/nodes.hpp"

#include <rdmacoro/coro/coro.hpp>
#include <rdmacoro/messaging/connect.hpp>
#include <rdmacoro/service/node.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstring>
#include <functional>
#include <memory>
#include <new>
#include <random>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <sys/mman.h>

namespace test_faults_stopped_at_random {

using namespace rdmacoro;
using namespace rdmacoro::test;
using namespace std::chrono_literals;

namespace {

constexpr unsigned clients = 4;
constexpr unsigned lives = 4;  // of each client

/// In memory that all processes share.
struct notes {
    std::array<char, 200> address{};
    std::atomic<bool> listens{false};
    std::atomic<unsigned> heard{0};

    void tell(std::string_view where) {
        std::memcpy(address.data(), where.data(), std::min(where.size(), address.size() - 1));
        listens = true;
    }
};

/// The processes of a case; the one that runs it has no scheduler.
struct roles {
    void (*server)(notes& of);
    void (*client)(const std::string& where, unsigned number);
};

/// Runs the processes once, and stops them at random until they have ended. The number of stops.
unsigned run_once(const roles& all, std::minstd_rand& random) {
    void* const memory =
        ::mmap(nullptr, sizeof(notes), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    REQUIRE(memory != MAP_FAILED);
    notes& of = *new (memory) notes;
    unsigned stops = 0;
    {
        std::vector<std::unique_ptr<child_process>> processes;
        processes.push_back(std::make_unique<child_process>([&](const std::string&) { all.server(of); }));
        processes.back()->tell("begin");
        while (!of.listens) {
            int status = 0;
            REQUIRE_FALSE(processes.back()->ended(status));
            std::this_thread::sleep_for(100us);
        }
        for (unsigned n = 0; n < clients; ++n)
            processes.push_back(
                std::make_unique<child_process>([&, n](const std::string& where) { all.client(where, n); }));
        for (unsigned n = 0; n < clients; ++n) processes[n + 1]->tell(of.address.data());
        std::vector<child_process*> run;
        for (const auto& one : processes) run.push_back(one.get());
        while (!run.empty()) {
            const std::size_t at = random() % run.size();
            int status = 0;
            if (run[at]->ended(status)) {
                CAPTURE(at);
                CHECK(status == 0);
                run.erase(run.begin() + static_cast<std::ptrdiff_t>(at));
                continue;
            }
            ::kill(run[at]->pid(), SIGSTOP);
            ++stops;
            std::this_thread::sleep_for(std::chrono::microseconds(random() % 3000));
            ::kill(run[at]->pid(), SIGCONT);
            std::this_thread::sleep_for(std::chrono::microseconds(random() % 1000));
        }
    }
    CHECK(of.heard == clients * lives);
    ::munmap(memory, sizeof(notes));
    return stops;
}

void run_for_a_while(const roles& all) {
    std::minstd_rand random(seed());
    unsigned stops = 0;
    const auto until = std::chrono::steady_clock::now() + 3s;
    do stops += run_once(all, random);
    while (std::chrono::steady_clock::now() < until);
    CHECK(stops >= clients);
}

bool is_word(const message& got) {
    return std::string_view(reinterpret_cast<const char*>(got.bytes().data()), got.size()) == "my word";
}

// ---- endpoints

template <class T>
task<> hear_one(endpoint<T> peer, notes& of) {
    const message got = co_await peer.recv_lent(1);
    if (is_word(got)) ++of.heard;
    const auto next = co_await as_result(peer.recv_lent());
    if (next.error() != errc::closed) throw error(next.error());
}
template <class T>
task<> hear_all(notes& of) {
    auto listening = co_await listen<T>(fresh_url<T>());
    of.tell(listening.address());
    task_group hearing;
    for (unsigned n = 0; n < clients * lives; ++n)
        hearing.spawn(hear_one<T>, co_await listening.accept(), std::ref(of));
    co_await hearing.join();
}
template <class T>
task<> say_often(std::string where) {
    for (unsigned life = 0; life < lives; ++life) {
        auto peer = co_await connect<T>(where);
        co_await peer.send(std::string_view("my word"), 1);
        co_await peer.close();
    }
}

// ---- nodes

template <class T>
task<> hear_node(node<T>& here, unsigned number, notes& of) {
    auto peer = here.peer(100 + number);
    for (unsigned heard = 0; heard < lives;) {
        const auto got = co_await as_result(peer.recv_lent(1));
        // A receive between two lives may hear that the former has left, and nothing else.
        if (!got && got.error() != errc::closed) throw error(got.error());
        if (got && is_word(*got)) {
            ++heard;
            ++of.heard;
        }
    }
}
template <class T>
task<> hear_nodes(notes& of) {
    node<T> here(1);
    of.tell(co_await here.listen(fresh_url<T>()));
    task_group hearing;
    for (unsigned n = 0; n < clients; ++n) hearing.spawn(hear_node<T>, std::ref(here), n, std::ref(of));
    co_await hearing.join();
    co_await here.close();
}
template <class T>
task<> be_often(std::string where, unsigned number) {
    for (unsigned life = 0; life < lives; ++life) {
        node<T> here(100 + number);
        here.add({.id = 1, .urls = {where}});
        co_await say(here.peer(1), "my word");
        co_await here.close();
    }
}

}  // namespace

TEMPLATE_LIST_TEST_CASE(
    "endpoints that say a word and close are heard, whichever process stands still for a moment", "",
    node_transports) {
    run_for_a_while(
        {[](notes& of) { scheduler{}.run(hear_all<TestType>(of)); },
         [](const std::string& where, unsigned) { scheduler{}.run(say_often<TestType>(where)); }});
}

TEMPLATE_LIST_TEST_CASE(
    "nodes that say a word and leave are heard, whichever process stands still for a moment", "",
    node_transports) {
    run_for_a_while({[](notes& of) { scheduler{}.run(hear_nodes<TestType>(of)); },
                     [](const std::string& where, unsigned number) {
                         scheduler{}.run(be_often<TestType>(where, number));
                     }});
}

}  // namespace test_faults_stopped_at_random
