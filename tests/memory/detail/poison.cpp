#include <rdmacoro/memory/detail/poison.hpp>

#include "support/catch.hpp"

namespace test_memory_detail_poison {

using namespace rdmacoro::detail;

TEST_CASE("poisoned memory is known as such until it is unpoisoned, under AddressSanitizer only") {
    alignas(8) unsigned char memory[64] = {};
    CHECK_FALSE(is_poisoned(memory));
    poison(memory + 8, 32);
    CHECK_FALSE(is_poisoned(memory + 7));
    CHECK(is_poisoned(memory + 8) == poisons);
    CHECK(is_poisoned(memory + 39) == poisons);
    CHECK_FALSE(is_poisoned(memory + 40));
    unpoison(memory + 8, 32);
    CHECK_FALSE(is_poisoned(memory + 8));
}

}  // namespace test_memory_detail_poison
