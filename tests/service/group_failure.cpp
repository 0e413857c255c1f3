#include <rdmacoro/service/group_failure.hpp>

#include "support/catch.hpp"

#include <numeric>

namespace test_service_group_failure {

using namespace rdmacoro;

TEST_CASE("errors of groups have a category of their own, and a text each") {
    CHECK(std::string(group_category().name()) == "rdmacoro.group");
    CHECK(!std::error_code(group_errc::ok));
    const std::error_code revoked = group_errc::revoked;
    CHECK(revoked.category() == group_category());
    CHECK(revoked.message() == "another rank has given the group up");
    CHECK(std::error_code(group_errc::mismatch).message() == "the ranks disagree about the operation");
    CHECK(std::error_code(group_errc::not_member).message() == "this rank is not of the group");
    CHECK(std::error_code(99, group_category()).message() == "an unknown error of a group");
}

TEST_CASE("a failure says which rank noticed it, which were lost and which had not entered") {
    group_failure of;
    of.by = 2;
    CHECK(of.describe() == "rank 2 has given it up");
    of.lost = {5};
    CHECK(of.describe() == "rank 2 has lost rank 5");
    of.lost = {5, 7, 9};
    of.text = "gone";
    CHECK(of.describe() == "rank 2 has lost ranks 5, 7 and 9 (gone)");
    of.lost = {2, 5};
    CHECK(of.describe() == "rank 2 has lost rank 5, and is lost itself (gone)");
    of.lost = {2};
    CHECK(of.describe() == "rank 2 is lost (gone)");
    of.lost.clear();
    of.why = make_error_code(errc::canceled);
    of.absent = {3};
    of.text.clear();
    CHECK(of.describe() == "rank 2 has canceled it, or its time was over; not entered: rank 3");
    of.absent.resize(40);
    std::iota(of.absent.begin(), of.absent.end(), 0u);
    CHECK(of.describe().find("14, 15 and 24 more") != std::string::npos);
}

TEST_CASE("reports of one failure are merged, and a report that says nothing new is known as such") {
    group_failure all;
    all.lost = {3};
    group_failure other;
    other.lost = {1, 3};
    other.absent = {2};
    CHECK(all.merge(other));
    CHECK(all.lost == std::vector<unsigned>{1, 3});
    CHECK(all.absent == std::vector<unsigned>{2});
    CHECK(!all.merge(other));
}

}  // namespace test_service_group_failure
