#include <rdmacoro/service/detail/answer_value.hpp>

#include "support/catch.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace test_service_detail_answer_value {

using namespace rdmacoro;
using namespace rdmacoro::detail;

namespace {

constexpr method_facts facts{"kv.get", 1, 2, 3};

std::vector<std::byte> answered(outcome_kind kind, std::int32_t code, std::span<const std::byte> value) {
    const answer_head head{static_cast<std::uint32_t>(kind), code};
    const auto first = std::as_bytes(std::span(&head, 1));
    std::vector<std::byte> all(first.begin(), first.end());
    all.insert(all.end(), value.begin(), value.end());
    return all;
}
std::error_code failure(auto function) {
    try {
        function();
    } catch (const error& failed) {
        CHECK_THAT(failed.what(), Catch::Contains("kv.get"));
        return failed.code();
    }
    return {};
}

}  // namespace

TEST_CASE("an answer with a value gives it, and others throw what they say") {
    const std::string said = "red";
    const auto good = answered(outcome_kind::value, 0, std::as_bytes(std::span(said)));
    CHECK(read_answer<std::string>(facts, value_of_answer(facts, good)) == said);
    const auto none = answered(outcome_kind::toolkit_error, static_cast<int>(errc::access_denied), {});
    CHECK(failure([&] { static_cast<void>(value_of_answer(facts, none)); }) == errc::access_denied);
    CHECK(failure([&] { static_cast<void>(value_of_answer(facts, std::span(good).first(7))); }) ==
          call_errc::malformed_answer);
}

namespace {
/// Ordered numbers in a row, without `resize`.
class flat_set {
public:
    using value_type = std::uint16_t;
    void insert(std::vector<std::uint16_t>::const_iterator, std::uint16_t one) {
        all_.insert(std::lower_bound(all_.begin(), all_.end(), one), one);
    }
    void clear() { all_.clear(); }
    [[nodiscard]] auto begin() const { return all_.begin(); }
    [[nodiscard]] auto end() const { return all_.end(); }
    [[nodiscard]] std::size_t size() const { return all_.size(); }

private:
    std::vector<std::uint16_t> all_;
};
static_assert(row_of_values<const flat_set&>);
}  // namespace

TEST_CASE("a row that cannot be resized is read as it was sent") {
    const std::array<std::uint16_t, 3> row{2, 7, 9};
    const auto bytes = std::as_bytes(std::span(row));
    const flat_set got = read_answer<flat_set>(facts, bytes);
    CHECK(std::ranges::equal(got, row));
    CHECK(read_answer<flat_set>(facts, {}).size() == 0);
    CHECK(failure([&] { static_cast<void>(read_answer<flat_set>(facts, bytes.first(5))); }) ==
          call_errc::malformed_answer);
}

TEST_CASE("a row of numbers comes without its length, and other values are read whole or not at all") {
    const std::array<float, 3> row{1, 2, 3};
    const auto bytes = std::as_bytes(std::span(row));
    CHECK(read_answer<std::vector<float>>(facts, bytes) == std::vector<float>{1, 2, 3});
    CHECK(read_answer<std::vector<float>>(facts, {}).empty());
    CHECK(failure([&] { static_cast<void>(read_answer<std::vector<float>>(facts, bytes.first(5))); }) ==
          call_errc::malformed_answer);
    CHECK(failure([&] { static_cast<void>(read_answer<std::vector<std::string>>(facts, bytes.first(5))); }) ==
          call_errc::malformed_answer);
    CHECK(failure([&] { static_cast<void>(read_answer<bool>(facts, bytes.first(2))); }) ==
          call_errc::malformed_answer);
}

}  // namespace test_service_detail_answer_value
