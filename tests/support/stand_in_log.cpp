// Linked into the programs that test libfabric: a run fails when a stand-in (gni_provider) recorded a violation that no test asked
// for. A test that breaks a rule on purpose has a `violation_log` of its own, in bare_pair.hpp.

#define CATCH_CONFIG_EXTERNAL_INTERFACES  // version 2 declares listeners only then
#if __has_include(<catch2/reporters/catch_reporter_event_listener.hpp>)
#include <catch2/reporters/catch_reporter_event_listener.hpp>
#include <catch2/reporters/catch_reporter_registrars.hpp>
#endif

#include "catch.hpp"

#include <cstdlib>
#include <fstream>
#include <stdexcept>
#include <string>

#include <unistd.h>

namespace {

#if __has_include(<catch2/reporters/catch_reporter_event_listener.hpp>)
using listener_base = Catch::EventListenerBase;
#else
using listener_base = Catch::TestEventListenerBase;
#endif

constexpr const char* variable = "RDMACORO_STAND_IN_LOG";

/// The file that the stand-ins and the child processes of a test append to.
class log_file {
public:
    log_file() {
        const int file = ::mkstemp(name_.data());
        if (file < 0) throw std::runtime_error("no temporary file");
        ::close(file);
    }
    log_file(const log_file&) = delete;
    log_file& operator=(const log_file&) = delete;
    ~log_file() {
        if (owner_ == ::getpid()) ::unlink(name_.c_str());
    }
    void begin() {
        std::ofstream(name_, std::ios::trunc).flush();
        ::setenv(variable, name_.c_str(), 1);
    }
    [[nodiscard]] std::string text() const {
        std::ifstream lines(name_);
        return {std::istreambuf_iterator<char>(lines), {}};
    }

private:
    std::string name_ = "/tmp/rdmacoro-stand-in-XXXXXX";
    pid_t owner_ = ::getpid();
};

struct violation_check : listener_base {
    using listener_base::listener_base;

    void testCaseStarting(const Catch::TestCaseInfo& info) override {
        listener_base::testCaseStarting(info);
        log.begin();
    }
    void testCaseEnded(const Catch::TestCaseStats& stats) override {
        listener_base::testCaseEnded(stats);
        const std::string recorded = log.text();
        if (!recorded.empty())
            rdmacoro::test::fail_run("\"" + stats.testInfo.name + "\" broke rules of a provider:\n" +
                                     recorded);
    }

    log_file log;
};

}  // namespace

CATCH_REGISTER_LISTENER(violation_check)
