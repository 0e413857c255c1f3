// What a peer of a libfabric link can write without the provider's help: its card, its frames with what stands behind their word,
// the heads of tagged messages. Every number may be anything, in blocks of just the bytes that came, so that the sanitizers see
// who reads past them. What is let through must be what the rest of the transport counts on.

#include <rdmacoro/memory/region_table.hpp>
#include <rdmacoro/transport/ofi/judge.hpp>

#include "fuzz/script.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <vector>

using namespace rdmacoro;
using namespace rdmacoro::detail;
using namespace rdmacoro::detail::fabric;
using rdmacoro::test::demand;
using rdmacoro::test::script;

namespace {

/// Just these bytes and none behind them.
class block {
public:
    explicit block(std::span<const std::byte> from) : bytes_(new std::byte[from.size()]), size_(from.size()) {
        std::copy(from.begin(), from.end(), bytes_.get());
    }
    [[nodiscard]] std::byte* data() const { return bytes_.get(); }
    [[nodiscard]] std::size_t size() const { return size_; }

private:
    std::unique_ptr<std::byte[]> bytes_;
    std::size_t size_;
};

constexpr std::array<std::string_view, 4> providers{"tcp;ofi_rxm", "shm", "gni", ""};
constexpr std::array<std::uint32_t, 5> formats{address_format::sockaddr_in, address_format::sockaddr_in6,
                                               address_format::text, 6, 0};

card_measure drawn_measure(script& input) {
    return {.provider = providers[input.byte() % providers.size()],
            .slot_bytes = card::least_slot + input.number() % card::most_slot,
            .served = input.byte() % 2 == 0,
            .same_host = input.byte() % 2 == 0,
            .host = input.number(),
            .address_format = formats[input.byte() % formats.size()],
            .own_address_bytes = input.number() % (card::most_address + 1)};
}

/// A card that is nearly right for `own`.
card drawn_card(script& input, const card_measure& own) {
    card made;
    const auto sometimes = [&] { return input.byte() % 8 == 0; };
    if (sometimes()) made.magic = static_cast<std::uint32_t>(input.number());
    if (sometimes()) made.version = static_cast<std::uint32_t>(input.number());
    made.slot_bytes = static_cast<std::uint32_t>(sometimes() ? input.number() : own.slot_bytes);
    made.credits = static_cast<std::uint32_t>(sometimes() ? input.number() : card::least_credits);
    made.flags = sometimes() ? static_cast<std::uint32_t>(input.number()) : own.served ? card::served : 0;
    made.address_format = sometimes() ? static_cast<std::uint32_t>(input.number()) : own.address_format;
    made.link = input.number();
    made.host = sometimes() ? input.number() : own.host;
    made.name_provider(own.provider);
    if (sometimes())
        for (char& c : made.provider) c = static_cast<char>(input.byte());
    std::size_t length = own.own_address_bytes;
    switch (own.address_format) {
        case address_format::sockaddr_in:
        case address_format::sockaddr_in6: {
            const bool six = own.address_format == address_format::sockaddr_in6;
            const std::uint16_t family = six ? AF_INET6 : AF_INET;
            std::memcpy(made.address.data(), &family, sizeof family);
            length = six ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
            break;
        }
        case address_format::text: {
            constexpr std::string_view text = "fi_shm://1";
            std::memcpy(made.address.data(), text.data(), text.size());
            length = text.size() + 1;
            break;
        }
        default: break;
    }
    made.address_bytes = static_cast<std::uint32_t>(sometimes() ? input.number() : length);
    for (unsigned n = input.byte() % 4; n > 0; --n)
        made.address[input.byte() % made.address.size()] = static_cast<std::byte>(input.byte());
    return made;
}

void meet(script& input) {
    const card_measure own = drawn_measure(input);
    std::vector<std::byte> raw(card::wire_bytes);
    if (input.byte() % 4 == 0) {
        for (std::byte& b : raw) b = static_cast<std::byte>(input.byte());
    } else {
        drawn_card(input, own).store(raw.data());
    }
    const block came{raw};
    card said;
    said.load(came.data());
    // As an opening connection goes about it.
    if (said.magic != card::right_magic || (said.version == card::own_version && !said.good())) return;
    const verdict how = judge(said, own);
    demand(how != verdict::no_room);
    if (said.version != card::own_version) return demand(how == verdict::other_version);
    demand(said.provider_name().size() < card::most_provider);
    if (how != verdict::welcome) return;
    demand(said.provider_name() == own.provider);
    demand(said.slot_bytes >= own.slot_bytes && said.slot_bytes <= card::most_slot);
    demand(said.credits >= card::least_credits && said.credits <= card::most_credits);
    demand(said.address_bytes != 0 && said.address_bytes <= said.address.size());
    demand(!own.same_host || said.host == own.host);
    if (own.address_format == address_format::text)  // the provider takes it for a C string
        demand(said.address[said.address_bytes - 1] == std::byte{0});
    card again;
    std::vector<std::byte> back(card::wire_bytes);
    said.store(back.data());
    again.load(back.data());
    demand(again.link == said.link && again.address == said.address && again.credits == said.credits);
}

/// Regions that peers may reach, and the rest of the memory, which they may not.
class server {
public:
    server() {
        for (std::size_t i = 0; i < known_.size(); ++i)
            known_[i] = table_.add(std::span(memory_).subspan(i * 1000, 600 + i), rights_of(i));
    }
    [[nodiscard]] const remote_region& known(std::size_t i) const { return known_[i % known_.size()]; }

