#include <rdmacoro/adapters/pmix.hpp>

#include "support/catch.hpp"
#include "support/nodes.hpp"

#include <rdmacoro/coro/coro.hpp>
#include <rdmacoro/service/job.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include <dlfcn.h>

namespace test_adapters_pmix {

/// In place of libpmix's functions while `plays`: the launcher of a job of two ranks, of which this is rank 0. It ends what can end at once in the
/// call, with PMIX_OPERATION_SUCCEEDED, and then answers no more, as the standard has it.
struct prompt_launcher {
    static inline bool plays = false;
    static inline bool fence_ends = true;
    static inline pmix_op_cbfunc_t unanswered = nullptr;
    static inline void* unanswered_context = nullptr;

    explicit prompt_launcher(bool ends) {
        plays = true;
        fence_ends = ends;
    }
    ~prompt_launcher() {
        plays = false;
        if (unanswered != nullptr) unanswered(PMIX_ERR_TIMEOUT, unanswered_context);
        unanswered = nullptr;
    }
    prompt_launcher(const prompt_launcher&) = delete;
    prompt_launcher& operator=(const prompt_launcher&) = delete;

    /// libpmix's own function.
    template <class F>
    static F* next(const char* name) {
        return reinterpret_cast<F*>(::dlsym(RTLD_NEXT, name));
    }
    static pmix_status_t get(const char* key, pmix_value_t** into) {
        auto* const value = static_cast<pmix_value_t*>(std::calloc(1, sizeof(pmix_value_t)));
        *into = value;
        if (std::strcmp(key, PMIX_JOB_SIZE) == 0) {
            value->type = PMIX_UINT32;
            value->data.uint32 = 2;
        } else if (std::strncmp(key, "rdmacoro-", 9) == 0) {
            value->type = PMIX_BYTE_OBJECT;
            value->data.bo.bytes = static_cast<char*>(std::calloc(1, 3));
            value->data.bo.size = 3;
        } else {
            std::free(value);
            *into = nullptr;
            return PMIX_ERR_NOT_FOUND;
        }
        return PMIX_SUCCESS;
    }
};

}  // namespace test_adapters_pmix

using test_adapters_pmix::prompt_launcher;

// NOLINTBEGIN: the names are libpmix's
extern "C" {
pmix_status_t PMIx_Init(pmix_proc_t* own, pmix_info_t info[], size_t count) {
    if (!prompt_launcher::plays)
        return prompt_launcher::next<decltype(PMIx_Init)>("PMIx_Init")(own, info, count);
    std::memset(own, 0, sizeof *own);
    std::strcpy(own->nspace, "a-job");
    return PMIX_SUCCESS;
}
pmix_status_t PMIx_Put(pmix_scope_t scope, const char key[], pmix_value_t* value) {
    if (prompt_launcher::plays) return PMIX_SUCCESS;
    return prompt_launcher::next<decltype(PMIx_Put)>("PMIx_Put")(scope, key, value);
}
pmix_status_t PMIx_Commit(void) {
    if (prompt_launcher::plays) return PMIX_SUCCESS;
    return prompt_launcher::next<decltype(PMIx_Commit)>("PMIx_Commit")();
}
pmix_status_t PMIx_Get(const pmix_proc_t* of, const char key[], const pmix_info_t info[], size_t count,
                       pmix_value_t** value) {
    if (prompt_launcher::plays) return prompt_launcher::get(key, value);
    return prompt_launcher::next<decltype(PMIx_Get)>("PMIx_Get")(of, key, info, count, value);
}
pmix_status_t PMIx_Fence_nb(const pmix_proc_t of[], size_t ranks, const pmix_info_t info[], size_t count,
                            pmix_op_cbfunc_t ended, void* context) {
    if (!prompt_launcher::plays)
        return prompt_launcher::next<decltype(PMIx_Fence_nb)>("PMIx_Fence_nb")(of, ranks, info, count, ended,
                                                                               context);
    if (prompt_launcher::fence_ends) return PMIX_OPERATION_SUCCEEDED;
    prompt_launcher::unanswered = ended;
    prompt_launcher::unanswered_context = context;
    return PMIX_SUCCESS;
}
pmix_status_t PMIx_Get_nb(const pmix_proc_t* of, const char key[], const pmix_info_t info[], size_t count,
                          pmix_value_cbfunc_t ended, void* context) {
    if (prompt_launcher::plays) return PMIX_OPERATION_SUCCEEDED;
    return prompt_launcher::next<decltype(PMIx_Get_nb)>("PMIx_Get_nb")(of, key, info, count, ended, context);
}
}
// NOLINTEND

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

TEST_CASE("what PMIx ends in the call itself has ended and its answer is not waited for") {
    const std::vector<std::byte> mine(3);
    {
        const prompt_launcher at_once(true);
        rdmacoro::detail::pmix_conversation job;
        const rdmacoro::detail::patience limit(rdmacoro::detail::monotonic_now() + 2s);
        job.open(limit);
        CHECK(job.size() == 2);
        CHECK(job.exchange(mine, limit).size() == 2);
    }
    {
        const prompt_launcher hangs(false);
        rdmacoro::detail::pmix_conversation job;
        const rdmacoro::detail::patience limit(rdmacoro::detail::monotonic_now() + 1s);
        job.open(limit);
        std::string why;
        try {
            static_cast<void>(job.exchange(mine, limit));
        } catch (const error& failed) {
            CHECK(failed.code() == errc::timed_out);
            why = failed.what();
        }
        CHECK_THAT(why, contains("the others have, too"));
    }
}

}  // namespace test_adapters_pmix
