#include <rdmacoro/coro/detail/config.hpp>

#include "support/catch.hpp"

#include <string>

#define RDMACORO_TEST_TEXT_OF(...) #__VA_ARGS__
#define RDMACORO_TEST_TEXT(...) RDMACORO_TEST_TEXT_OF(__VA_ARGS__)

namespace test_coro_detail_config {

TEST_CASE("bodies are inline unless they are compiled separately") {
    const std::string text = RDMACORO_TEST_TEXT(RDMACORO_DECL);
#if defined(RDMACORO_SEPARATE_COMPILATION)
    CHECK(text.empty());
#else
    CHECK(text == "inline");
#endif
}

}  // namespace test_coro_detail_config
