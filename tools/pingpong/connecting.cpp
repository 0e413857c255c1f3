#include "connecting.hpp"

#include "cpus.hpp"
#include "crew.hpp"
#include "failure.hpp"
#include "idle_choice.hpp"
#include "peer.hpp"
#include "rows.hpp"
#include "services.hpp"
#include "sizes.hpp"
#include "talk.hpp"
#include "transports.hpp"
#include "watch.hpp"

#include <rdmacoro/coro/as_result.hpp>
#include <rdmacoro/coro/error.hpp>
#include <rdmacoro/coro/scheduler.hpp>
#include <rdmacoro/coro/timeout.hpp>

#include <algorithm>
#include <chrono>
#include <exception>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace pingpong {

namespace {

/// Throws the exception that ended a run again, as a `run_error` that names the step `during` which it happened.
[[noreturn]] void explain_failure(const std::exception_ptr& failure, const std::string& during) {
    try {
        std::rethrow_exception(failure);
    } catch (const std::system_error& error) {
        const bool gone = error.code() == rdmacoro::errc::peer_lost || error.code() == rdmacoro::errc::closed;
        if (gone && during != "connecting") {
            throw run_error("the peer vanished during " + during + ": " + error.what());
        }
        if (error.code() == rdmacoro::errc::protocol_mismatch) {
            throw run_error(std::string(error.what()) + "; give both sides the same --protocol");
        }
        throw run_error(during + ": " + error.what());
    }
}

class connecting_side {
public:
    /// `leads`: the thread that decides; the others do as `crew` says.
    connecting_side(peer& over, const options& asked, crew& among, bool leads)
        : peer_(over), asked_(asked), crew_(among), leads_(leads) {
        if (leads) ticks_ = calibrate_ticks();
    }

    rdmacoro::task<answer_message> greet(idle_kind idle) {
        co_await send_control(peer_, plan_message{.idle = static_cast<std::uint64_t>(idle),
                                                  .timeout_seconds = asked_.timeout_seconds,
                                                  .threads = leads_ ? crew_.members() + 1 : 1});
        auto answer = receive_control<answer_message>(peer_);
        if (asked_.timeout_seconds == 0) co_return co_await std::move(answer);
        auto limited = rdmacoro::timeout(std::move(answer), std::chrono::seconds(asked_.timeout_seconds));
        auto came = co_await rdmacoro::as_result(std::move(limited));
        if (came.error() == rdmacoro::errc::timed_out)
            throw run_error("the greeting was not answered for " + std::to_string(asked_.timeout_seconds) +
                            " s: one that serves another client answers when that has ended; --timeout "
                            "allows longer, 0 forever");
        co_return std::move(came).value();
    }

    /// Warms up, finds out how many messages take about a second unless a number was given, and measures.
    rdmacoro::task<result_row> measure(row_request row) {
        doing_ = std::string(facts_of(row.test).name) + ", " + size_text(row.bytes);
        row.window = std::min<std::uint64_t>(row.window, most_window(row));
        if (asked_.iterations) row.window = std::min(row.window, *asked_.iterations);
        row.buffers = buffers_of(row);
        const std::uint64_t window = row.window;
        const auto whole = [window](std::uint64_t count) { return (count + window - 1) / window * window; };
        if (asked_.warmup && *asked_.warmup != 0) {
            check_samples(row, whole(*asked_.warmup), "--warmup");
            co_await run(row, whole(*asked_.warmup), false);
        }
        std::uint64_t count = asked_.iterations.value_or(0);
        if (!asked_.iterations || !asked_.warmup) {
            // Trials, each longer than the one before, until one is long enough to extrapolate from.
            std::uint64_t trial = window;
            double took = co_await run(row, trial, false);
            while (took < trial_seconds && (!asked_.iterations || trial < count)) {
                const std::uint64_t longer = count_for(1.5 * trial_seconds, trial, took, window);
                trial = std::max(trial * 2, std::min(trial * 16, longer));
                took = co_await run(row, trial, false);
            }
            if (!asked_.iterations) count = count_for(1.0, trial, took, window);
        }
        count = whole(count);
        check_spoil(row, count);
        check_samples(row, count, "--iterations");
        const double took = co_await run(row, count, true);
        co_return summarize_row(row, count, took);
    }

    /// Does what the leader does, until that has no more to do.
    rdmacoro::task<> take_part() {
        while (const std::optional<crew::step> step = crew_.next())
            static_cast<void>(co_await run(*step->row, step->count, step->counts));
    }

    /// Ends what the services need of the connection, which is about to be closed.
    void rest() noexcept { services_.reset(); }

    [[nodiscard]] const std::string& doing() const noexcept { return doing_; }
    [[nodiscard]] const tick_facts& ticks() const noexcept { return ticks_; }

private:
    static constexpr double trial_seconds = 0.03;
    static constexpr std::uint64_t most_samples = 100'000'000;
    static constexpr std::uint64_t messages_between_acks = 2048;

