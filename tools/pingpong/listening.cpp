#include "listening.hpp"

#include "cpus.hpp"
#include "failure.hpp"
#include "peer.hpp"
#include "services.hpp"
#include "stall_limit.hpp"
#include "talk.hpp"
#include "transports.hpp"
#include "watch.hpp"

#include <rdmacoro/coro/error.hpp>
#include <rdmacoro/coro/scheduler.hpp>
#include <rdmacoro/coro/timeout.hpp>

#include <cstdio>
#include <exception>
#include <future>
#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

namespace pingpong {

namespace {

/// Throw `run_error` when a client asks for what cannot be done.
void check_exchange(const exchange_message& plan) {
    constexpr std::uint64_t most_bytes = std::uint64_t{1} << 40;
    constexpr std::uint64_t most_window = 65536;
    const bool known = static_cast<std::uint64_t>(plan.test) < all_tests.size();
    if (!known || plan.bytes > most_bytes || plan.window == 0 || plan.window > most_window ||
        plan.count == 0 || plan.count % plan.window != 0 || plan.ack_every == 0) {
        throw run_error("the client asks for something that this version does not do");
    }
    if (plan.buffers == 0 || plan.buffers > plan.window ||
        (plan.verify != 0 && plan.buffers != plan.window)) {
        throw run_error("the client asks for something that this version does not do");
    }
    if (is_service(plan.test) && plan.bytes > longest_value)
        throw run_error("the client asks for longer values than this version takes");
    if (plan.buffers > payload::most_slots(static_cast<std::size_t>(plan.bytes))) {
        throw run_error("the client asks for more memory than this version gives");
    }
}

void check_plan(const plan_message& plan, bool may_have_threads) {
    constexpr std::uint64_t most_threads = 256;
    if (plan.threads == 0 || plan.threads > (may_have_threads ? most_threads : 1))
        throw run_error("the client asks for another number of threads than this version has");
}

/// Further threads of this side, each with a client's connection.
class listening_members {
public:
    listening_members() = default;
    listening_members(const listening_members&) = delete;
    listening_members& operator=(const listening_members&) = delete;
    ~listening_members();

    /// A thread that runs `body`, which listens, gives its address, and serves. Gives that address.
    std::string add(std::function<void(std::promise<std::string>&)> body);
    /// Waits for their ends. Throws what one of them failed with.
    void join();

private:
    struct member {
        std::future<void> ended;
        std::thread thread;
    };
    std::vector<member> members_;
};

listening_members::~listening_members() {
    for (member& one : members_) one.thread.join();
}

std::string listening_members::add(std::function<void(std::promise<std::string>&)> body) {
    std::promise<std::string> told;
    std::promise<void> ends;
    std::future<std::string> place = told.get_future();
    std::future<void> ended = ends.get_future();
    members_.reserve(members_.size() + 1);
    std::thread thread([body = std::move(body), told = std::move(told), ends = std::move(ends)]() mutable {
        try {
            body(told);
            ends.set_value();
        } catch (...) {
            ends.set_exception(std::current_exception());
        }
        // The promise of a thread that never listened is broken here, as its waiter expects.
    });
    members_.push_back({std::move(ended), std::move(thread)});
    try {
        return place.get();
    } catch (const std::future_error&) {
        join();
        throw;
    }
}

void listening_members::join() {
    std::exception_ptr failed;
    for (member& one : members_) {
        one.thread.join();
        try {
            one.ended.get();
        } catch (...) {
            if (!failed) failed = std::current_exception();
        }
    }
    members_.clear();
    if (failed) std::rethrow_exception(failed);
}

/// The address of a further listener beside `address`: any free port, or the name with a number.
std::string further_address(const std::string& address, std::uint64_t index) {
    const std::size_t colon = address.rfind(':');
    if (address.find_first_of('/', colon) == std::string::npos) return address.substr(0, colon) + ":0";
    return address + "." + std::to_string(index);
}

/// Prints why a client's run failed.
void print_failure(const std::exception_ptr& failure) {
    try {
        std::rethrow_exception(failure);
    } catch (const std::exception& error) {
        std::fprintf(stderr, "pingpong: %s\n", error.what());
    }
}

[[noreturn]] void fail_listening(const std::exception_ptr& failure) {
    try {
        std::rethrow_exception(failure);
    } catch (const std::system_error& error) {
        if (error.code() == rdmacoro::errc::peer_lost || error.code() == rdmacoro::errc::closed) {
            throw run_error(std::string("the client vanished: ") + error.what());
        }
        throw;
    }
}

class listening_side {
public:
    /// `leads`: it is the thread that is watched, unless there is a `limit`.
    listening_side(peer& over, bool leads, stall_limit* limit) : peer_(over), leads_(leads), limit_(limit) {}

    /// Serves exchanges until the client sends `bye`. Throws when an exchange failed.
    rdmacoro::task<> serve() {
        std::uint64_t wrong = 0;
        for (;;) {
            expect("waiting for the client to go on", 0);
            const control_message message = co_await peer_.receive();
            if (kind_of(message.raw, message.bytes) == control_kind::bye) {
                const auto bye = decode<bye_message>(message.raw, message.bytes);
                if (wrong != 0) throw run_error(std::to_string(wrong) + " messages arrived wrong");
                if (bye.failed != 0) throw run_error("the client gave up");
                co_return;
            }
            const auto plan = decode<exchange_message>(message.raw, message.bytes);
            check_exchange(plan);
            co_await serve_one(plan);
            wrong += exchange_.found.wrong;
        }
    }

private:
    void expect(const std::string& what, std::uint64_t steps) {
        if (limit_ != nullptr) {
            limit_->expect(what);
        } else if (leads_) {
            watch::expect(what, steps);
        }
    }

