#include <rdmacoro/transport/verbs_rc/error.hpp>

#include "support/catch.hpp"

#include <cerrno>
#include <string>
#include <system_error>

#include <sys/resource.h>

namespace test_transport_verbs_rc_error {

using namespace rdmacoro;
using namespace rdmacoro::detail::verbs;
using namespace rdmacoro::test;

namespace {

/// Sets the soft limit of memory that this process may lock, as long as it lives.
class memory_limit {
public:
    explicit memory_limit(rlim_t bytes) {
        REQUIRE(::getrlimit(RLIMIT_MEMLOCK, &before_) == 0);
        const rlimit wanted{bytes, before_.rlim_max};
        REQUIRE(::setrlimit(RLIMIT_MEMLOCK, &wanted) == 0);
    }
    ~memory_limit() { ::setrlimit(RLIMIT_MEMLOCK, &before_); }
    memory_limit(const memory_limit&) = delete;
    memory_limit& operator=(const memory_limit&) = delete;

private:
    rlimit before_{};
};

std::error_code code_of(void (*thrower)(int), int system) {
    try {
        thrower(system);
    } catch (const std::system_error& why) {
        return why.code();
    }
    return {};
}

}  // namespace

TEST_CASE("a failed work request is a refused access, a broken rule, a wrong argument, or a lost peer") {
    CHECK(errc_of(IBV_WC_SUCCESS) == errc::ok);
    CHECK(errc_of(IBV_WC_REM_ACCESS_ERR) == errc::access_denied);
    for (const ibv_wc_status status : {IBV_WC_REM_INV_REQ_ERR, IBV_WC_REM_INV_RD_REQ_ERR, IBV_WC_LOC_LEN_ERR})
        CHECK(errc_of(status) == errc::protocol_violation);
    for (const ibv_wc_status status : {IBV_WC_LOC_PROT_ERR, IBV_WC_LOC_ACCESS_ERR})
        CHECK(errc_of(status) == errc::invalid_argument);
    for (const ibv_wc_status status : {IBV_WC_RETRY_EXC_ERR, IBV_WC_RNR_RETRY_EXC_ERR, IBV_WC_WR_FLUSH_ERR,
                                       IBV_WC_FATAL_ERR, IBV_WC_GENERAL_ERR, IBV_WC_REM_OP_ERR})
        CHECK(errc_of(status) == errc::peer_lost);
}

TEST_CASE("numbers of bytes are written in the largest unit that divides them") {
    CHECK(bytes_text(0) == "0 bytes");
    CHECK(bytes_text(1023) == "1023 bytes");
    CHECK(bytes_text(1024) == "1 KiB");
    CHECK(bytes_text(1536) == "1536 bytes");
    CHECK(bytes_text(std::uint64_t{768} << 10) == "768 KiB");
    CHECK(bytes_text(std::uint64_t{8} << 20) == "8 MiB");
    CHECK(bytes_text(std::uint64_t{5} << 30) == "5 GiB");
    CHECK(bytes_text(RLIM_INFINITY) == "unlimited");
}

TEST_CASE(
    "memory that could not be registered is told with the limit that may be the reason, where there is one") {
    const memory_limit bound(1 << 20);
    for (const int system : {ENOMEM, EAGAIN, EPERM}) {
        const std::string text = registration_failure(8 << 20, system);
        CAPTURE(text);
        CHECK_THAT(text, contains("8 MiB"));
        CHECK_THAT(text, contains("1 MiB"));
        CHECK_THAT(text, contains("RLIMIT_MEMLOCK"));
        CHECK_THAT(text, contains("ulimit -l unlimited"));
    }
    const std::string unmapped = registration_failure(4096, EFAULT);
    CHECK_THAT(unmapped, contains("not mapped"));
    CHECK(unmapped.find("MEMLOCK") == std::string::npos);
    CHECK(registration_failure(4096, EIO).find("MEMLOCK") == std::string::npos);
}

TEST_CASE("errors of the system are thrown as the code that they mean for a caller") {
    const auto registering_fails = [](int system) { throw_registration_failure(4096, system); };
    CHECK(code_of(registering_fails, ENOMEM) == errc::no_resources);
    CHECK(code_of(registering_fails, EFAULT) == errc::invalid_argument);
    CHECK(code_of(registering_fails, EINVAL) == errc::invalid_argument);
    const auto step_fails = [](int system) { throw_system("verbs: a step", system); };
    for (const int system : {ENOMEM, ENOSPC, EMFILE, ENFILE})
        CHECK(code_of(step_fails, system) == errc::no_resources);
    CHECK(code_of(step_fails, EIO) == std::error_code(EIO, std::system_category()));
}

}  // namespace test_transport_verbs_rc_error
