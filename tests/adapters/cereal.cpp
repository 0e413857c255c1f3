#include <rdmacoro/adapters/cereal.hpp>

#include "support/catch.hpp"
#include "support/sanitizer.hpp"

#include <rdmacoro/service/method.hpp>

#include <cereal/types/array.hpp>
#include <cereal/types/base_class.hpp>
#include <cereal/types/deque.hpp>
#include <cereal/types/map.hpp>
#include <cereal/types/memory.hpp>
#include <cereal/types/optional.hpp>
#include <cereal/types/string.hpp>
#include <cereal/types/utility.hpp>
#include <cereal/types/variant.hpp>
#include <cereal/types/vector.hpp>

#include <array>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <variant>
#include <vector>

using namespace rdmacoro;

namespace {

struct nothing {
    template <class Archive>
    void serialize(Archive&) {}
};

/// With a private `serialize`, versioned.
class station {
public:
    station() = default;
    station(std::string name, std::vector<double> values)
        : name_(std::move(name)), values_(std::move(values)) {}
    friend bool operator==(const station&, const station&) = default;

private:
    friend class cereal::access;
    template <class Archive>
    void serialize(Archive& archive, std::uint32_t version) {
        archive(CEREAL_NVP(name_), values_);
        if (version > 0) archive & flags_;
    }
    std::string name_;
    std::vector<double> values_;
    std::array<bool, 3> flags_{true, false, true};
};

struct two_shared {
    std::shared_ptr<std::uint64_t> number;
    std::shared_ptr<std::uint64_t> same;
    std::shared_ptr<std::string> text;

    template <class Archive>
    void serialize(Archive& archive) {
        archive(number, same, text);
    }
};

/// Has a member that does not travel.
struct cached {
    int known = 0;
    template <class Archive>
    void serialize(Archive&) {}
};
struct holds_nothing {
    nothing within;
    template <class Archive>
    void serialize(Archive& archive) {
        archive(within);
    }
};
struct without_bytes {
    std::vector<std::pair<nothing, nothing>> pairs;
    std::vector<holds_nothing> holders;
    std::vector<std::array<std::string, 0>> arrays;
    std::vector<cached> caches;
    std::vector<int> numbers;

    template <class Archive>
    void serialize(Archive& archive) {
        archive(pairs, holders, arrays, caches, numbers);
    }
};

/// Counts its objects.
struct ring {
    std::shared_ptr<ring> next;
    int number = 0;
    static inline long alive = 0;

    ring() { ++alive; }
    ring(const ring& other) : next(other.next), number(other.number) { ++alive; }
    ring& operator=(const ring&) = default;
    ~ring() { --alive; }
    template <class Archive>
    void serialize(Archive& archive) {
        archive(next, number);
    }
};

/// With `save` and `load`, and pointers to itself.
struct tree {
    int number = 0;
    std::map<std::string, std::optional<std::variant<int, std::string>>> notes;
    std::vector<bool> bits;
    std::vector<nothing> nothings;
    std::vector<station> stations;
    std::unique_ptr<tree> below;

    template <class Archive>
    void save(Archive& archive) const {
        archive(number, notes, bits, nothings, stations, below);
    }
    template <class Archive>
    void load(Archive& archive) {
        archive(number, notes, bits, nothings, stations);
        archive >> below;
    }
};

/// Its function is no member.
struct free_one {
    int number = 0;
};
template <class Archive>
void serialize(Archive& archive, free_one& value) {
    archive(value.number);
}

/// Its function refuses what it reads.
struct positive {
    int number = 1;
    template <class Archive>
    void serialize(Archive& archive) {
        archive(number);
        if (number <= 0) throw std::domain_error("not positive");
    }
};

struct report {
    int at = 0;
    station from;
    std::vector<free_one> all;
};

tree example(int levels) {
    tree made;
    made.number = levels;
    made.notes["a"] = 7;
    made.notes["b"] = std::string("text");
    made.notes["c"];
    made.bits = {true, false, true};
    made.nothings.resize(5);
    made.stations = {station("north", std::vector<double>(20, 0.5)), station()};
    if (levels > 1) made.below = std::make_unique<tree>(example(levels - 1));
    return made;
}

template <class T>
void append(std::vector<std::byte>& to, const T& value) {
    const auto bytes = std::as_bytes(std::span(&value, 1));
    to.insert(to.end(), bytes.begin(), bytes.end());
}

}  // namespace

