#include "control.hpp"

namespace pingpong {

control_kind kind_of(const control_bytes& raw, std::size_t bytes) {
    if (bytes != raw.size() || detail::get_word(raw, 0) != detail::magic) {
        throw run_error("the peer is no pingpong: it sent something else");
    }
    const std::uint64_t version_and_kind = detail::get_word(raw, 1);
    if (version_and_kind >> 32 != control_version) {
        throw run_error("the peer is a pingpong of another version (" +
                        std::to_string(version_and_kind >> 32) + ", this one is " +
                        std::to_string(control_version) + "); run the same build on both sides");
    }
    return static_cast<control_kind>(version_and_kind & 0xffffffff);
}

namespace {
constexpr std::size_t bytes_of_word = 8;
}  // namespace

place_message place_of(const std::string& address) {
    const std::string text = address.substr(address.rfind(':') + 1);
    place_message place{};
    if (text.size() > bytes_of_word * place.text.size()) throw run_error("too long an address: " + address);
    for (std::size_t i = 0; i < text.size(); ++i) {
        const auto letter = static_cast<unsigned char>(text[i]);
        place.text[i / bytes_of_word] |= std::uint64_t{letter} << (i % bytes_of_word * 8);
    }
    return place;
}

std::string address_at(const place_message& place, const std::string& known) {
    std::string address = known.substr(0, known.rfind(':') + 1);
    for (std::size_t i = 0; i < bytes_of_word * place.text.size(); ++i) {
        const char letter =
            static_cast<char>(place.text[i / bytes_of_word] >> (i % bytes_of_word * 8) & 0xff);
        if (letter == 0) break;
        address += letter;
    }
    return address;
}

}  // namespace pingpong
