#include <rdmacoro/coro/detail/counted.hpp>

#include "support/catch.hpp"

#include <utility>

namespace test_coro_detail_counted {

using namespace rdmacoro::detail;

namespace {
struct noted : counted {
    explicit noted(int& gone) : gone_(gone) {}
    ~noted() override { ++gone_; }

private:
    int& gone_;
};
}  // namespace

TEST_CASE("the last owner deletes, however the others came and went") {
    int gone = 0;
    counted_ptr<noted> first(new noted(gone));
    CHECK(first->owners() == 1);
    {
        counted_ptr<noted> second = first;
        counted_ptr<noted> third = std::move(second);
        CHECK(!second);
        CHECK(first->owners() == 2);
        third = first;
        CHECK(first->owners() == 2);
        third.swap(second);
        CHECK(second.get() == first.get());
    }
    CHECK(first->owners() == 1);
    first = counted_ptr<noted>(first);
    CHECK(gone == 0);
    first.reset();
    CHECK(gone == 1);
    first.reset();
    CHECK(gone == 1);
}

}  // namespace test_coro_detail_counted
