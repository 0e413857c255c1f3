#include <rdmacoro/coro/detail/described.hpp>

#include <rdmacoro/coro/describe.hpp>

#include "support/catch.hpp"

#include <memory>
#include <stdexcept>

namespace test_coro_detail_described {

using namespace rdmacoro;

namespace {

struct holder {
    explicit holder(scheduler& on) { on.described().push_back(node); }
    static void describe(void* self, description& into) noexcept {
        into.add_made([&](pending_operation& one) {
            one.what = "thing";
            one.id = self;
        });
        if (static_cast<holder*>(self)->fails)
            into.add_made([](pending_operation&) { throw std::bad_alloc(); });
    }
    bool fails = false;
    rdmacoro::detail::described node{this, &holder::describe};
};

}  // namespace

TEST_CASE("an object is asked to describe from its registration until it is destroyed", "[describe]") {
    scheduler here;
    auto first = std::make_unique<holder>(here);
    auto second = std::make_unique<holder>(here);
    const description both = here.describe();
    REQUIRE(both.operations().size() == 2);
    CHECK(both.operations()[0].id == first.get());
    first.reset();
    REQUIRE(here.describe().operations().size() == 1);
    CHECK(here.describe().operations()[0].id == second.get());
}

TEST_CASE("an object may outlive the scheduler that it is registered with", "[describe]") {
    auto here = std::make_unique<scheduler>();
    holder outlives(*here);
    here.reset();
    CHECK_FALSE(outlives.node.linked());
}

TEST_CASE("a description that ran out of memory says that it is not complete", "[describe]") {
    scheduler here;
    holder short_of_memory(here);
    short_of_memory.fails = true;
    const description all = here.describe();
    CHECK_FALSE(all.complete());
    CHECK(all.operations().size() == 1);
    CHECK(all.text().find("memory is short") != std::string::npos);
}

}  // namespace test_coro_detail_described
