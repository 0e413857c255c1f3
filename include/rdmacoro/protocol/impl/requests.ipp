// The texts of the errors of sends, receives and probes.
#pragma once

#include <rdmacoro/protocol/connection_base.hpp>

#include <cstring>
#include <string>

namespace rdmacoro::detail {

RDMACORO_COLD void noted_peer::note(std::string_view name) noexcept {
    constexpr std::string_view cut_off = "...";
    const bool whole = name.size() < sizeof text;
    const std::size_t kept = whole ? name.size() : sizeof text - 1 - cut_off.size();
    std::memcpy(text, name.data(), kept);
    if (!whole) std::memcpy(text + kept, cut_off.data(), cut_off.size());
    text[whole ? kept : kept + cut_off.size()] = '\0';
}

RDMACORO_COLD void noted_peer::note(const connection_base* of) noexcept {
    if (of == nullptr) return forget();
    *this = of->own_name();
    peer = of->source();
}

/// "recv from tcp://127.0.0.1:7471, peer 3".
RDMACORO_COLD std::string text_with_peer(std::string text, const noted_peer* name, const error_facts& about,
                                         const char* without_number) {
    if (name != nullptr && name->text[0] != '\0') {
        text.append(name->text);
    } else {
        text.append(about.peer == error_facts::no_peer ? without_number : "a peer");
    }
    if (about.peer != error_facts::no_peer) text.append(", peer ").append(std::to_string(about.peer));
    return text;
}

/// "recv from tcp://127.0.0.1:7471, peer 3, tag 7".
RDMACORO_COLD std::string operation_text(const char* what, const noted_peer* name, const error_facts& about,
                                         const char* without_number = "any peer") {
    std::string text = text_with_peer(what, name, about, without_number);
    if (about.tag_mask == 0) return text.append(", any tag");
    text.append(", tag ").append(std::to_string(about.tag));
    if (about.tag_mask != ~tag_type{0}) text.append(" of mask ").append(std::to_string(about.tag_mask));
    return text;
}

RDMACORO_COLD void throw_one_sided(std::error_code why, const char* what, const noted_peer& with,
                                   const error_facts& about) {
    std::string text = what + std::to_string(about.bytes) + " bytes with ";
    text = text_with_peer(std::move(text), &with, about, "its peer");
    if (about.info != 0) text.append(", memory of ").append(std::to_string(about.info)).append(" bytes");
    throw error(why, text, about);
}

RDMACORO_COLD error_facts receive_request::facts() const noexcept {
    const bool met = std::error_code(code_) == errc::truncated;
    // Of an endpoint that was attached to a mailbox while the receive was being filled `source_` is the former number.
    const bool noted = source_ == any_source || noted_.peer != error_facts::no_peer;
    return {.info = info_,
            .bytes = is_lent() ? 0 : into_.size(),
            .tag = met ? got_.tag : wanted_.tag,
            .tag_mask = met ? ~tag_type{0} : wanted_.mask,
            .peer = noted ? noted_.peer : source_};
}

RDMACORO_COLD void receive_request::throw_failure() const {
    const error_facts about = facts();
    std::string text = operation_text(is_lent() ? "recv_lent from " : "recv from ", &noted_, about);
    if (!is_lent()) text.append(", into ").append(std::to_string(about.bytes)).append(" bytes");
    if (std::error_code(code_) == errc::truncated)
        text.append(", of a message of ").append(std::to_string(about.info)).append(" bytes");
    throw error(code_, text, about);
}

RDMACORO_COLD error_facts send_request::facts() const noexcept {
    return {.info = code_ && unbegun_ ? 1U : 0U,
            .bytes = from_.size(),
            .tag = tag_,
            .tag_mask = ~tag_type{0},
            .peer = noted_.peer};
}

RDMACORO_COLD void send_request::throw_failure() const {
    const error_facts about = facts();
    const std::string what =
        std::string(synchronous_ ? "ssend of " : "send of ") + std::to_string(about.bytes) + " bytes to ";
    std::string text = operation_text(what.c_str(), &noted_, about, "its peer");
    if (std::error_code(code_) == errc::unsupported) text.append(", which no protocol of the list carries");
    throw error(code_, text, about);
}

RDMACORO_COLD error_facts probe_request::facts() const noexcept {
    return {.info = 0, .bytes = 0, .tag = wanted_.tag, .tag_mask = wanted_.mask, .peer = source_};
}

RDMACORO_COLD void probe_request::throw_failure() const {
    const error_facts about = facts();
    throw error(code_, operation_text("probe of ", nullptr, about), about);
}

}  // namespace rdmacoro::detail