CEREAL_CLASS_VERSION(station, 1)
template <>
inline constexpr bool rdmacoro::travels_by_cereal<free_one> = true;
template <>
inline constexpr std::string_view rdmacoro::cereal_name<free_one> = "free one";

namespace {

/// Takes much more memory than bytes of a message.
struct block {
    std::array<char, 4096> cache{};
    int number = 0;
    template <class Archive>
    void serialize(Archive& archive) {
        archive(number);
    }
};
struct blocks {
    std::vector<std::unique_ptr<block>> own;
    std::vector<std::shared_ptr<block>> shared;
    template <class Archive>
    void serialize(Archive& archive) {
        archive(own, shared);
    }
};
struct containers {
    std::map<std::uint32_t, std::uint8_t> numbers;
    std::vector<std::deque<char>> queues;
    template <class Archive>
    void serialize(Archive& archive) {
        archive(numbers, queues);
    }
};
/// Is a row of blocks, and written as one.
struct row_of_blocks : std::vector<block> {
    template <class Archive>
    void serialize(Archive& archive) {
        archive(cereal::base_class<std::vector<block>>(this));
    }
};

/// Knows what it is a part of.
struct part {
    std::vector<std::shared_ptr<part>> below;
    std::weak_ptr<part> above;
    std::shared_ptr<part> owner;
    template <class Archive>
    void serialize(Archive& archive) {
        archive(below, above, owner);
    }
};
struct whole_tree {
    std::shared_ptr<part> root;
    template <class Archive>
    void serialize(Archive& archive) {
        archive(root);
    }
};

struct deferred {
    std::shared_ptr<int> later;
    int now = 0;
    template <class Archive>
    void serialize(Archive& archive) {
        archive(cereal::defer(later), now);
    }
};

struct list {
    std::unique_ptr<list> next;
    int number = 0;
    template <class Archive>
    void serialize(Archive& archive) {
        archive(cereal::defer(next), number);
    }
};
struct deferred_row {
    std::vector<block> later;
    template <class Archive>
    void serialize(Archive& archive) {
        archive(cereal::defer(later));
    }
};
struct ends_itself {
    std::array<int, 1> later{};
    int now = 0;
    template <class Archive>
    void serialize(Archive& archive) {
        archive(cereal::defer(later), now);
        archive.serializeDeferments();
    }
};

/// Throws no exception of the standard library, or asks for an array of a length that the message has.
struct unruly {
    std::int64_t length = 0;
    template <class Archive>
    void serialize(Archive& archive) {
        archive(length);
        if (length == 1) throw 42;
        if (length < 0) delete[] new int[static_cast<std::size_t>(length)];
    }
};

}  // namespace

/// cereal's functions for vectors would do, too.
template <class Archive>
struct cereal::specialize<Archive, row_of_blocks, cereal::specialization::member_serialize> {};

// Their padding would be bytes of this process.
static_assert(
    !cereal::traits::is_output_serializable<cereal::BinaryData<const long double*>, cereal_output>::value);
static_assert(!cereal::traits::is_output_serializable<long double, cereal_output>::value);
static_assert(
    cereal::traits::is_output_serializable<cereal::BinaryData<const double*>, cereal_output>::value);

TEST_CASE("types with cereal's functions have an encoding, and others keep theirs") {
    STATIC_REQUIRE(detail::kind_of<station>() == detail::encoding_kind::codec);
    STATIC_REQUIRE(detail::kind_of<tree>() == detail::encoding_kind::codec);
    STATIC_REQUIRE(detail::kind_of<free_one>() == detail::encoding_kind::codec);
    STATIC_REQUIRE(detail::kind_of<std::vector<double>>() == detail::encoding_kind::range);
    STATIC_REQUIRE(detail::kind_of<std::optional<int>>() == detail::encoding_kind::optional);
    STATIC_REQUIRE(detail::kind_of<report>() == detail::encoding_kind::aggregate);
    STATIC_REQUIRE(signature_of<station>() != signature_of<free_one>());
    STATIC_REQUIRE(method<"station.of", station(report)>::signature != 0);
}

