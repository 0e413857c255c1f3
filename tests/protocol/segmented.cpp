#include <rdmacoro/protocol/segmented.hpp>

#include "support/catch.hpp"

namespace test_protocol_segmented {

using namespace rdmacoro;

namespace {
constexpr capabilities small{.max_message = 2000, .eager_bytes = 500, .segment_bytes = 1000};
}

// It carries every length, synchronous or not, up to its own limit. Its engine's tests are in detail/segmented_engine.cpp.
static_assert(protocol_policy<segmented<>>);
static_assert(segmented<>::admits({0, true}, small) &&
              segmented<>::admits({std::size_t{1} << 40, false}, small));
static_assert(segmented<up_to<100>>::admits({100, true}, small) &&
              !segmented<up_to<100>>::admits({101, false}, small));
static_assert(segmented<up_to<100>>::longest(small) == 100);
static_assert(segmented<>::parameter() != segmented<up_to<100>>::parameter());

TEST_CASE("a segmented policy has as many kinds on the wire as its engine") {
    CHECK(segmented<>::kinds == static_cast<unsigned>(detail::segment_kind::taken) + 1);
}

}  // namespace test_protocol_segmented
