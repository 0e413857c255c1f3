#include <rdmacoro/service/detail/pmi_launcher.hpp>

#include "support/catch.hpp"
#include "support/pmi_server.hpp"

#include <chrono>
#include <numeric>
#include <optional>

#include <sys/eventfd.h>

namespace test_service_detail_pmi_launcher {

using namespace rdmacoro;
using namespace rdmacoro::test;
using namespace std::chrono_literals;

namespace {

using blob = detail::launcher::blob;

/// Bytes that differ by rank.
blob bytes_of(std::uint32_t rank, std::size_t count) {
    blob all(count);
    for (std::size_t n = 0; n < count; ++n) all[n] = static_cast<std::byte>(rank * 31 + n);
    return all;
}

/// Runs `body(rank)` on a thread for each rank.
template <class F>
void on_each(std::uint32_t ranks, F body) {
    std::vector<std::thread> threads;
    for (std::uint32_t rank = 0; rank < ranks; ++rank) threads.emplace_back(body, rank);
    for (std::thread& one : threads) one.join();
}

const std::string ok = "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0\n";
const std::string maxes = "cmd=maxes kvsname_max=256 keylen_max=64 vallen_max=1024\n";

}  // namespace

TEST_CASE("ranks exchange bytes over PMI, in either version, also in several values each, and twice") {
    for (const int version : {1, 2}) {
        for (const std::size_t longest : {std::size_t{64}, std::size_t{1024}}) {
            INFO("version " << version << ", values of " << longest);
            pmi_server server(3, version, "(vector,(0,2,2))");
            if (version == 1) server.longest = longest;
            std::vector<std::vector<blob>> got(3);
            std::vector<std::string> names(3), hosts(3), failures(3);
            on_each(3, [&](std::uint32_t rank) {
                failures[rank] = error_of([&] {
                                     detail::pmi_launcher one(server.environment(rank));
                                     one.open(patience_of(10s));
                                     names[rank] = one.name();
                                     hosts[rank] = one.host();
                                     static_cast<void>(one.exchange(bytes_of(rank, 10), patience_of(10s)));
                                     got[rank] =
                                         one.exchange(bytes_of(rank, 100 + 900 * rank), patience_of(10s));
                                     one.leave(patience_of(10s));
                                 }).second;
            });
            CHECK(failures == std::vector<std::string>(3));
            for (std::uint32_t rank = 0; rank < 3; ++rank) {
                CHECK(names[rank] == "PMI-" + std::to_string(version));
                CHECK(hosts[rank] == (rank < 2 ? "node 0" : "node 1"));
                REQUIRE(got[rank].size() == 3);
                for (std::uint32_t of = 0; of < 3; ++of) CHECK(got[rank][of] == bytes_of(of, 100 + 900 * of));
            }
            CHECK(server.finalized() == 3);
        }
    }
}

TEST_CASE("joining over PMI-1 takes seven words of each rank, and one for each other rank") {
    for (const std::uint32_t ranks : {1U, 2U, 5U}) {
        INFO(ranks << " ranks");
        pmi_server server(ranks, 1, "(vector,(0,1," + std::to_string(ranks) + "))");
        std::vector<std::string> failures(ranks);
        on_each(ranks, [&](std::uint32_t rank) {
            failures[rank] = error_of([&] {
                                 detail::pmi_launcher one(server.environment(rank));
                                 one.open(patience_of(30s));
                                 static_cast<void>(one.exchange(bytes_of(rank, 100), patience_of(30s)));
                                 one.leave(patience_of(30s));
                             }).second;
        });
        for (const std::string& failed : failures) CHECK(failed == "");
        CHECK(server.finalized() == ranks);
        CHECK(server.asked() == ranks * (7 + (ranks - 1)));
    }
}

TEST_CASE("under Slurm version 2 is offered first") {
    pmi_server server(1, 2);
    detail::pmi_launcher one(server.environment(0, {{"PMI_JOBID", "7.0"}}));
    one.open(patience_of(10s));
    CHECK(one.name() == "PMI-2");
    one.leave(patience_of(10s));
}

TEST_CASE("each wrong beginning of a launcher ends with an error that says so, within the limit") {
    struct wrong {
        std::vector<std::string> script;
        std::error_code code;
        std::string text;
    };
    const std::vector<wrong> all = {
        {{}, make_error_code(errc::timed_out), "did not answer"},
        {{"close"}, make_error_code(errc::peer_lost), "closed PMI_FD"},
        {{"HTTP/1.1 400 Bad Request\n"}, make_error_code(errc::protocol_violation), "HTTP/1.1 400"},
        {{"cmd=response_to_init rc=0\n"}, make_error_code(errc::protocol_violation), "names no version"},
        {{"cmd=response_to_init pmi_version=x rc=0\n"},
         make_error_code(errc::protocol_violation),
         "no version"},
        {{"cmd=response_to_init pmi_version=3 rc=0\n", "cmd=response_to_init pmi_version=3 rc=0\n"},
         make_error_code(errc::version_mismatch),
         "neither PMI-1 nor PMI-2"},
        {{"cmd=response_to_init pmi_version=2 rc=-1\n", "close"},
         make_error_code(errc::peer_lost),
         "asked for version 1 it answered"},
        {{ok}, make_error_code(errc::timed_out), "cmd=get_maxes"},
        {{ok, "cmd=maxes keylen_max=8 vallen_max=1024\n"}, make_error_code(errc::unsupported), "no room"},
        {{ok, "cmd=maxes keylen_max=-1 vallen_max=1024\n"}, make_error_code(errc::unsupported), "no room"},
        {{ok, maxes, "cmd=my_kvsname\n"}, make_error_code(errc::protocol_violation), "names no space"},
        {{ok, maxes, "cmd=my_kvsname kvsname=a\n", "cmd=get_result rc=0 val"},
         make_error_code(errc::timed_out),
         "PMI_process_mapping"},
    };
    for (const wrong& one : all) {
        INFO(one.text);
        scripted_pmi server(one.script);
        detail::pmi_launcher launcher(server.environment());
        const auto [code, text] = error_of([&] { launcher.open(patience_of(200ms)); });
        CHECK(code == one.code);
        CHECK_THAT(text, contains(one.text));
        ::close(server.client());
    }
}

TEST_CASE("values of a rank that are missing or are not what it gave are an error that names it") {
    const std::vector<std::string> wrong = {"0:",  "x:00", "1:0", "1:0g",  "1",
                                            ":00", "9:00", "1:",  "-1:00", "99999999999999999999:00"};
    for (const std::string& value : wrong) {
        INFO(value);
        pmi_server server(2);
        server.spoilt["rdmacoro-0-1-0"] = value;
        std::error_code code;
        std::string text;
        on_each(2, [&](std::uint32_t rank) {
            detail::pmi_launcher one(server.environment(rank));
            one.open(patience_of(10s));
            if (rank == 0) {
                std::tie(code, text) =
                    error_of([&] { static_cast<void>(one.exchange(bytes_of(0, 10), patience_of(10s))); });
            } else {
                static_cast<void>(one.exchange(bytes_of(1, 10), patience_of(10s)));
            }
            one.leave(patience_of(10s));
        });
        CHECK(code == errc::peer_lost);
        CHECK_THAT(text, contains("rank 1 of 2"));
    }
}

TEST_CASE("a rank that never comes to the barrier ends the others within their limit") {
    pmi_server server(3);
    detail::pmi_launcher one(server.environment(2));
    one.open(patience_of(10s));
    const auto began = std::chrono::steady_clock::now();
    const auto [code, text] =
        error_of([&] { static_cast<void>(one.exchange(bytes_of(0, 10), patience_of(200ms))); });
    CHECK(std::chrono::steady_clock::now() - began < 5s);
    CHECK(code == errc::timed_out);
    CHECK_THAT(text, contains("not all of the 3 ranks") && contains("rank 2"));
}

TEST_CASE("ranks on other hosts that never come are named, and those that came are not, in either version") {
    for (const int way : {1, 2, 3}) {
        INFO("version " << way << "; 3: a fence of version 2 that ends at once");
        pmi_server server(6, way == 1 ? 1 : 2, "(vector,(0,3,2))");
        server.fences_at_once = way == 3;
        // 2 and 5 do not come: one on a host that has another rank, and one on a host that has one, too.
        std::vector<std::pair<std::error_code, std::string>> how(6);
        on_each(6, [&](std::uint32_t rank) {
            if (rank == 2 || rank == 5) return;
            detail::pmi_launcher one(server.environment(rank));
            one.open(patience_of(10s));
            how[rank] =
                error_of([&] { static_cast<void>(one.exchange(bytes_of(rank, 10), patience_of(2s))); });
        });
        for (const std::uint32_t rank : {0u, 1u, 3u, 4u}) {
            INFO(how[rank].second);
            CHECK(how[rank].first == errc::timed_out);
            CHECK_THAT(how[rank].second, contains("not all of the 6 ranks"));
        }
        CHECK_THAT(how[0].second, contains("all that are to be on this host have come") &&
                                      contains("of those on other hosts ranks 2 and 5 have not come"));
        CHECK_THAT(how[3].second, contains("of those on this host rank 2 was not seen") &&
                                      contains("of those on other hosts rank 5 has not come"));
        CHECK_THAT(how[4].second, contains("of those on this host rank 5 was not seen") &&
                                      contains("of those on other hosts rank 2 has not come"));
    }
}

TEST_CASE("a rank of another host that comes while it is asked for is waited for") {
    for (const int way : {1, 2, 3}) {
        INFO("version " << way << "; 3: a fence of version 2 that ends at once");
        pmi_server server(3, way == 1 ? 1 : 2, "(vector,(0,3,1))");
        server.fences_at_once = way == 3;
        std::vector<std::string> failures(3);
        on_each(3, [&](std::uint32_t rank) {
            failures[rank] = error_of([&] {
                                 detail::pmi_launcher one(server.environment(rank));
                                 one.open(patience_of(10s));
                                 // The others have said by a name that they are there.
                                 while (rank == 2 && server.published() < 2) std::this_thread::yield();
                                 for (int times = 0; times < 2; ++times)
                                     static_cast<void>(one.exchange(bytes_of(rank, 10), patience_of(10s)));
                             }).second;
        });
        CHECK(failures == std::vector<std::string>(3));
    }
}

TEST_CASE("a barrier that ends while a name is published, or looked for, is one that has ended") {
    const std::vector<std::string> beginning = {ok,
                                                maxes,
                                                "cmd=my_kvsname kvsname=a\n",
                                                "cmd=get_result rc=0 value=(vector,(0,2,1))\n",
                                                "cmd=put_result rc=0\n",
                                                ""};
    for (const bool looks : {false, true}) {
        INFO(looks);
        std::vector<std::string> script = beginning;
        if (looks) script.push_back("cmd=publish_result rc=0\n");
        script.push_back(looks ? "cmd=barrier_out\ncmd=lookup_result rc=1\n"
                               : "cmd=barrier_out\ncmd=publish_result rc=0\n");
        script.push_back("cmd=get_result rc=0 value=1:07\n");
        scripted_pmi server(script);
        detail::pmi_launcher one(server.environment());
        one.open(patience_of(10s));
        std::vector<blob> got;
        const auto failed = error_of([&] { got = one.exchange(bytes_of(0, 1), patience_of(2s)); });
        CHECK(failed.second == "");
        CHECK(got == std::vector<blob>{bytes_of(0, 1), {std::byte{7}}});
        ::close(server.client());
    }
}

TEST_CASE("a launcher that does not answer to a name at all does not hold up those that have come") {
    scripted_pmi server({ok, maxes, "cmd=my_kvsname kvsname=a\n",
                         "cmd=get_result rc=0 value=(vector,(0,2,1))\n", "cmd=put_result rc=0\n", "",
                         "cmd=barrier_out\n", "cmd=get_result rc=0 value=1:07\n"});
    detail::pmi_launcher one(server.environment());
    one.open(patience_of(10s));
    std::vector<blob> got;
    const auto began = std::chrono::steady_clock::now();
    const auto failed = error_of([&] { got = one.exchange(bytes_of(0, 1), patience_of(60s)); });
    CHECK(failed.second == "");
    CHECK(got == std::vector<blob>{bytes_of(0, 1), {std::byte{7}}});
    CHECK(std::chrono::steady_clock::now() - began < 20s);
    ::close(server.client());
}

TEST_CASE("an answer to a name that comes when it is not waited for any more is none to another word") {
    for (const int way : {1, 2, 3}) {
        INFO("version " << way << "; 3: a fence of version 2 that ends at once");
        pmi_server server(3, way == 1 ? 1 : 2, "(vector,(0,3,1))");
        server.fences_at_once = way == 3;
        server.publishes_late = true;
        std::vector<std::string> failures(3);
        on_each(3, [&](std::uint32_t rank) {
            failures[rank] = error_of([&] {
                                 detail::pmi_launcher one(server.environment(rank));
                                 one.open(patience_of(20s));
                                 while (rank == 2 && server.published() < 2) std::this_thread::yield();
                                 static_cast<void>(one.exchange(bytes_of(rank, 10), patience_of(20s)));
                                 one.leave(patience_of(20s));
                             }).second;
        });
        CHECK(failures == std::vector<std::string>(3));
    }
}

TEST_CASE("where the launcher publishes no names, what is known of this host is told") {
    pmi_server server(3, 1, "(vector,(0,1,2),(1,1,1))");
    server.has_names = false;
    std::string text;
    on_each(2, [&](std::uint32_t rank) {
        detail::pmi_launcher one(server.environment(rank));
        one.open(patience_of(10s));
        const auto how = error_of([&] { static_cast<void>(one.exchange(bytes_of(0, 10), patience_of(1s))); });
        if (rank == 0) text = how.second;
    });
    CHECK_THAT(text, contains("all that are to be on this host have come"));
    CHECK_THAT(text, !contains("other hosts"));
}

TEST_CASE("a conversation ends when it is told to") {
    scripted_pmi server({});
    detail::pmi_launcher launcher(server.environment());
    const int stop = ::eventfd(1, EFD_CLOEXEC);
    const auto [code, text] = error_of([&] { launcher.open(patience_of(10s, stop)); });
    CHECK(code == errc::canceled);
    ::close(stop);
    ::close(server.client());
}

TEST_CASE("a rank that stood still past its limit takes what the launcher answers; else its error says so") {
    const std::vector<std::string> all = {
        ok,
        maxes,
        "cmd=my_kvsname kvsname=space\n",
        "cmd=get_result rc=-1\n",
        "cmd=put_result rc=0\n",
        "cmd=barrier_out\n",
        "cmd=get_result rc=0 value=1:0708\n",
    };
    const blob mine = bytes_of(0, 10);
    const auto exchanged = [&](std::size_t answers, std::vector<blob>& got) {
        scripted_pmi server({all.begin(), all.begin() + static_cast<std::ptrdiff_t>(answers)});
        detail::pmi_launcher one(server.environment());
        one.open(patience_of(10s));
        auto failed = error_of([&] { got = one.exchange(mine, patience_of(-7s)); });
        ::close(server.client());
        return failed;
    };
    std::vector<blob> got;
    CHECK(exchanged(7, got).second.empty());
    CHECK(got == std::vector<blob>{mine, blob{std::byte{7}, std::byte{8}}});
    const std::string stood_still = "this process stood still, and went on 7 s after its own limit";
    for (const std::size_t answers : {std::size_t{4}, std::size_t{5}}) {
        const auto [code, text] = exchanged(answers, got);
        INFO(text);
        CHECK(code == errc::timed_out);
        CHECK_THAT(text, contains(stood_still) && !contains("have come within the limit"));
        CHECK_THAT(text, contains(answers == 4 ? "did not answer \"cmd=put"
                                               : "has not said that all of the 2 ranks"));
    }
}

TEST_CASE("variables that are no rank and no size are refused") {
    scripted_pmi server({});
    using pair = std::pair<const char*, const char*>;
    for (const pair& one : {pair("2", "2"), pair("x", "2"), pair("0", "-1"), pair("0", "99999999")}) {
        const auto [code, text] = error_of([&] {
            detail::pmi_launcher made(
                server.environment({{"PMI_RANK", one.first}, {"PMI_SIZE", one.second}}));
        });
        CHECK(code == errc::invalid_argument);
        CHECK_THAT(text, contains("PMI_"));
    }
    ::close(server.client());
}

}  // namespace test_service_detail_pmi_launcher