TEST_CASE("values come back as they were written by cereal's functions") {
    const tree made = example(5);
    const auto bytes = encode(made);
    const auto got = decode<tree>(bytes);
    REQUIRE(got);
    CHECK(encode(*got) == bytes);
    CHECK(got->stations == made.stations);
    CHECK(got->notes == made.notes);
    CHECK(got->nothings.size() == 5);
    CHECK(got->below->below->below->below->number == 1);

    const report all{3, station("east", {1.0, 2.0}), {{4}, {5}}};
    const auto back = decode<report>(encode(all));
    REQUIRE(back);
    CHECK(back->at == 3);
    CHECK(back->from == all.from);
    CHECK(back->all.at(1).number == 5);
}

TEST_CASE("what cereal's functions write is copied, and never borrowed") {
    const station made("north", std::vector<double>(10000, 1.5));
    encoder to;
    to.write(made);
    CHECK(to.pieces().size() == 1);
    CHECK(to.copied() == to.size());
}

TEST_CASE("every truncation is refused") {
    const auto bytes = encode(example(3));
    for (std::size_t length = 0; length < bytes.size(); ++length) {
        const auto got = decode<tree>(std::span(bytes).first(length));
        if (got.error() != std::errc::bad_message) FAIL("of " << bytes.size() << " bytes " << length);
    }
}

TEST_CASE("sizes that a peer makes up take no memory") {
    for (const std::uint64_t count :
         {std::uint64_t{11}, std::uint64_t{1} << 32, std::uint64_t{1} << 63, ~std::uint64_t{0}}) {
        std::vector<std::byte> text;
        append(text, std::uint32_t{0});  // the class's version
        append(text, count);
        text.resize(text.size() + 10);
        const auto got = decode<station>(text);
        CHECK(got.error() == std::errc::bad_message);
    }
    // Elements that take no bytes are as many as the limits allow.
    tree many;
    many.nothings.resize(2000);
    const auto bytes = encode(many);
    CHECK(decode<tree>(bytes));
    CHECK(decode<tree>(bytes, {.bytes = 1000}).error() == std::errc::bad_message);
    // Each byte of the message may stand for a large element.
    tree stations;
    stations.stations.resize(100);
    const auto large = encode(stations);
    CHECK(decode<tree>(large, {.bytes = 100 * sizeof(station) - 1}).error() == std::errc::bad_message);
    CHECK(decode<tree>(large, {.bytes = 100 * sizeof(station) + 1000}));
}

