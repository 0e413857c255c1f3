#include <rdmacoro/adapters/pmix.hpp>

#include "support/catch.hpp"
#include "support/nodes.hpp"

#include <rdmacoro/coro/coro.hpp>
#include <rdmacoro/service/job.hpp>

#include <cstdlib>

namespace test_adapters_pmix {

using namespace rdmacoro;
using namespace rdmacoro::test;
using namespace std::chrono_literals;

namespace {
task<> without_value(task<job> joining) { static_cast<void>(co_await std::move(joining)); }
}  // namespace

// That it joins is tested under real launchers: tests/launchers.

TEST_CASE("a process with PMIx's variables and without its server ends joining with an error, not alone") {
    // libpmix reads them from the environment itself.
    ::setenv("PMIX_NAMESPACE", "a-job", 1);
    ::setenv("PMIX_RANK", "0", 1);
    ::setenv("PMIX_SERVER_URI2", "a-job.0;tcp4://127.0.0.1:1", 1);
    run_nodes([]() -> task<> {
        node<shm> here(job_node_id());
        CHECK(here.card().id == 1);
        job_options options;
        options.limit = 20s;
        options.alone = true;
        options.pmix = pmix_launcher;
        task<> joining = without_value(join_job(here, options));
        const failure failed = co_await failing(std::move(joining));
        CHECK(failed.code);
        CHECK_THAT(failed.text, contains("PMIx"));
    });
    ::unsetenv("PMIX_NAMESPACE");
    ::unsetenv("PMIX_RANK");
    ::unsetenv("PMIX_SERVER_URI2");
}

}  // namespace test_adapters_pmix
