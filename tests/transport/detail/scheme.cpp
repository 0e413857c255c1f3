#include <rdmacoro/transport/detail/scheme.hpp>

#include "support/catch.hpp"

#include <string>

namespace test_transport_detail_scheme {

using namespace rdmacoro::test;
using rdmacoro::detail::without_scheme;
using rdmacoro::detail::wrong_scheme;

TEST_CASE("an address has the transport's scheme or none") {
    CHECK(wrong_scheme("shm", "shm://a").empty());
    CHECK(wrong_scheme("shm", "a").empty());
    CHECK(wrong_scheme("ofi+tcp", "ofi+tcp://h:1").empty());
    CHECK(without_scheme("shm", "shm://a") == "a");
    CHECK(without_scheme("shm", "a") == "a");
    CHECK(without_scheme("shm", "shm://shm://a") == "shm://a");
    CHECK(without_scheme("shm", "tcp://h:1") == "tcp://h:1");
}

TEST_CASE("an unknown scheme is refused with those that are known, and the nearest") {
    const std::string said = wrong_scheme("shm", "smh://a");
    CHECK_THAT(said, contains("no transport has the scheme \"smh\"") &&
                         contains("known are shm, tcp, verbs, ofi, ugni, sim") &&
                         contains("did you mean shm://a?"));
    CHECK_THAT(wrong_scheme("tcp", "tpc://h:1"), contains("did you mean tcp://h:1?"));
    CHECK_THAT(wrong_scheme("tcp", "TCP://h:1"), contains("did you mean tcp://h:1?"));
    CHECK_THAT(wrong_scheme("shm", "verb://h:1"), contains("did you mean verbs://h:1?"));
    CHECK_THAT(wrong_scheme("own", "onw://x"), contains("sim, own") && contains("did you mean own://x?"));
}

TEST_CASE("a scheme that is near none is given no advice, however long it is") {
    for (const std::string& scheme : {std::string("http"), std::string(), std::string(100'000, 's')}) {
        const std::string said = wrong_scheme("shm", scheme + "://a");
        CHECK_THAT(said, contains("known are shm") && !contains("did you mean"));
    }
}

TEST_CASE("an address of another transport is refused with the header of that one") {
    CHECK_THAT(wrong_scheme("shm", "tcp://h:1"),
               contains("not a shm:// address: it is one of rdmacoro::tcp, of <rdmacoro/transport/tcp.hpp>"));
    CHECK_THAT(wrong_scheme("tcp", "verbs://h:1"), contains("rdmacoro::verbs_rc"));
    CHECK_THAT(wrong_scheme("tcp", "ofi+cxi://h:1"), contains("<rdmacoro/transport/ofi.hpp>"));
    CHECK_THAT(wrong_scheme("ofi+cxi", "ofi+tcp://h:1"), contains("not a ofi+cxi:// address"));
}

TEST_CASE("an address with one slash is refused with the one that was meant") {
    CHECK_THAT(wrong_scheme("tcp", "tcp:/host:1"),
               contains("a slash is missing; did you mean tcp://host:1?"));
    CHECK_THAT(wrong_scheme("tcp", "shm:/a"), contains("did you mean shm://a?"));
    CHECK_THAT(wrong_scheme("ofi+tcp", "ofi+tcp:/h:1"), contains("did you mean ofi+tcp://h:1?"));
    CHECK_THAT(wrong_scheme("own", "own:/x"), contains("did you mean own://x?"));
    CHECK(wrong_scheme("shm", "a:/b").empty());
}

}  // namespace test_transport_detail_scheme