    rdmacoro::task<> serve_one(exchange_message plan) {
        exchange_.prepare(plan);
        expect(std::string(facts_of(plan.test).name), plan.count);
        const bool service = is_service(plan.test);
        if (service) services().prepare(exchange_, false);
        const rdmacoro::region memory = open_memory(plan.test);
        const rdmacoro::remote_region remote = memory ? memory.remote() : rdmacoro::remote_region{};
        co_await send_control(peer_, ready_message{std::bit_cast<std::array<std::uint64_t, 4>>(remote)});
        if (service) {
            co_await services_->answer();
        } else {
            co_await peer_.answer(exchange_);
        }
        co_await send_control(peer_, done_message{exchange_.found});
    }

    /// The memory that the client can reach in this exchange.
    [[nodiscard]] rdmacoro::region open_memory(test_kind test) {
        if (!is_one_sided(test)) return {};
        payload& memory = test == test_kind::get ? exchange_.out : exchange_.in;
        return peer_.register_memory(memory.whole(), test == test_kind::get
                                                         ? rdmacoro::access_rights::remote_read
                                                         : rdmacoro::access_rights::remote_write);
    }

    service_side& services() {
        if (!services_) services_ = peer_.make_services();
        return *services_;
    }

    peer& peer_;
    const bool leads_;
    stall_limit* const limit_;
    exchange exchange_;
    std::unique_ptr<service_side> services_;  // from the first such test on
};

void listen_as_member(const options& asked, std::uint64_t index, idle_kind idle,
                      std::promise<std::string>& place);

/// One client, from its plan to its goodbye. `leads`: it may ask for further threads, and is watched. One that stands still ends the process,
/// or, where others come after it, its link.
rdmacoro::task<> serve_client(peer& over, const options& asked, idle_kind& idle, bool leads) {
    std::exception_ptr failed;
    listening_members members;
    std::optional<stall_limit> limit;
    try {
        const control_message first = co_await rdmacoro::timeout(over.receive(), greeting_limit);
        if (kind_of(first.raw, first.bytes) == control_kind::bye) {
            // It connected for the link's table only.
            co_await over.close();
            co_return;
        }
        const auto plan = decode<plan_message>(first.raw, first.bytes);
        if (!asked.idle && plan.idle < idle_names.size()) idle = static_cast<idle_kind>(plan.idle);
        const int cpu = cpu_of(asked, false, 0);
        check_plan(plan, leads);
        if (asked.forever) {
            limit.emplace(over).begin(plan.timeout_seconds);
        } else if (leads) {
            watch::begin("pingpong, listening side", plan.timeout_seconds, false);
        }
        co_await send_control(over, answer_message{.cpu_plus_one = static_cast<std::uint64_t>(cpu + 1),
                                                   .idle = static_cast<std::uint64_t>(idle)});
        for (std::uint64_t index = 1; index < plan.threads; ++index) {
            const std::string place =
                members.add([&asked, index, resting = idle](std::promise<std::string>& told) {
                    listen_as_member(asked, index, resting, told);
                });
            co_await send_control(over, place_of(place));
        }
        listening_side side(over, leads, limit ? &*limit : nullptr);
        co_await side.serve();
    } catch (...) {
        failed = std::current_exception();
    }
    if (leads) watch::stop();
    if (limit) co_await limit->end();
    if (over.is_open()) co_await over.close();
    try {
        members.join();
    } catch (...) {
        if (!failed) failed = std::current_exception();
    }
    if (limit) limit->check();
    if (failed) fail_listening(failed);
}

rdmacoro::task<> serve_one_client(const options& asked, std::uint64_t index, idle_kind& idle,
                                  std::promise<std::string>& place) {
    std::unique_ptr<peer_listener> listener =
        co_await list_of(asked).listen(further_address(asked.where.whole, index));
    place.set_value(listener->address());
    const std::unique_ptr<peer> over = co_await rdmacoro::timeout(listener->accept(), greeting_limit);
    listener.reset();
    co_await serve_client(*over, asked, idle, false);
}

/// The body of a further thread.
void listen_as_member(const options& asked, std::uint64_t index, idle_kind idle,
                      std::promise<std::string>& place) {
    if (!asked.cpus.empty()) pin_to(cpu_of(asked, false, static_cast<std::size_t>(index)));
    rdmacoro::scheduler owner{chosen_idle(&idle)};
    owner.run(serve_one_client(asked, index, idle, place));
}

}  // namespace

rdmacoro::task<> listen_and_serve(const options& asked, idle_kind& idle,
                                  const std::function<void(const std::string&)>& listening) {
    const idle_kind resting = idle;
    std::unique_ptr<peer_listener> listener = co_await list_of(asked).listen(asked.where.whole);
    listening(listener->address());
    for (;;) {
        const std::unique_ptr<peer> over = co_await listener->accept();
        if (!asked.forever) listener.reset();
        std::exception_ptr failed;
        try {
            co_await serve_client(*over, asked, idle, true);
        } catch (...) {
            failed = std::current_exception();
        }
        if (!asked.forever) {
            if (failed) std::rethrow_exception(failed);
            co_return;
        }
        if (failed) print_failure(failed);
        idle = resting;
    }
}

}  // namespace pingpong