    /// The run takes this many times, whether they count or not.
    static void check_samples(const row_request& row, std::uint64_t count, const char* option) {
        const bool each = row.test == test_kind::call;  // has a time of its own
        if (count / (each ? 1 : row.window) <= most_samples) return;
        throw run_error(std::string(option) + ": at most " + std::to_string(most_samples) +
                        (each ? " calls" : " windows") + " fit into the memory for their times");
    }

    /// A message that is to be spoilt, and is not, would look like one that is found right.
    void check_spoil(const row_request& row, std::uint64_t count) const {
        if (!asked_.spoil) return;
        if (row.bytes == 0)
            throw run_error("--spoil: " + doing_ + ": a message of 0 bytes has none to fill wrongly");
        if (*asked_.spoil >= count)
            throw run_error("--spoil: " + doing_ + ": there is no message " + std::to_string(*asked_.spoil) +
                            " of " + std::to_string(count) + ", which are numbered from 0");
    }

    /// When verifying, every message of a window needs a buffer of its own.
    [[nodiscard]] std::uint64_t most_window(const row_request& row) const noexcept {
        return asked_.verify ? payload::most_slots(row.bytes) : ~std::uint64_t{0};
    }
    [[nodiscard]] std::uint64_t buffers_of(const row_request& row) const noexcept {
        if (asked_.verify) return row.window;
        return std::min({asked_.buffers, row.window, std::uint64_t{payload::most_slots(row.bytes)}});
    }

    /// One exchange; gives the seconds it took.
    rdmacoro::task<double> run(row_request row, std::uint64_t count, bool counts) {
        const exchange_message plan{
            .phase = ++phase_,
            .test = row.test,
            .bytes = row.bytes,
            .count = count,
            .window = row.window,
            .buffers = row.buffers,
            .ack_every = std::max<std::uint64_t>(1, messages_between_acks / row.window),
            .verify = asked_.verify ? 1u : 0u,
            .spoil = counts ? asked_.spoil.value_or(exchange_message::nothing) : exchange_message::nothing};
        exchange_.prepare(plan);
        exchange_.samples.prepare(
            static_cast<std::size_t>(row.test == test_kind::call ? count : plan.windows()));
        const bool service = is_service(row.test);
        if (service) services().prepare(exchange_, true);
        if (leads_) {
            crew_.begin({&row, count, counts});
            watch::expect(doing_, plan.count);
        }
        co_await send_control(peer_, plan);
        const auto ready = co_await receive_control<ready_message>(peer_);
        const rdmacoro::metrics before = peer_.counts();
        crew_.meet();
        tick_count took = 0;
        if (service) {
            took = co_await services_->ask();
        } else {
            took = co_await peer_.ask(exchange_, ready.remote());
        }
        carried_ = carried(before, peer_.counts());
        const auto done = co_await receive_control<done_message>(peer_);
        if (exchange_.found.wrong != 0) fail_verification(row, plan, exchange_.found, "here");
        if (done.found.wrong != 0) fail_verification(row, plan, done.found, "at the listening side");
        if (!leads_) {
            crew_.done(took, exchange_.samples.all(), carried_);
            co_return 0;
        }
        const crew::findings others = crew_.collect();
        watch::rest();
        took = std::max(took, others.longest);
        exchange_.samples.append(others.samples);
        add_carried(carried_, others.carried);
        co_return static_cast<double>(took) * ticks_.ns * 1e-9;
    }

    [[nodiscard]] result_row summarize_row(const row_request& row, std::uint64_t count, double took_s) {
        const std::span<tick_count> samples = exchange_.samples.all();
        // Both directions of a round trip are messages; so are those of both sides.
        const bool half = goes_there_and_back(row.test, row.window);
        const bool both_ways = half || row.test == test_kind::bidirectional;
        const double parts = half ? 2.0 : row.test == test_kind::call ? 1.0 : static_cast<double>(row.window);
        count *= crew_.members() + 1;
        const double messages = static_cast<double>(count) * (both_ways ? 2.0 : 1.0);
        result_row done;
        done.test = row.test;
        done.policy = policy_of(row);
        // A stream's reader sends requests and credits.
        if (!is_one_sided(row.test) && row.test != test_kind::stream) done.carried = carried_;
        done.bytes = row.bytes;
        done.iterations = count;
        done.window = row.window;
        done.buffers = row.buffers;
        done.samples = samples.size();
        done.times = summarize(samples, ticks_.ns / parts);
        done.messages_per_s = messages / took_s;
        done.bytes_per_s = done.messages_per_s * static_cast<double>(row.bytes);
        return done;
    }

