#include <rdmacoro/service/detail/group_words.hpp>

#include "support/catch.hpp"

#include <cstring>
#include <memory>
#include <random>
#include <set>

namespace test_service_detail_group_words {

using namespace rdmacoro;
using namespace rdmacoro::detail;

namespace {

constexpr unsigned ranks = 10;

group_word full_word() {
    group_word word;
    word.kind = static_cast<std::uint8_t>(word_kind::revoke);
    word.context = 77;
    word.number = 123'456'789;
    word.by = 3;
    word.why = 4;
    word.lost = {1, 5};
    word.absent = {0, 2, 9};
    word.text = "a text";
    return word;
}
bool same(const group_word& a, const group_word& b) { return encode_word(a) == encode_word(b); }

/// Exactly these bytes, so that a sanitizer sees a read behind them.
result<group_word> decoded(std::span<const std::byte> bytes) {
    const std::unique_ptr<std::byte[]> exact(new std::byte[bytes.size()]);
    if (!bytes.empty()) std::memcpy(exact.get(), bytes.data(), bytes.size());
    return decode_word({exact.get(), bytes.size()}, ranks);
}
bool is_valid(const group_word& word) {
    const auto are_ranks = [](const std::vector<std::uint32_t>& list) {
        std::int64_t last = -1;
        for (const std::uint32_t rank : list) {
            if (rank >= ranks || rank <= last) return false;
            last = rank;
        }
        return true;
    };
    return word.kind < word_kinds && word.context != 0 && word.context < (std::uint64_t{1} << context_bits) &&
           word.by < ranks && are_ranks(word.lost) && are_ranks(word.absent);
}

}  // namespace

TEST_CASE("a word comes back from its bytes as it was") {
    const group_word word = full_word();
    const result<group_word> back = decoded(encode_word(word));
    REQUIRE(back);
    CHECK(same(*back, word));
    CHECK(is_valid(*back));
}

TEST_CASE("a failure travels as a word, with codes of each category, and long texts are cut") {
    for (const std::error_code why : {make_error_code(errc::peer_lost), make_error_code(group_errc::mismatch),
                                      std::error_code(5, std::system_category())}) {
        group_failure failure;
        failure.why = why;
        failure.by = 2;
        failure.lost = {4};
        failure.absent = {1};
        failure.text = "said";
        const group_failure back = failure_of(word_of(failure, 9));
        CHECK(back.why == why);
        CHECK(back.describe() == failure.describe());
        failure.text.assign(1'000'000, 'x');
        CHECK(encode_word(word_of(failure, 9)).size() < 10'000);
    }
}

TEST_CASE("a word with anything in it that no rank writes is refused") {
    const auto refused = [](auto change) {
        group_word word = full_word();
        change(word);
        return !decoded(encode_word(word)).has_value();
    };
    CHECK(refused([](group_word& w) { w.kind = word_kinds; }));
    CHECK(refused([](group_word& w) { w.context = 0; }));
    CHECK(refused([](group_word& w) { w.context = std::uint64_t{1} << context_bits; }));
    CHECK(refused([](group_word& w) { w.category = 3; }));
    CHECK(refused([](group_word& w) { w.by = ranks; }));
    CHECK(refused([](group_word& w) { w.lost = {ranks}; }));
    CHECK(refused([](group_word& w) { w.lost = {3, 3}; }));
    CHECK(refused([](group_word& w) { w.absent = {4, 3}; }));
    CHECK(!refused([](group_word&) {}));
}

TEST_CASE("words that are cut short, lengthened, or changed by chance are refused, or valid ones") {
    const std::vector<std::byte> good = encode_word(full_word());
    for (std::size_t length = 0; length < good.size(); ++length)
        CHECK(!decoded(std::span(good).first(length)).has_value());
    std::vector<std::byte> longer = good;
    longer.push_back(std::byte{0});
    CHECK(!decoded(longer).has_value());
    std::mt19937_64 chance(1);
    std::size_t refused = 0;
    bool all_valid = true;
    for (int n = 0; n < 200'000; ++n) {
        std::vector<std::byte> bytes = good;
        if (n % 4 == 0) {
            bytes.resize(chance() % 64);
            for (std::byte& at : bytes) at = static_cast<std::byte>(chance());
        } else {
            for (std::uint64_t changes = 1 + chance() % 3; changes != 0; --changes)
                bytes[chance() % bytes.size()] = static_cast<std::byte>(chance());
            if (n % 4 == 1) bytes.resize(chance() % (bytes.size() + 1));
        }
        const result<group_word> word = decoded(bytes);
        if (!word) {
            ++refused;
        } else {
            all_valid = all_valid && is_valid(*word);
        }
    }
    CHECK(all_valid);
    CHECK(refused > 50'000);
    CHECK(refused < 200'000);
}

TEST_CASE("tags of two collectives, phases or contexts differ, and none is a word's") {
    std::set<tag_type> tags{word_tag};
    for (const std::uint64_t context :
         {world_context, context_of(0, 2), (std::uint64_t{1} << context_bits) - 1}) {
        for (const std::uint32_t number : {0u, 1u, (1u << number_bits) - 1}) {
            for (const unsigned phase : {0u, 1u, (1u << phase_bits) - 1}) {
                const tag_type tag = group_tag(context, number, phase);
                CHECK(tags.insert(tag).second);
                CHECK(of_context(context).accepts(tag));
                CHECK(!of_context(context == 1 ? 2 : 1).accepts(tag));
                CHECK(!of_context(context).accepts(word_tag));
            }
        }
    }
    // After as many collectives as cannot be on their way at a time.
    CHECK(group_tag(1, 1u << number_bits, 1) == group_tag(1, 0, 1));
    CHECK(context_of(3, 7) != context_of(7, 3));
}

}  // namespace test_service_detail_group_words
