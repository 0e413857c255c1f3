// Bytes that a peer of a libfabric link can send without the provider's help: its connect_info, its frames, the heads of tagged
// messages. Every number may have any value, in blocks of exactly the bytes that arrived, so that the sanitizers notice each read
// past them. Whatever is accepted must satisfy the assumptions of the rest of the transport.

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

/// Exactly these bytes, without any after them.
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

connect_limits drawn_measure(script& input) {
    return {.provider = providers[input.byte() % providers.size()],
            .slot_bytes = connect_info::least_slot + input.number() % connect_info::most_slot,
            .served = input.byte() % 2 == 0,
            .same_host = input.byte() % 2 == 0,
            .host = input.number(),
            .address_format = formats[input.byte() % formats.size()],
            .own_address_bytes = input.number() % (connect_info::most_address + 1)};
}

/// A connect_info that is nearly right for `own`.
connect_info drawn_connect_info(script& input, const connect_limits& own) {
    connect_info made;
    const auto sometimes = [&] { return input.byte() % 8 == 0; };
    if (sometimes()) made.magic = static_cast<std::uint32_t>(input.number());
    if (sometimes()) made.version = static_cast<std::uint32_t>(input.number());
    made.slot_bytes = static_cast<std::uint32_t>(sometimes() ? input.number() : own.slot_bytes);
    made.credits = static_cast<std::uint32_t>(sometimes() ? input.number() : connect_info::least_credits);
    made.flags = sometimes()  ? static_cast<std::uint32_t>(input.number())
                 : own.served ? connect_info::served
                              : 0;
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

void exchange(script& input) {
    const connect_limits own = drawn_measure(input);
    std::vector<std::byte> raw(connect_info::wire_bytes);
    if (input.byte() % 4 == 0) {
        for (std::byte& b : raw) b = static_cast<std::byte>(input.byte());
    } else {
        drawn_connect_info(input, own).store(raw.data());
    }
    const block came{raw};
    connect_info theirs;
    theirs.load(came.data());
    // As an opening connection does.
    if (theirs.magic != connect_info::right_magic ||
        (theirs.version == connect_info::own_version && !theirs.good()))
        return;
    const verdict how = judge(theirs, own);
    demand(how != verdict::no_room);
    if (theirs.version != connect_info::own_version) return demand(how == verdict::other_version);
    demand(theirs.provider_name().size() < connect_info::most_provider);
    if (how != verdict::welcome) return;
    demand(theirs.provider_name() == own.provider);
    demand(theirs.slot_bytes >= own.slot_bytes && theirs.slot_bytes <= connect_info::most_slot);
    demand(theirs.credits >= connect_info::least_credits && theirs.credits <= connect_info::most_credits);
    demand(theirs.address_bytes != 0 && theirs.address_bytes <= theirs.address.size());
    demand(!own.same_host || theirs.host == own.host);
    if (own.address_format == address_format::text)  // the provider takes it for a C string
        demand(theirs.address[theirs.address_bytes - 1] == std::byte{0});
    connect_info again;
    std::vector<std::byte> back(connect_info::wire_bytes);
    theirs.store(back.data());
    again.load(back.data());
    demand(again.link == theirs.link && again.address == theirs.address && again.credits == theirs.credits);
    demand(again.nonce == theirs.nonce);
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

void receive(script& input, server& serves) {
    std::vector<std::byte> raw(frame_word_bytes);
    const auto kind = static_cast<frame_kind>(input.byte() % 16);
    frame theirs{kind, static_cast<std::uint16_t>(input.number()), static_cast<std::uint32_t>(input.number()),
                 input.number()};
    theirs.store(raw.data());
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
        case frame_kind::fetched:
        case frame_kind::withdraw: static_cast<void>(load_number<std::uint32_t>(rest)); break;
        case frame_kind::tagged_address: {
            const connect_limits own = drawn_measure(input);
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
            case 0: exchange(input); break;
            case 1: match(input); break;
            default: receive(input, serves); break;
        }
    }
    return 0;
}
