#include <rdmacoro/service/job.hpp>

#include "support/catch.hpp"
#include "support/meeting.hpp"
#include "support/nodes.hpp"
#include "support/pmi_server.hpp"

#include <rdmacoro/coro/coro.hpp>
#include <rdmacoro/service/detail/job_blob.hpp>
#include <rdmacoro/service/detail/meeting_launcher.hpp>

#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <thread>

namespace test_service_job {

using namespace rdmacoro;
using namespace rdmacoro::test;
using namespace std::chrono_literals;
using detail::launch_environment;

namespace {

#if RDMACORO_WITH_TCP
using job_node = node<shm, tcp>;
#else
using job_node = node<shm>;
#endif

/// A rank within this process.
struct member {
    explicit member(node_id id) : here(id, node_options{.connect_limit = 10s}) {}
    job_node here;
    std::optional<job> ranks;
    std::error_code code;
    std::string text;
};
using members = std::vector<std::unique_ptr<member>>;

template <class... Ids>
std::vector<node_id> ids(Ids... each) {
    return {static_cast<node_id>(each)...};
}

task<> join(member& one, const launch_environment& given, const job_options& asked) {
    launch_environment from = given;
    job_options options = asked;
    try {
        job made = co_await detail::join_job_of(one.here, std::move(options), std::move(from));
        one.ranks.emplace(std::move(made));
    } catch (const std::system_error& failed) {
        one.code = failed.code();
        one.text = failed.what();
    }
}

task<> join_as(member& one, launch_environment from, job_options options) {
    co_await join(one, from, options);
}

/// Joins all of them at once: `environment(rank)`.
template <class F>
task<members> join_all(std::vector<node_id> of, F environment, job_options options) {
    members all;
    task_group joining;
    for (std::uint32_t rank = 0; rank < of.size(); ++rank) {
        if (of[rank] == 0) {  // never comes
            all.emplace_back();
            continue;
        }
        all.push_back(std::make_unique<member>(of[rank]));
        joining.spawn(join_as, std::ref(*all.back()), environment(rank), options);
    }
    co_await joining.join();
    co_return all;
}

/// Each rank sends to the next and hears from the one before.
task<> go_around(members& all) {
    const auto size = static_cast<std::uint32_t>(all.size());
    for (std::uint32_t rank = 0; rank < size; ++rank) {
        const job& ranks = *all[rank]->ranks;
        auto next = all[rank]->here.peer(ranks.node_of((rank + 1) % size));
        auto before = all[(rank + 1) % size]->here.peer(ranks.node_of(rank));
        co_await say(next, "from " + std::to_string(rank));
        const std::string heard = co_await hear(before);
        CHECK(heard == "from " + std::to_string(rank));
    }
}

job_options quick(duration limit = 10s) {
    job_options options;
    options.limit = limit;
    return options;
}
task<> without_value(task<job> joining) { static_cast<void>(co_await std::move(joining)); }

const launch_environment nothing;

/// A process with one rank here.
task<member*> join_one(std::unique_ptr<member>& one, const launch_environment& from,
                       const job_options& options) {
    one = std::make_unique<member>(1);
    co_await join(*one, from, options);
    co_return one.get();
}

}  // namespace

TEST_CASE("ranks that a launcher started over PMI know each other, and send messages by their ids") {
    for (const int version : {1, 2}) {
        run_nodes([&]() -> task<> {
            pmi_server server(3, version, "(vector,(0,1,3))");
            const auto environment = [&](std::uint32_t rank) { return server.environment(rank); };
            members all = co_await join_all(ids(1, 2, 3), environment, quick());
            for (std::uint32_t rank = 0; rank < 3; ++rank) {
                INFO(all[rank]->text);
                REQUIRE(all[rank]->ranks);
                const job& ranks = *all[rank]->ranks;
                CHECK(ranks.rank() == rank);
                CHECK(ranks.size() == 3);
                CHECK(ranks.local_rank() == rank);
                CHECK(ranks.ranks_on_this_host().size() == 3);
                CHECK(ranks.hosts() == 1);
                CHECK(ranks.launcher() == "PMI-" + std::to_string(version));
                for (std::uint32_t other = 0; other < 3; ++other) {
                    CHECK(ranks.card(other) == all[other]->here.card());
                    CHECK(ranks.cards(other).size() == 2);
                }
                CHECK(ranks.card(rank).urls.front().starts_with("shm://job-"));
#if RDMACORO_WITH_TCP
                CHECK(ranks.card(rank).urls.back().starts_with("tcp://127.0.0.1:"));
#endif
                CHECK_THAT(ranks.explain(), contains("3 ranks on 1 host") && contains("this one"));
                CHECK(all[rank]->here.connections() == 0);
            }
            CHECK(server.finalized() == 3);
            co_await go_around(all);
            const auto beyond = error_of([&] { static_cast<void>(all[0]->ranks->node_of(3)); });
            CHECK(beyond.first == errc::invalid_argument);
            CHECK(beyond.second.starts_with("rank 3 of a job of 3"));
        });
    }
}

TEST_CASE(
    "ranks meet at an address, and ask each other for their hosts where the environment does not say them") {
    run_nodes([]() -> task<> {
        served_meeting meeting(3);
        const auto environment = [&](std::uint32_t rank) {
            return launch_environment(meeting.variables(rank, 3));
        };
        members all = co_await join_all(ids(5, 9, 7), environment, quick());
        for (const auto& one : all) {
            INFO(one->text);
            REQUIRE(one->ranks);
            CHECK(one->ranks->launcher() == "tcp://" + meeting.server.address());
            CHECK(one->ranks->node_of(1) == 9);
            CHECK(one->ranks->hosts() == 1);
        }
        co_await go_around(all);
    });
}

#if RDMACORO_WITH_TCP
TEST_CASE("ranks on hosts that the launcher calls different reach each other without shared memory") {
    run_nodes([]() -> task<> {
        served_meeting meeting(3);
        const auto environment = [&](std::uint32_t rank) {
            auto variables = meeting.variables(rank, 3);
            variables["RDMACORO_HOST"] = rank == 1 ? "beta" : "alpha";
            variables["RDMACORO_ADDRESS"] = "127.0.0.1";
            return launch_environment(variables);
        };
        members all = co_await join_all(ids(1, 2, 3), environment, quick());
        for (const auto& one : all) {
            INFO(one->text);
            REQUIRE(one->ranks);
            CHECK(one->ranks->hosts() == 2);
            CHECK(one->ranks->host_of(0) == 0);
            CHECK(one->ranks->host_of(1) == 1);
            CHECK(one->ranks->host_of(2) == 0);
        }
        CHECK(all[2]->ranks->local_rank() == 1);
        const auto here = all[0]->ranks->ranks_on_this_host();
        CHECK(std::vector<std::uint32_t>(here.begin(), here.end()) == std::vector<std::uint32_t>{0, 2});
        co_await go_around(all);
        CHECK_THAT(all[0]->here.explain(2), contains("tcp"));
        CHECK_THAT(all[0]->here.explain(3), contains("shm"));
    });
}

TEST_CASE("where the launcher calls two hosts one a rank that would listen at 127.0.0.1 does not join") {
    for (const bool has_address : {false, true}) {
        INFO(has_address);
        run_nodes([&]() -> task<> {
            served_meeting meeting(2);
            const auto variables = [&](std::uint32_t rank) {
                auto all = meeting.variables(rank, 2);
                all["RDMACORO_LOCAL_SIZE"] = "2";
                if (has_address) all["RDMACORO_ADDRESS"] = "127.0.0.1";
                return all;
            };
            detail::job_blob far;
            far.host = host_identity::own();
            ++far.host.network;
            far.cards.assign(
                2, node_card{
                       .id = 2, .born = new_generation(), .host = far.host, .urls = {"tcp://127.0.0.1:9"}});
            std::string failure_there;
            std::thread other([&] {
                failure_there = error_of([&] {
                                    detail::meeting_launcher one{launch_environment(variables(1))};
                                    one.open(patience_of(20s));
                                    static_cast<void>(one.exchange(encode_job_blob(far), patience_of(20s)));
                                    one.leave(patience_of(20s));
                                }).second;
            });
            std::unique_ptr<member> one;
            const member* const joined = co_await join_one(one, launch_environment(variables(0)), quick(20s));
            other.join();
            CHECK(failure_there == "");
            INFO(joined->text);
            CHECK(joined->ranks.has_value() == has_address);
            if (!has_address) {
                CHECK(joined->code == errc::address_invalid);
                CHECK_THAT(joined->text,
                           contains("rank 1 runs under another kernel or in another network than rank 0") &&
                               contains("set RDMACORO_ADDRESS"));
            }
        });
    }
}

TEST_CASE("a transport that cannot listen is left out, and the job says why; where none can, joining fails") {
    run_nodes([]() -> task<> {
        std::unique_ptr<member> one;
        job_options options = quick();
        options.alone = true;
        options.address = "192.0.2.1";  // of no host
        const member* const joined = co_await join_one(one, nothing, options);
        INFO(joined->text);
        REQUIRE(joined->ranks);
        CHECK_THAT(joined->ranks->explain(), contains("not listening at tcp://192.0.2.1:0"));
        served_meeting meeting(1);
        auto variables = meeting.variables(0, 1);
        variables["RDMACORO_ADDRESS"] = "192.0.2.1";
        node<tcp> alone(1);
        task<> joining =
            without_value(detail::join_job_of(alone, job_options(), launch_environment(variables)));
        const failure failed = co_await failing(std::move(joining));
        CHECK(failed.code == errc::address_invalid);
        CHECK_THAT(failed.text, contains("listens nowhere") && contains("192.0.2.1"));
    });
}
#endif

TEST_CASE("a node that listens already, or is told where to, is joined as it is") {
    run_nodes([]() -> task<> {
        std::unique_ptr<member> one = std::make_unique<member>(4);
        const std::string url = co_await one->here.listen(fresh_url<shm>());
        job_options options = quick();
        options.alone = true;
        co_await join(*one, nothing, options);
        REQUIRE(one->ranks);
        CHECK(one->ranks->card(0).urls == std::vector<std::string>{url});
        CHECK(one->ranks->launcher() == "alone");
        CHECK(one->ranks->size() == 1);
        member other(5);
        const std::vector<std::string> urls{fresh_url<shm>()};
        options.urls = urls;
        co_await join(other, nothing, options);
        REQUIRE(other.ranks);
        CHECK(other.ranks->card(0).urls == urls);
    });
}

TEST_CASE("two ranks with one node id are an error on every rank, with both in the text") {
    run_nodes([]() -> task<> {
        pmi_server server(3);
        const auto environment = [&](std::uint32_t rank) { return server.environment(rank); };
        members all = co_await join_all(ids(4, 6, 4), environment, quick());
        for (const auto& one : all) {
            CHECK(one->code == errc::invalid_argument);
            CHECK_THAT(one->text, contains("ranks 0 and 2 both have a node of id 4"));
        }
    });
}

TEST_CASE("cards that no rank of this toolkit gives are refused, with the rank that gave them") {
    for (const std::string& spoilt : {std::string("1:00"), std::string("1:") + std::string(200, 'f')}) {
        run_nodes([&]() -> task<> {
            pmi_server server(2, 1, "(vector,(0,1,2))");
            server.spoilt["rdmacoro-0-1-0"] = spoilt;
            const auto environment = [&](std::uint32_t rank) { return server.environment(rank); };
            members all = co_await join_all(ids(1, 2), environment, quick());
            CHECK(all[0]->code == errc::protocol_violation);
            CHECK_THAT(all[0]->text, contains("rank 1"));
        });
    }
}

TEST_CASE("a receive of any message at a node that joined sees none of the job's collectives, nor do these "
          "see a user's messages") {
    run_nodes([]() -> task<> {
        pmi_server server(2, 1, "(vector,(0,1,2))");
        const auto environment = [&](std::uint32_t rank) { return server.environment(rank); };
        members all = co_await join_all(ids(1, 2), environment, quick());
        REQUIRE((all[0]->ranks && all[1]->ranks));
        const auto other = [&](std::uint32_t rank) {
            return all[rank]->here.peer(all[rank]->ranks->node_of(1 - rank));
        };
        auto heard = start(hear(other(1)));
        // What rank 1 has sent lies unread at rank 0 all the while.
        co_await say(other(1), "unread", 7);
        task_group steps;
        for (std::uint32_t rank = 0; rank < 2; ++rank) {
            steps.spawn([&ranks = *all[rank]->ranks]() -> task<> {
                const group world = ranks.world();
                for (int n = 0; n < 20; ++n) {
                    std::vector<int> x(50, 1);
                    co_await world.allreduce(in_place, x, std::plus<>{});
                    CHECK(x.back() == 2);
                    co_await world.barrier();
                }
            });
        }
        co_await steps.join();
        CHECK(!heard.done());
        co_await say(other(0), "mine", 1);
        const std::string text = co_await heard;
        CHECK(text == "mine");
        const std::string unread = co_await hear(other(0));
        CHECK(unread == "unread");
        for (std::uint32_t rank = 0; rank < 2; ++rank)
            steps.spawn([&ranks = *all[rank]->ranks]() -> task<> { co_await ranks.leave(); });
        co_await steps.join();
    });
}

TEST_CASE("ranks that do not come end the others within their limit, with their numbers where the launcher "
          "knows them") {
    run_nodes([]() -> task<> {
        served_meeting meeting(4);
        const auto environment = [&](std::uint32_t rank) {
            return launch_environment(meeting.variables(rank, 4));
        };
        const auto began = std::chrono::steady_clock::now();
        // The limit of rank 0 ends first, and with it what rank 2 waits for.
        member first(1);
        member patient(3);
        task_group joining;
        joining.spawn(join_as, std::ref(first), environment(0), quick(500ms));
        joining.spawn(join_as, std::ref(patient), environment(2), quick(20s));
        co_await joining.join();
        CHECK(std::chrono::steady_clock::now() - began < 10s);
        INFO(first.text << "; " << patient.text);
        CHECK(first.code == errc::timed_out);
        CHECK_THAT(first.text, contains("ranks 1 and 3"));
        CHECK(patient.code == errc::peer_lost);
        CHECK_THAT(patient.text, contains("ranks 1 and 3 have not come") && contains("rank 0"));
        // One that looks the host's name up knows as much.
        served_meeting named(2);
        auto by_name = named.variables(0, 2);
        by_name["RDMACORO_JOB"].replace(6, 9, "localhost");
        member alone(1);
        co_await join_as(alone, launch_environment(by_name), quick(500ms));
        CHECK(alone.code == errc::timed_out);
        CHECK_THAT(alone.text,
                   contains("tcp://localhost:") && contains("rank 1 of 2 has not come within the limit"));
        // Long enough to speak with the launcher on a machine that is busy.
        const auto limited = quick(1s);
        pmi_server server(2);
        const auto over_pmi = [&](std::uint32_t rank) { return server.environment(rank); };
        members few = co_await join_all(ids(1, 0), over_pmi, limited);
        CHECK(few[0]->code == errc::timed_out);
        CHECK_THAT(few[0]->text, contains("not all of the 2 ranks") && contains("rank 1 has not come"));
        pmi_server nameless(2);
        nameless.has_names = false;
        const auto without_names = [&](std::uint32_t rank) { return nameless.environment(rank); };
        few = co_await join_all(ids(1, 0), without_names, limited);
        CHECK_THAT(few[0]->text, contains("not all of the 2 ranks") && contains("does not say"));
        // Where the launcher says which of them are on this host, those that did not come there are known.
        for (const int version : {1, 2}) {
            pmi_server mapped(4, version, "(vector,(0,1,3),(1,1,1))");
            const auto on_hosts = [&](std::uint32_t rank) { return mapped.environment(rank); };
            members some = co_await join_all(ids(1, 0, 3, 0), on_hosts, limited);
            for (const std::uint32_t rank : {0u, 2u}) {
                CHECK(some[rank]->code == errc::timed_out);
                CHECK_THAT(some[rank]->text, contains("of those on this host rank 1 was not seen"));
            }
        }
    });
}

TEST_CASE("a launcher that is silent, garbled or gone ends joining with an error, and is no job of one") {
    struct wrong {
        std::vector<std::string> script;
        std::error_code code;
    };
    const std::vector<wrong> all = {
        {{}, make_error_code(errc::timed_out)},
        {{"close"}, make_error_code(errc::peer_lost)},
        {{"garbage\n"}, make_error_code(errc::protocol_violation)},
        {{"cmd=response_to_init pmi_version=7 rc=0\n", "cmd=response_to_init pmi_version=7 rc=0\n"},
         make_error_code(errc::version_mismatch)},
    };
    for (const wrong& one : all) {
        run_nodes([&]() -> task<> {
            scripted_pmi server(one.script);
            std::unique_ptr<member> rank;
            job_options options = quick(300ms);
            options.alone = true;
            const launch_environment from = server.environment();
            const member* const joined = co_await join_one(rank, from, options);
            CHECK_FALSE(joined->ranks);
            CHECK(joined->code == one.code);
            ::close(server.client());
        });
    }
}

TEST_CASE("joining is canceled at any moment") {
    run_nodes([]() -> task<> {
        // Both come, so that each step is canceled: later and later, until the cancel comes too late.
        unsigned canceled = 0;
        for (int turns = 0, joined = 0; joined < 3; turns += turns / 16 + 1) {
            served_meeting meeting(2);
            member all[] = {member(1), member(2)};
            local_stop_source stops[2];
            const auto joins = [&](std::uint32_t rank) {
                return with_stop(join_as(all[rank], launch_environment(meeting.variables(rank, 2)), quick()),
                                 stops[rank].get_token());
            };
            auto first = start(joins(0));
            auto second = start(joins(1));
            for (int n = 0; n < turns && !first.done(); ++n) co_await yield();
            stops[0].request_stop();
            co_await first;
            stops[1].request_stop();
            co_await second;
            CHECK((all[0].ranks || all[0].code == errc::canceled));
            if (all[0].ranks) {
                ++joined;
            } else {
                ++canceled;
            }
        }
        CHECK(canceled > 10);
        scripted_pmi server({});
        member one(1);
        local_stop_source stop;
        const launch_environment from = server.environment();
        const job_options options = quick();
        auto joining = start(with_stop(join(one, from, options), stop.get_token()));
        for (int n = 0; n < 100; ++n) co_await yield();
        stop.request_stop();
        co_await joining;
        CHECK(one.code == errc::canceled);
        ::close(server.client());
    });
}

namespace {
/// As PMIx does now and then.
class hanging_launcher final : public detail::launcher {
public:
    explicit hanging_launcher(std::shared_ptr<std::atomic<bool>> until) : until_(std::move(until)) {}
    [[nodiscard]] std::string name() const override { return "a launcher that hangs"; }
    [[nodiscard]] bool may_hang() const noexcept override { return true; }
    void open(const detail::patience&) override { until_->wait(false); }
    [[nodiscard]] std::vector<blob> exchange(const blob& mine, const detail::patience&) override {
        return {mine};
    }
    void leave(const detail::patience&) override {}

private:
    std::shared_ptr<std::atomic<bool>> until_;
};
std::shared_ptr<std::atomic<bool>> hangs_until;
std::unique_ptr<detail::launcher> make_hanging(const launch_environment&) {
    return std::make_unique<hanging_launcher>(hangs_until);
}
}  // namespace

TEST_CASE("a library that hangs ends joining when its limit is over, and is left to its thread") {
    hangs_until = std::make_shared<std::atomic<bool>>(false);
    run_nodes([]() -> task<> {
        std::unique_ptr<member> one;
        job_options options = quick(50ms);
        options.pmix = &make_hanging;
        const std::map<std::string, std::string, std::less<>> variables{{"PMIX_NAMESPACE", "a"}};
        const launch_environment from(variables);
        const member* const joined = co_await join_one(one, from, options);
        CHECK(joined->code == errc::timed_out);
        CHECK_THAT(joined->text,
                   contains("a launcher that hangs: the launcher did not answer within the limit"));
    });
    *hangs_until = true;
    hangs_until->notify_all();
    while (hangs_until.use_count() != 1) std::this_thread::yield();
}

TEST_CASE("without a launcher a process has a random id, and joins only where it asks to be alone") {
    for (const char* const name :
         {"RDMACORO_RANK", "PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK", "SLURM_STEP_ID"})
        REQUIRE(std::getenv(name) == nullptr);
    const node_id one = job_node_id();
    CHECK(one > detail::launcher::most_ranks);
    CHECK(job_node_id() != one);
    ::setenv("RDMACORO_RANK", "41", 1);
    CHECK(job_node_id() == 42);
    ::unsetenv("RDMACORO_RANK");
    // In a step of one task of Slurm, such as an interactive one, programs are started by hand.
    const std::map<const char*, const char*> step = {
        {"SLURM_STEP_ID", "4294967290"}, {"SLURM_PROCID", "0"}, {"SLURM_STEP_NUM_TASKS", "1"}};
    for (const auto& [name, value] : step) ::setenv(name, value, 1);
    CHECK(job_node_id() > detail::launcher::most_ranks);
    for (const auto& [name, value] : step) ::unsetenv(name);
    run_nodes([]() -> task<> {
        job_node here(job_node_id());
        const auto failed =
            co_await failing([](job_node& on) -> task<> { static_cast<void>(co_await join_job(on)); }(here));
        CHECK(failed.code == errc::invalid_argument);
        CHECK_THAT(failed.text, contains("job_options::alone"));
        job_options options;
        options.alone = true;
        const job ranks = co_await join_job(here, options);
        CHECK(ranks.size() == 1);
        const job again = co_await join_job(here, options);
        CHECK(again.node_of(0) == here.card().id);
    });
}

TEST_CASE("a process joins its job once") {
    const std::map<std::string, std::string, std::less<>> variables{{"RDMACORO_JOB", "tcp://127.0.0.1:1"}};
    const launch_environment from(variables);
    detail::claim_only_join(from);
    const auto [code, text] = error_of([&] { detail::claim_only_join(from); });
    CHECK(code == errc::invalid_argument);
    CHECK_THAT(text, contains("has joined its job before"));
}

TEMPLATE_LIST_TEST_CASE(
    "what a rank sent that left before this one had its card is received; what others sent is dropped", "",
    node_transports) {
    run_nodes([]() -> task<> {
        node<TestType> one(1);
        co_await one.listen(fresh_url<TestType>());
        std::vector<node_card> early;
        {
            const detail::node_joining joins(one);
            for (const node_id id : {2U, 3U}) {
                node<TestType> other(id);
                co_await other.listen(fresh_url<TestType>());
                early.push_back(other.card());
                other.add(one.card());
                co_await other.peer(1).send(std::string_view("early"), 7);
                co_await other.close();
            }
            co_await until([&one] { return one.connections() == 0; });
            for (int turns = 0; turns < 1000; ++turns) co_await yield();
            one.add(early.front());
        }
        CHECK(one.explain(3).find("never met") != std::string::npos);
        const std::string got = co_await hear(one.peer(2), 7);
        CHECK(got == "early");
    });
}

TEST_CASE("a rank that is told of the others late receives what one sent that had joined, spoken and left by "
          "then") {
    run_nodes([]() -> task<> {
        served_meeting meeting(2);
        withheld_answers way(meeting.server.address());
        const auto environment = [&](std::uint32_t rank) {
            auto variables = meeting.variables(rank, 2);
            variables["RDMACORO_LOCAL_SIZE"] = "2";  // one exchange, that of the cards
            if (rank == 0) variables["RDMACORO_JOB"] = way.url();
            return launch_environment(variables);
        };
        member late(1);
        member early(2);
        auto joining = start(join_as(late, environment(0), quick()));
        // Its greeting has less than 128 bytes, its cards have more.
        co_await until([&way] { return way.said() > 200; });
        way.hold(true);
        co_await join_as(early, environment(1), quick());
        INFO(early.text);
        REQUIRE(early.ranks);
        co_await say(early.here.peer(early.ranks->node_of(0)), "early", 7);
        co_await early.here.close();
        co_await until([&late] { return late.here.connections() == 0; });
        for (int turns = 0; turns < 1000; ++turns) co_await yield();
        CHECK(!late.ranks);
        way.hold(false);
        co_await joining;
        REQUIRE(late.ranks);
        const std::string got = co_await hear(late.here.peer(2), 7);
        CHECK(got == "early");
    });
}

}  // namespace test_service_job
