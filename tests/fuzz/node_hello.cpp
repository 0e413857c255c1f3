// Bytes that are read as a hello, an answer or a card of a node. Whatever is accepted encodes to the same bytes again, and has no fault. The
// sanitizers see the rest.

#include <rdmacoro/service/detail/node_wire.hpp>

#include "fuzz/script.hpp"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <vector>

using namespace rdmacoro;
using namespace rdmacoro::detail;
using rdmacoro::test::demand;

namespace {

void same(const std::vector<std::byte>& again, std::span<const std::byte> bytes) {
    demand(std::equal(again.begin(), again.end(), bytes.begin(), bytes.end()));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
    if (size == 0) return 0;
    // Exactly these bytes, without any after them.
    const std::size_t count = size - 1;
    const std::unique_ptr<std::byte[]> exact(new std::byte[count]);
    if (count != 0) std::memcpy(exact.get(), data + 1, count);
    const std::span<const std::byte> bytes(exact.get(), count);
    std::uint32_t version = 0;
    if (data[0] % 3 == 0) {
        if (const auto hello = decode_hello(bytes, version)) {
            demand(hello->from.fault() == nullptr && hello->to != 0);
            same(encode_hello(*hello), bytes);
        }
    } else if (data[0] % 3 == 1) {
        if (const auto answer = decode_answer(bytes, version)) {
            demand(answer->from.fault() == nullptr);
            same(encode_answer(*answer), bytes);
        }
    } else if (const auto card = decode_card(bytes)) {
        demand(card->fault() == nullptr && count <= node_card::most_bytes);
        same(encode_card(*card), bytes);
    }
    return 0;
}
