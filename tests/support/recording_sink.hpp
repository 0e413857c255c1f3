#pragma once

// A sink for tests of links: remembers what it was told, and does what a test asks of it.

#include <rdmacoro/transport/concepts.hpp>

#include "pattern.hpp"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <functional>
#include <string>
#include <system_error>
#include <vector>

namespace rdmacoro::test {

/// A message header that carries a number.
inline message_header header_of(std::uint64_t number) {
    message_header header{};
    std::memcpy(header.data(), &number, sizeof number);
    return header;
}
inline std::uint64_t number_of(const message_header& header) {
    std::uint64_t number = 0;
    std::memcpy(&number, header.data(), sizeof number);
    return number;
}

struct recorded_message {
    std::uint64_t number = 0;
    std::vector<std::byte> payload;
    bool announced = false;  ///< came by `begin_payload`
};

class recording_sink {
public:
    /// Says how to keep a payload: `[&] { return link.keep(); }`. Kept payloads are in `kept`, not in the messages.
    std::function<lent_buffer()> keep_with;
    /// Called with each whole message; may close the link or post.
    std::function<void(const recorded_message&)> on_message;
    /// Called before each `begin_payload`, `payload_space` and `payload_arrived`.
    std::function<void()> on_long;

    unsigned refuse = 0;      ///< answers so many offers with `later`
    bool refuse_all = false;  ///< answers every offer with `later`
    bool pause = false;       ///< answers each message that it takes with `pause`
    bool discard = false;     ///< offers no memory for announced payloads
    std::size_t space_limit = static_cast<std::size_t>(-1);  ///< memory offered at a time
    bool count_only = false;                                 ///< forgets payloads

    std::vector<recorded_message> messages;
    std::vector<lent_buffer> kept;
    std::uint64_t count = 0;
    std::uint64_t offers = 0;
    unsigned writables = 0;
    unsigned downs = 0;
    std::error_code reason;
    bool after_down = false;  ///< something was called after `link_down`

    delivery deliver(const message_header& header, std::span<const std::byte> payload) noexcept {
        if (!accepts()) return delivery::defer;
        current_ = {number_of(header), {}, false};
        lent_buffer lent;
        if (keep_with) lent = keep_with();
        if (lent) {
            kept.push_back(std::move(lent));
        } else if (!count_only) {
            current_.payload.assign(payload.begin(), payload.end());
        }
        whole();
        return pause ? delivery::pause : delivery::taken;
    }
    delivery begin_payload(const message_header& header, std::size_t bytes) noexcept {
        if (!accepts()) return delivery::defer;
        if (on_long) on_long();
        current_ = {number_of(header), std::vector<std::byte>(bytes), true};
        arrived_ = 0;
        return delivery::taken;
    }
    std::span<std::byte> payload_space() noexcept {
        after_down = after_down || downs != 0;
        if (on_long) on_long();
        if (discard) return {};
        const std::span<std::byte> rest = std::span(current_.payload).subspan(arrived_);
        return rest.first(std::min(rest.size(), space_limit));
    }
    void payload_arrived(std::size_t bytes) noexcept {
        after_down = after_down || downs != 0;
        if (on_long) on_long();
        arrived_ += bytes;
        if (arrived_ == current_.payload.size()) whole();
    }
    void writable() noexcept { ++writables; }
    void link_down(std::error_code why) noexcept {
        ++downs;
        reason = why;
    }

    [[nodiscard]] std::size_t arrived() const noexcept { return arrived_; }

private:
    bool accepts() noexcept {
        ++offers;
        after_down = after_down || downs != 0;
        if (refuse_all) return false;
        if (refuse == 0) return true;
        --refuse;
        return false;
    }
    void whole() {
        ++count;
        if (!count_only) messages.push_back(current_);
        if (on_message) on_message(current_);
    }

    recorded_message current_;
    std::size_t arrived_ = 0;
};
static_assert(message_sink<recording_sink>);

/// A completion that remembers.
struct recording_completion : completion {
    recording_completion() {
        done = [](completion& self, std::error_code how) noexcept {
            auto& mine = static_cast<recording_completion&>(self);
            ++mine.calls;
            mine.outcome = how;
        };
    }
    recording_completion(const recording_completion&) = delete;
    recording_completion& operator=(const recording_completion&) = delete;

    unsigned calls = 0;
    std::error_code outcome;
};

}  // namespace rdmacoro::test