    /// A call or cast is longer than its value by its head, which may be what takes it over a limit: of those it is what carried most.
    [[nodiscard]] std::string policy_of(const row_request& row) const {
        if (is_one_sided(row.test)) return std::string(facts_of(row.test).name);
        const bool has_head = row.test == test_kind::call || row.test == test_kind::cast;
        if (!has_head || carried_.empty()) return peer_.policy_of(row.bytes);
        return std::string(
            std::max_element(carried_.begin(), carried_.end(), [](const carried_by& a, const carried_by& b) {
                return a.messages < b.messages;
            })->policy);
    }

    service_side& services() {
        if (!services_) services_ = peer_.make_services();
        return *services_;
    }

    peer& peer_;
    const options& asked_;
    crew& crew_;
    const bool leads_;
    tick_facts ticks_{};
    exchange exchange_;
    std::unique_ptr<service_side> services_;  // from the first such test on
    std::vector<carried_by> carried_;
    std::uint64_t phase_ = 0;
    std::string doing_ = "the greeting";
};

rdmacoro::task<> measure_all(connecting_side& side, const peer& over, const options& asked, reporter& out,
                             answer_message answer) {
    const std::vector<row_request> rows = rows_of(asked);
    const idle_kind idle = asked.idle.value_or(idle_kind::adaptive);
    check_rows(over, asked, rows);
    run_facts facts;
    facts.transport = over.transport_name();
    facts.peer = asked.where.whole;
    facts.protocols = over.protocols();
    facts.idle = idle_names[static_cast<std::size_t>(idle)];
    if (answer.idle != static_cast<std::uint64_t>(idle) && answer.idle < idle_names.size()) {
        facts.idle += " and " + std::string(idle_names[static_cast<std::size_t>(answer.idle)]);
    }
    facts.cpu = cpu_of(asked, true, 0);
    facts.peer_cpu = static_cast<int>(answer.cpu_plus_one) - 1;
    facts.clock_step_ns = side.ticks().step_ns;
    out.begin(facts);
    for (const row_request& row : rows) out.add(co_await side.measure(row));
}

/// Ends a side's connection, in good order where it can.
rdmacoro::task<> leave(connecting_side& side, peer& over, bool failed) {
    side.rest();
    if (!over.is_open()) co_return;
    co_await send_control(over, bye_message{.failed = failed ? 1u : 0u});
    co_await over.close();
}

/// A thread beside the leader.
rdmacoro::task<> connect_and_take_part(const options& asked, crew& among, std::string address) {
    std::exception_ptr failure;
    std::string during = "connecting";
    try {
        const std::unique_ptr<peer> over = co_await list_of(asked).connect(address);
        connecting_side side(*over, asked, among, false);
        std::exception_ptr failed;
        try {
            static_cast<void>(co_await side.greet(asked.idle.value_or(idle_kind::adaptive)));
            among.meet();  // all are connected
            co_await side.take_part();
        } catch (...) {
            failed = std::current_exception();
            among.fail(failed);
        }
        during = "a further thread's part";
        co_await leave(side, *over, failed != nullptr);
        if (failed) std::rethrow_exception(failed);
    } catch (...) {
        failure = std::current_exception();
    }
    if (failure) explain_failure(failure, during);
}

void run_member(const options& asked, crew& among, const std::string& address, std::size_t index) {
    if (!asked.cpus.empty()) pin_to(cpu_of(asked, true, index));
    const idle_kind idle = asked.idle.value_or(idle_kind::adaptive);
    rdmacoro::scheduler owner{chosen_idle(&idle)};
    owner.run(connect_and_take_part(asked, among, address));
}

}  // namespace

rdmacoro::task<> connect_and_measure(const options& asked, reporter& out) {
    std::exception_ptr failure;
    std::string during = "connecting";
    try {
        const std::unique_ptr<peer> over = co_await list_of(asked).connect(asked.where.whole);
        crew among(asked.threads - 1);
        connecting_side side(*over, asked, among, true);
        std::exception_ptr failed;
        try {
            watch::begin("pingpong", asked.timeout_seconds, true);
            const answer_message answer = co_await side.greet(asked.idle.value_or(idle_kind::adaptive));
            watch::expect("connecting all threads", 0);
            std::vector<std::string> places;
            while (places.size() < among.members()) {
                const auto place = co_await receive_control<place_message>(*over);
                places.push_back(address_at(place, asked.where.whole));
                watch::moved();
            }
            among.start([&asked, &among, places](std::size_t index) {
                run_member(asked, among, places[index - 1], index);
            });
            among.meet();
            co_await measure_all(side, *over, asked, out, answer);
        } catch (...) {
            failed = std::current_exception();
            among.fail(failed);
        }
        watch::rest();
        among.end();
        during = side.doing();
        co_await leave(side, *over, failed != nullptr);
        if (failed) std::rethrow_exception(failed);
    } catch (...) {
        failure = std::current_exception();
    }
    watch::stop();
    if (failure) explain_failure(failure, during);
}

}  // namespace pingpong
