#include <rdmacoro/transport/ofi/error.hpp>

#include "support/catch.hpp"

#include <string>

namespace test_transport_ofi_error {

using namespace rdmacoro;
namespace fabric = rdmacoro::detail::fabric;

static_assert(fabric::is_busy(-FI_EAGAIN));
static_assert(!fabric::is_busy(0) && !fabric::is_busy(-FI_ENOMEM) && !fabric::is_busy(FI_EAGAIN));

TEST_CASE("a provider's failures are a refusal, a lack of memory, or a lost peer") {
    CHECK(fabric::errc_of(0) == errc::ok);
    constexpr int refusals[] = {FI_EACCES, FI_EPERM, FI_ENOKEY, FI_EINVAL};
    for (const int refused : refusals) CHECK(fabric::errc_of(refused) == errc::access_denied);
    CHECK(fabric::errc_of(FI_ENOMEM) == errc::no_resources);
    constexpr int others[] = {FI_EIO, FI_ECANCELED, FI_ENOTCONN, FI_EREMOTEIO};
    for (const int other : others) CHECK(fabric::errc_of(other) == errc::peer_lost);
}

TEST_CASE("texts of failures have libfabric's words, and what was tried") {
    CHECK(fabric::text_of(-FI_EIO) == ::fi_strerror(FI_EIO));
    try {
        fabric::throw_failure("ofi+tcp: open a fabric", -FI_EIO);
    } catch (const error& failed) {
        const std::string text = failed.what();
        CHECK(text.find("ofi+tcp: open a fabric") != std::string::npos);
        CHECK(text.find(::fi_strerror(FI_EIO)) != std::string::npos);
    }
}

TEST_CASE("a registration that fails for want of locked memory names the limit, where there is one") {
    rlimit before{};
    REQUIRE(::getrlimit(RLIMIT_MEMLOCK, &before) == 0);
    rlimit little = before;
    little.rlim_cur = 65536;
    REQUIRE(::setrlimit(RLIMIT_MEMLOCK, &little) == 0);
    const std::string limited = fabric::registration_failure("ofi+verbs", 1 << 20, -FI_ENOMEM);
    const std::string other = fabric::registration_failure("ofi+verbs", 1 << 20, -FI_EINVAL);
    REQUIRE(::setrlimit(RLIMIT_MEMLOCK, &before) == 0);
    CHECK(limited.find("registering 1048576 bytes") != std::string::npos);
    CHECK(limited.find("may lock 65536 bytes (RLIMIT_MEMLOCK)") != std::string::npos);
    CHECK(limited.find("ulimit -l unlimited") != std::string::npos);
    CHECK(other.find("RLIMIT_MEMLOCK") == std::string::npos);
}

}  // namespace test_transport_ofi_error