TEST_CASE("what a value takes in memory is counted: objects of pointers, nodes of maps, queues, and rows of "
          "a base class") {
    blocks many;
    for (int n = 0; n < 100; ++n) many.own.push_back(std::make_unique<block>());
    const auto own = encode(many);
    CHECK(own.size() < 1000);
    CHECK(decode<blocks>(own, {.bytes = 100 * sizeof(block)}).error() == std::errc::bad_message);
    CHECK(decode<blocks>(own, {.bytes = 110 * sizeof(block)}));
    many.own.clear();
    for (int n = 0; n < 100; ++n) many.shared.push_back(std::make_shared<block>());
    const auto shared = encode(many);
    CHECK(decode<blocks>(shared, {.bytes = 100 * sizeof(block)}).error() == std::errc::bad_message);
    CHECK(decode<blocks>(shared, {.bytes = 110 * sizeof(block)}));
    // Pointers to nothing take themselves alone.
    blocks none;
    none.own.resize(100);
    none.shared.resize(100);
    CHECK(decode<blocks>(encode(none), {.bytes = 5000}));

    containers nodes;
    for (std::uint32_t n = 0; n < 1000; ++n) nodes.numbers[n] = 1;
    const auto numbers = encode(nodes);
    CHECK(decode<containers>(numbers, {.bytes = 30'000}).error() == std::errc::bad_message);
    CHECK(decode<containers>(numbers, {.bytes = 50'000}));
    containers empty;
    empty.queues.resize(1000);
    const auto queues = encode(empty);
    CHECK(decode<containers>(queues, {.bytes = 500'000}).error() == std::errc::bad_message);
    CHECK(decode<containers>(queues, {.bytes = 1'100'000}));

    row_of_blocks row;
    row.resize(100);
    const auto based = encode(row);
    CHECK(decode<row_of_blocks>(based, {.bytes = 99 * sizeof(block)}).error() == std::errc::bad_message);
    CHECK(decode<row_of_blocks>(based, {.bytes = 110 * sizeof(block)}));
}

TEST_CASE("a part may refer to what it is a part of by a weak pointer, and not own it") {
    whole_tree value;
    value.root = std::make_shared<part>();
    value.root->below.push_back(std::make_shared<part>());
    value.root->below.push_back(std::make_shared<part>());
    for (const auto& one : value.root->below) one->above = value.root;
    const auto back = decode<whole_tree>(encode(value));
    REQUIRE(back);
    REQUIRE(back->root->below.size() == 2);
    for (const auto& one : back->root->below) CHECK(one->above.lock() == back->root);
    CHECK(back->root.use_count() == 1);
    value.root->below[0]->owner = value.root;
    CHECK(decode<whole_tree>(encode(value)).error() == std::errc::bad_message);
    value.root->below[0]->owner = nullptr;
}

TEST_CASE("what a type defers is written and read behind the rest") {
    deferred value;
    value.later = std::make_shared<int>(7);
    value.now = 3;
    const auto back = decode<deferred>(encode(value));
    REQUIRE(back);
    CHECK(back->now == 3);
    REQUIRE(back->later);
    CHECK(*back->later == 7);
}

TEST_CASE("what is deferred may defer, is counted as elsewhere, and is not written again by a type that ends "
          "it itself") {
    list first;
    list* last = &first;
    for (int n = 1; n <= 20; ++n) {
        last->next = std::make_unique<list>();
        last = last->next.get();
        last->number = n;
    }
    const auto whole = decode<list>(encode(first));
    REQUIRE(whole);
    int length = 0;
    for (const list* at = &*whole; at != nullptr; at = at->next.get()) CHECK(at->number == length++);
    CHECK(length == 21);

    // In memory they are one within another, however they are read.
    for (int n = 0; n < 2000; ++n) {
        last->next = std::make_unique<list>();
        last = last->next.get();
    }
    CHECK(decode<list>(encode(first)).error() == std::errc::bad_message);

    deferred_row row;
    row.later.resize(100);
    const auto bytes = encode(row);
    CHECK(decode<deferred_row>(bytes, {.bytes = 99 * sizeof(block)}).error() == std::errc::bad_message);
    CHECK(decode<deferred_row>(bytes, {.bytes = 110 * sizeof(block)}));

    const ends_itself once{{7}, 3};
    CHECK(encode(once).size() == 2 * sizeof(int));
    const auto back = decode<ends_itself>(encode(once));
    REQUIRE(back);
    CHECK(back->later[0] == 7);
    CHECK(back->now == 3);
}

TEST_CASE("a value that is nested too deep is refused, and flags have two values") {
    CHECK(decode<tree>(encode(example(20))));
    CHECK(decode<tree>(encode(example(2000))).error() == std::errc::bad_message);

    auto bytes = encode(station());
    REQUIRE(decode<station>(bytes));
    bytes.back() = std::byte{2};
    decoder from(bytes);
    station into;
    CHECK_FALSE(from.read(into));
    CHECK_THAT(from.why(), Catch::Contains("flag"));
}

TEST_CASE("what a type's own function throws refuses the value") {
    CHECK(decode<positive>(encode(positive{3})));
    std::vector<std::byte> bytes;
    append(bytes, -3);
    CHECK(decode<positive>(bytes).error() == std::errc::bad_message);
    for (const std::int64_t length : {std::int64_t{1}, std::int64_t{-1}}) {
        if (length < 0 && test::under_sanitizer) continue;  // which ends the process for such a length
        bytes.clear();
        append(bytes, length);
        CHECK(decode<unruly>(bytes).error() == std::errc::bad_message);
    }
}

TEST_CASE("shared objects come back shared") {
    two_shared value;
    value.number = std::make_shared<std::uint64_t>(7);
    value.same = value.number;
    value.text = std::make_shared<std::string>("a text that is no number");
    const auto back = decode<two_shared>(encode(value));
    REQUIRE(back);
    CHECK(*back->number == 7);
    CHECK(back->same == back->number);
    CHECK(*back->text == *value.text);
    CHECK_FALSE(decode<two_shared>(encode(two_shared{}))->number);
}

TEST_CASE("a shared object is not taken for one of another type") {
    two_shared value;
    value.number = std::make_shared<std::uint64_t>(0x4141414141414141);
    std::vector<std::byte> bytes = encode(value);  // an id and a number, and two ids of nothing
    REQUIRE(bytes.size() == 4 + 8 + 4 + 4);
    const std::uint32_t first = 1;
    SECTION("of the same type") {
        std::memcpy(bytes.data() + 12, &first, sizeof first);
        const auto back = decode<two_shared>(bytes);
        REQUIRE(back);
        CHECK(back->same == back->number);
    }
    SECTION("of another type") {
        std::memcpy(bytes.data() + 16, &first, sizeof first);
        CHECK_FALSE(decode<two_shared>(bytes));
    }
    SECTION("of one that was not read") {
        const std::uint32_t second = 2;
        std::memcpy(bytes.data() + 12, &second, sizeof second);
        CHECK_FALSE(decode<two_shared>(bytes));
    }
}

TEST_CASE("an object that would own itself is refused, and destroyed") {
    ring value;
    value.next = std::make_shared<ring>();
    std::vector<std::byte> bytes =
        encode(value);  // the id of the next, the id of nothing within it, and two numbers
    REQUIRE(decode<ring>(bytes));
    const std::uint32_t first = 1;
    std::memcpy(bytes.data() + 4, &first, sizeof first);
    const long before = ring::alive;
    CHECK_FALSE(decode<ring>(bytes));
    CHECK(ring::alive == before);
}

TEST_CASE("random and changed bytes are refused or whole, in bounded memory") {
    std::mt19937 random(7);
    const auto good = encode(example(3));
    const decode_limits limits{.bytes = 1 << 20};
    std::size_t whole = 0;
    for (int round = 0; round < 20000; ++round) {
        std::vector<std::byte> bytes = good;
        if (round % 2 == 0) {
            for (unsigned n = 1 + random() % 4; n != 0; --n)
                bytes[random() % bytes.size()] = static_cast<std::byte>(random());
        } else {
            bytes.resize(random() % 200);
            for (std::byte& one : bytes) one = static_cast<std::byte>(random());
        }
        const auto got = decode<tree>(bytes, limits);
        if (got) {
            ++whole;
        } else if (got.error() != std::errc::bad_message) {
            FAIL("an error of another kind: " << got.error().message());
        }
    }
    CHECK(whole > 0);
}

TEST_CASE("elements that take no bytes of a message are read as many as were written") {
    without_bytes value;
    value.pairs.resize(3);
    value.holders.resize(4);
    value.arrays.resize(5);
    value.caches.resize(6);
    value.numbers = {1, 2};
    const auto bytes = encode(value);
    const auto back = decode<without_bytes>(bytes);
    REQUIRE(back);
    CHECK(back->pairs.size() == 3);
    CHECK(back->holders.size() == 4);
    CHECK(back->arrays.size() == 5);
    CHECK(back->caches.size() == 6);
    CHECK(back->numbers == value.numbers);
    // What they take in memory is limited all the same.
    value.caches.resize(100'000);
    const auto many = encode(value);
    CHECK(many.size() == bytes.size());
    CHECK(decode<without_bytes>(many, {.bytes = 100'000}).error() == std::errc::bad_message);
    // A count of elements that do take bytes is compared with the bytes that follow.
    auto hostile = encode(value.numbers);
    const std::uint64_t count = 1000;
    std::memcpy(hostile.data(), &count, sizeof count);
    CHECK(decode<std::vector<int>>(hostile).error() == std::errc::bad_message);
}
