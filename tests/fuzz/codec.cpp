// Bytes that are decoded as values of each kind of type. Whatever is accepted encodes to the same bytes again, except that sets and maps
// may come in another order. The sanitizers see the rest.

#include <rdmacoro/service/codec.hpp>

#include "fuzz/script.hpp"

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

using namespace rdmacoro;
using rdmacoro::test::demand;

namespace {

struct number_and_flag {
    std::uint32_t a;
    bool b;
};
struct tree {
    std::string name;
    std::vector<tree> kids;
};
struct request {
    std::uint64_t id;
    std::optional<std::string> name;
    std::variant<std::monostate, std::int32_t, std::vector<number_and_flag>> what;
    std::vector<std::pair<std::string, double>> values;
    std::array<std::uint16_t, 3> three;
    std::vector<bool> flags;
};

constexpr decode_limits limits{.bytes = std::size_t{1} << 20, .depth = 16};

template <class T>
void comes_back(std::span<const std::byte> bytes) {
    const auto value = decode<T>(bytes, limits);
    if (!value) return;
    const auto again = encode(*value);
    demand(again.size() == bytes.size());
    demand(std::equal(again.begin(), again.end(), bytes.begin()));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
    if (size == 0) return 0;
    // Exactly these bytes, without any after them.
    const std::size_t count = size - 1;
    const std::unique_ptr<std::byte[]> exact(new std::byte[count]);
    if (count != 0) std::memcpy(exact.get(), data + 1, count);
    const std::span<const std::byte> bytes(exact.get(), count);
    switch (data[0] % 6) {
        case 0: comes_back<request>(bytes); break;
        case 1: comes_back<tree>(bytes); break;
        case 2: comes_back<std::vector<std::string>>(bytes); break;
        case 3: comes_back<std::vector<std::optional<std::vector<number_and_flag>>>>(bytes); break;
        case 4: static_cast<void>(decode<std::map<std::string, std::vector<tree>>>(bytes, limits)); break;
        default: comes_back<std::vector<std::tuple<>>>(bytes); break;
    }
    return 0;
}
