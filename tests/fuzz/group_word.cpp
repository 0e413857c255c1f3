// Bytes that are read as a word between ranks. Whatever is accepted names ranks that there are, and encodes to the same bytes again. The
// sanitizers see the rest.

#include <rdmacoro/service/detail/group_words.hpp>

#include "fuzz/script.hpp"

#include <algorithm>
#include <cstring>
#include <memory>
#include <span>
#include <vector>

using namespace rdmacoro;
using namespace rdmacoro::detail;
using rdmacoro::test::demand;

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
    if (size == 0) return 0;
    const std::size_t count = size - 1;
    const std::unique_ptr<std::byte[]> exact(new std::byte[count]);
    if (count != 0) std::memcpy(exact.get(), data + 1, count);
    const std::span<const std::byte> bytes(exact.get(), count);
    const unsigned ranks = 1u + data[0];
    if (const auto word = decode_word(bytes, ranks)) {
        demand(word->by < ranks && word->kind < word_kinds && word->context != 0);
        for (const auto* list : {&word->lost, &word->absent})
            demand(std::all_of(list->begin(), list->end(), [&](std::uint32_t rank) { return rank < ranks; }));
        const std::vector<std::byte> again = encode_word(*word);
        demand(std::equal(again.begin(), again.end(), bytes.begin(), bytes.end()));
        static_cast<void>(failure_of(*word).describe());
    }
    return 0;
}
