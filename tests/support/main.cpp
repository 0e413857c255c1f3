// The main function of every Catch2 program here. Exit status: 0 all passed; 77 (Meson's sign for a skipped
// test) when there were test cases and each one left by SKIP_TEST; otherwise what Catch2 says, never 0 when
// the arguments selected no test case at all or a listener called `fail_run`.

#if __has_include(<catch2/catch_session.hpp>)
#include <catch2/catch_session.hpp>
#include <catch2/reporters/catch_reporter_event_listener.hpp>
#include <catch2/reporters/catch_reporter_registrars.hpp>
#else
#define CATCH_CONFIG_RUNNER
#endif

#include "catch.hpp"
#include "seldom.hpp"

#include <cstdio>
#include <iostream>
#include <map>
#include <set>
#include <string>

#include <sys/resource.h>

namespace {

#if __has_include(<catch2/catch_session.hpp>)
using listener_base = Catch::EventListenerBase;
#else
using listener_base = Catch::TestEventListenerBase;
#endif

int cases_run = 0;
int cases_skipped = 0;
bool skipped_this_case = false;
bool failed_by_listener = false;

struct tries {
    std::set<std::string> transports;
    bool happened = false;
};
std::map<std::string, tries, std::less<>>& seldom_tries() {
    static std::map<std::string, tries, std::less<>> made;
    return made;
}

struct case_counter : listener_base {
    using listener_base::listener_base;

    void testCaseStarting(const Catch::TestCaseInfo& info) override {
        listener_base::testCaseStarting(info);
        skipped_this_case = false;
    }
    void testCaseEnded(const Catch::TestCaseStats& stats) override {
        listener_base::testCaseEnded(stats);
        ++cases_run;
        if (skipped_this_case) ++cases_skipped;
    }
    void testRunEnded(const Catch::TestRunStats& stats) override {
        listener_base::testRunEnded(stats);
        for (const auto& [what, tried] : seldom_tries()) {
            if (tried.transports.size() > 1 && !tried.happened)
                rdmacoro::test::fail_run("on none of " + std::to_string(tried.transports.size()) +
                                         " transports happened: " + what);
        }
    }
};

/// Some tests have thousands of links, and the usual limit is 1,024: the process may have as many descriptors as the system lets it.
void raise_limit_of_descriptors() {
    rlimit limit{};
    if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
    limit.rlim_cur = limit.rlim_max;
    ::setrlimit(RLIMIT_NOFILE, &limit);
}

}  // namespace

CATCH_REGISTER_LISTENER(case_counter)

void rdmacoro::test::note_skipped(const char* file, int line, const std::string& why) {
    skipped_this_case = true;
    std::cout << file << ':' << line << ": skipped: " << why << std::endl;
}

void rdmacoro::test::fail_run(const std::string& why) {
    failed_by_listener = true;
    std::cout << "FAILED: " << why << std::endl;
}

void rdmacoro::test::seldom(std::string_view what, std::string_view transport, bool happened) {
    tries& of = seldom_tries()[std::string(what)];
    of.transports.emplace(transport);
    of.happened |= happened;
}

int main(int argc, char* argv[]) {
    constexpr int all_skipped = 77;
    Catch::Session session;
    if (const int wrong_usage = session.applyCommandLine(argc, argv); wrong_usage != 0) return wrong_usage;
    const auto& asked = session.configData();
    const bool only_text = asked.showHelp || asked.listTests || asked.listTags || asked.listReporters;

    raise_limit_of_descriptors();
    const int result = session.run();
    if (result != 0 || only_text) return result;
    if (failed_by_listener) return 1;
    if (cases_run == 0) {
        std::fputs("no test case was selected\n", stderr);
        return 1;
    }
    if (cases_skipped != 0) std::printf("test cases skipped: %d\n", cases_skipped);
    return cases_skipped == cases_run ? all_skipped : 0;
}