    void asked(const service_request& wanted, access_rights access) {
        if (table_.check(wanted.key, wanted.address, wanted.length, access) != errc::ok) return;
        for (std::size_t i = 0; i < known_.size(); ++i) {
            const remote_region& r = known_[i];
            if (r.key != wanted.key) continue;
            demand(allows(rights_of(i), access));
            demand(wanted.length <= r.length && wanted.address - r.address <= r.length - wanted.length);
            return;
        }
        demand(false);
    }

private:
    static access_rights rights_of(std::size_t i) { return static_cast<access_rights>(i % 4); }

    std::vector<std::byte> memory_ = std::vector<std::byte>(8000);
    std::vector<region_entry> entries_{64};
    region_table table_{entries_};
    std::array<remote_region, 8> known_{};
};

void hear(script& input, server& serves) {
    std::vector<std::byte> raw(frame_word_bytes);
    const auto kind = static_cast<frame_kind>(input.byte() % 16);
    frame said{kind, static_cast<std::uint16_t>(input.number()), static_cast<std::uint32_t>(input.number()),
               input.number()};
    said.store(raw.data());
    if ((kind == frame_kind::get || kind == frame_kind::put) && input.byte() % 8 != 0) {
        const remote_region& r = serves.known(input.byte());
        raw.resize(frame_word_bytes + service_request::wire_bytes);
        const std::uint64_t key = input.byte() % 8 == 0 ? input.number() : r.key;
        const std::uint64_t address = r.address + input.number() - input.byte();
        service_request{key, address, input.number(), input.number(), input.number(), 0}.store(
            raw.data() + frame_word_bytes);
    } else {
        raw.resize(frame_word_bytes + input.number() % 300);
        for (std::size_t i = frame_word_bytes; i < raw.size(); ++i)
            raw[i] = static_cast<std::byte>(input.byte());
    }
    if (input.byte() % 8 == 0) raw.resize(input.byte() % (raw.size() + 1));
    const block came{raw};
    frame word;
    if (!word.load(came.data(), came.size())) return;
    demand(word.sequence <= frame::sequence_mask && place_of(word.link) <= 0xffff);
    const std::byte* const rest = came.data() + frame_word_bytes;
    const std::size_t more = came.size() - frame_word_bytes;
    switch (word.kind) {
        case frame_kind::get: serves.asked(service_request::load(rest), access_rights::remote_read); break;
        case frame_kind::put: serves.asked(service_request::load(rest), access_rights::remote_write); break;
        case frame_kind::status: static_cast<void>(one_sided_status::load(rest)); break;
        case frame_kind::fetched: static_cast<void>(load_number<std::uint32_t>(rest)); break;
        case frame_kind::tagged_address: {
            const card_measure own = drawn_measure(input);
            demand(more <= most_address_bytes);
            if (looks_like_address(own.address_format, {rest, more}, own) &&
                own.address_format == address_format::text)
                demand(rest[more - 1] == std::byte{0});
            break;
        }
        case frame_kind::message: {
            message_header header;
            std::memcpy(header.data(), rest, header.size());
            demand(came.size() >= frame_bytes);
            break;
        }
        case frame_kind::credit:
        case frame_kind::hello:
        case frame_kind::bye: demand(more == 0); break;
        default: demand(false);
    }
}

void match(script& input) {
    std::vector<std::byte> raw(input.number() % 64);
    for (std::byte& b : raw) b = static_cast<std::byte>(input.byte());
    if (raw.size() > tagged_head::wire_bytes && input.byte() % 2 == 0)
        std::fill_n(raw.begin() + 12, 4, std::byte{0});  // a short one
    const block came{raw};
    tagged_head head;
    if (!head.load(came.data(), came.size())) return;
    demand(head.bytes() <= came.size());
    if (head.number == 0) demand(head.length == came.size() - head.bytes());
    if (head.number != 0) demand(came.size() == head.bytes());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    script input(data, size);
    server serves;
    while (!input.over()) {
        switch (input.byte() % 4) {
            case 0: meet(input); break;
            case 1: match(input); break;
            default: hear(input, serves); break;
        }
    }
    return 0;
}
