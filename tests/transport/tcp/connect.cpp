#include <rdmacoro/transport/tcp/connect.hpp>

#include "support/catch.hpp"

#include <cerrno>
#include <string>

#include <netdb.h>

namespace test_transport_tcp_connect {

using namespace rdmacoro;
using namespace rdmacoro::detail;

namespace {

struct failure {
    std::error_code code;
    std::string text;
};
failure fails(errc outcome, int system) {
    const inet_address address = inet_address::parse("tcp", "127.0.0.1:7", "");
    const inet_resolved resolved = inet_resolved::ask(address, AI_NUMERICHOST);
    tcp_attempt attempt;
    attempt.outcome = outcome;
    attempt.system = system;
    attempt.peer_version = 9;
    try {
        throw_connect_error(address, resolved.endpoints.at(0), attempt);
    } catch (const error& thrown) {
        return {thrown.code(), thrown.what()};
    }
}

}  // namespace

TEST_CASE("each failure to connect has its code, names the address and says what to do") {
    struct expectation {
        errc outcome;
        int system;
        errc code;
        const char* advice;
    };
    for (const expectation& e :
         {expectation{errc::connection_refused, ECONNREFUSED, errc::connection_refused, "start the listener"},
          expectation{errc::connection_refused, ETIMEDOUT, errc::timed_out, "firewall"},
          expectation{errc::connection_refused, ECONNRESET, errc::peer_lost, "before it greeted"},
          expectation{errc::connection_refused, EACCES, errc::permission_denied, "firewall"},
          expectation{errc::connection_refused, EADDRNOTAVAIL, errc::address_invalid, ""},
          expectation{errc::version_mismatch, 0, errc::version_mismatch, "version 9"},
          expectation{errc::protocol_violation, 0, errc::protocol_violation, "check the port"},
          expectation{errc::timed_out, 0, errc::timed_out, "still runs"},
          expectation{errc::peer_lost, 0, errc::peer_lost, "before it greeted"},
          expectation{errc::no_resources, EMFILE, errc::no_resources, "ulimit -n"},
          expectation{errc::no_resources, EAFNOSUPPORT, errc::address_invalid, ""}}) {
        const failure seen = fails(e.outcome, e.system);
        CAPTURE(seen.text);
        CHECK(seen.code == e.code);
        CHECK_THAT(seen.text, test::contains("127.0.0.1:7"));
        CHECK_THAT(seen.text, test::contains(e.advice));
    }
    CHECK(fails(errc::connection_refused, ENETUNREACH).code ==
          std::error_code(ENETUNREACH, std::system_category()));
}

TEST_CASE("a host that is not found is an invalid address") {
    try {
        inet_resolved none;
        none.failure = EAI_NONAME;
        none.throw_none("tcp", inet_address::parse("tcp", "nowhere.invalid:7", ""));
    } catch (const error& thrown) {
        CHECK(thrown.code() == errc::address_invalid);
        CHECK_THAT(std::string(thrown.what()), test::contains("nowhere.invalid:7"));
    }
}

}  // namespace test_transport_tcp_connect
