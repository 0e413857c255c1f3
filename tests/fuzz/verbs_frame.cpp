// Bytes that a peer of a verbs link can send: its greeting, and the word before each message. In blocks of exactly the bytes that arrived, so that
// the sanitizers notice each read past them. Whatever is accepted must satisfy the assumptions of the rest of the transport.

#include <rdmacoro/transport/verbs_rc/frame.hpp>

#include "fuzz/script.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

using namespace rdmacoro;
using namespace rdmacoro::detail;
using namespace rdmacoro::detail::verbs;
using rdmacoro::test::demand;
using rdmacoro::test::script;

namespace {

/// The bytes, with none behind them; some cut off now and then.
struct arrived {
    arrived(script& input, const std::vector<std::byte>& from)
        : size(input.byte() % 8 == 0 ? input.byte() % (from.size() + 1) : from.size()),
          bytes(new std::byte[size]) {
        std::copy_n(from.begin(), size, bytes.get());
    }
    std::size_t size;
    std::unique_ptr<std::byte[]> bytes;
};

void open(script& input) {
    greeting nearly;
    const auto sometimes = [&] { return input.byte() % 8 == 0; };
    if (sometimes()) nearly.magic = static_cast<std::uint32_t>(input.number());
    if (sometimes()) nearly.version = static_cast<std::uint32_t>(input.number());
    nearly.slot_bytes = static_cast<std::uint32_t>(sometimes() ? input.number() : greeting::least_slot);
    nearly.credits = static_cast<std::uint32_t>(sometimes() ? input.number() : greeting::least_credits);
    nearly.refusal = static_cast<std::uint32_t>(input.number());
    nearly.reserved = static_cast<std::uint32_t>(input.number());
    const greeting::bytes stored = nearly.store();
    std::vector<std::byte> raw(stored.begin(), stored.end());
    // rdma_cm gives its private data with zeros behind them.
    raw.resize(raw.size() + input.number() % 64);
    const arrived came(input, raw);
    greeting theirs;
    const errc how = theirs.load(came.bytes.get(), came.size);
    if (how != errc::ok) return demand(how == errc::protocol_violation || how == errc::version_mismatch);
    demand(came.size >= greeting::wire_bytes && theirs.version == greeting::own_version);
    demand(theirs.slot_bytes >= greeting::least_slot && theirs.slot_bytes <= greeting::most_slot);
    demand(theirs.credits >= greeting::least_credits && theirs.credits <= greeting::most_credits);
    const greeting::bytes again = theirs.store();
    demand(std::equal(again.begin(), again.end(), came.bytes.get()));
}

void receive(script& input) {
    std::vector<std::byte> raw(input.number() % 300);
    for (std::size_t n = 0; n < raw.size() && n < frame_bytes; ++n)
        raw[n] = static_cast<std::byte>(input.byte());
    if (input.byte() % 4 != 0 && raw.size() >= frame_word_bytes)
        frame{static_cast<frame_kind>(input.byte() % 8), static_cast<std::uint16_t>(input.number())}.store(
            raw.data());
    const arrived came(input, raw);
    frame word;
    if (!word.load(came.bytes.get(), came.size)) return;
    switch (word.kind) {
        case frame_kind::message: {
            demand(came.size >= frame_bytes);
            message_header header;
            std::memcpy(header.data(), came.bytes.get() + frame_word_bytes, header.size());
            break;
        }
        case frame_kind::credit:
        case frame_kind::flush:
        case frame_kind::flushed: demand(came.size == frame_word_bytes); break;
        default: demand(false);
    }
    std::array<std::byte, frame_word_bytes> again{};
    word.store(again.data());
    demand(std::equal(again.begin(), again.end(), came.bytes.get()));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    script input(data, size);
    while (!input.over()) {
        if (input.byte() % 2 == 0) {
            open(input);
        } else {
            receive(input);
        }
    }
    return 0;
}
