#include <rdmacoro/transport/shm/ptrace_grant.hpp>

#include "support/catch.hpp"
#include "support/child_process.hpp"
#include "support/shm_pair.hpp"

#include <cstddef>
#include <stdexcept>
#include <utility>

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

namespace test_transport_shm_ptrace_grant {

using namespace rdmacoro;
using namespace rdmacoro::test;
using rdmacoro::detail::shm::ptrace_grant;

namespace {

enum class forbidden { every_call, taking_back };

/// From here on the kernel ends this process when it calls prctl(PR_SET_PTRACER), with any argument or with 0.
void forbid(forbidden which) {
    constexpr auto field = [](std::size_t offset) { return static_cast<std::uint32_t>(offset); };
    const std::uint32_t on_argument = which == forbidden::every_call ? 0u : 1u;
    sock_filter program[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, field(offsetof(seccomp_data, nr))),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_prctl, 0, 6),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, field(offsetof(seccomp_data, args[0]))),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, PR_SET_PTRACER, 0, 4),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, field(offsetof(seccomp_data, args[1]))),
        BPF_STMT(BPF_ALU | BPF_MUL | BPF_K, on_argument),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const sock_fprog filter{sizeof program / sizeof program[0], program};
    if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
        ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) != 0)
        throw std::runtime_error("seccomp");
}

/// Whether `body` made the forbidden call.
template <class Body>
bool calls(forbidden which, Body body) {
    child_process child([&](const std::string&) {
        forbid(which);
        body();
        ::_exit(0);
    });
    child.tell("go");
    const int status = child.wait();
    if (WIFSIGNALED(status)) {
        CHECK(WTERMSIG(status) == SIGSYS);
        return true;
    }
    CHECK(WEXITSTATUS(status) == 0);
    return false;
}

shm_options permitting() {
    shm_options options;
    options.permit_ptrace = true;
    return options;
}

}  // namespace

TEST_CASE("the last grant of all takes the permission back, and none before it") {
    CHECK(calls(forbidden::every_call, [] { const ptrace_grant one(::getppid()); }));
    CHECK_FALSE(calls(forbidden::every_call, [] { const ptrace_grant none; }));
    CHECK(calls(forbidden::taking_back, [] { const ptrace_grant one(::getppid()); }));
    CHECK_FALSE(calls(forbidden::taking_back, [] {
        ptrace_grant first(::getppid());
        auto* const second = new ptrace_grant(1);
        first = ptrace_grant();
        ptrace_grant moved(std::move(*second));
        delete second;
        ::_exit(0);
    }));
    CHECK(calls(forbidden::taking_back, [] {
        ptrace_grant first(::getppid());
        ptrace_grant moved(std::move(first));
    }));
}

TEST_CASE("peers may trace this process only if the options say so, and while their links last") {
    CHECK_FALSE(calls(forbidden::every_call, [] { const shm_pair p; }));
    CHECK(calls(forbidden::every_call, [] { const shm_pair p(permitting()); }));
    CHECK_FALSE(calls(forbidden::taking_back, [] {
        const shm_pair p(permitting());
        ::_exit(0);
    }));
    CHECK(calls(forbidden::taking_back, [] { const shm_pair p(permitting()); }));
}

}  // namespace test_transport_shm_ptrace_grant
