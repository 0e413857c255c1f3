// An exchange: what both sides agree on, and the payloads, times and findings of one of them.
#pragma once

#include "control.hpp"
#include "pattern.hpp"
#include "payload.hpp"
#include "samples.hpp"

#include <rdmacoro/protocol/requests.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace pingpong {

/// The way of a message; its payload is the sending side's pattern.
enum class direction : std::uint64_t { to_listening, from_listening };

/// One side's part of an exchange: plan, buffers, samples and findings. Reused by the next exchange for its
/// memory.
class exchange {
public:
    void prepare(const exchange_message& agreed) {
        plan = agreed;
        found = {};
        out.prepare(static_cast<std::size_t>(plan.bytes), static_cast<std::size_t>(plan.buffers));
        in.prepare(static_cast<std::size_t>(plan.bytes), static_cast<std::size_t>(plan.buffers));
    }

    /// Fills the payload of message `index`.
    void fill(std::span<std::byte> to, std::uint64_t index, direction where) const noexcept {
        fill_pattern(to, pattern_seed(plan.phase, static_cast<std::uint64_t>(where), index));
        if (index == plan.spoil && !to.empty()) to[to.size() / 2] ^= std::byte{1};
    }
    /// Checks the payload of message `index`.
    void check(std::span<const std::byte> arrived, std::uint64_t index, direction where) noexcept {
        const std::size_t at =
            first_wrong(arrived, pattern_seed(plan.phase, static_cast<std::uint64_t>(where), index));
        if (at == arrived.size()) return;
        if (found.wrong++ == 0) {
            found.message = index;
            found.offset = at;
        }
    }
    [[gnu::always_inline]] void check_length(const rdmacoro::received& got) const {
        if (got.bytes != plan.bytes) [[unlikely]]
            wrong_length(got.bytes);
    }

    exchange_message plan{};
    payload out;
    payload in;
    sample_log samples;
    findings found{};

private:
    [[noreturn, gnu::cold, gnu::noinline]] void wrong_length(std::size_t bytes) const {
        throw run_error("a message of " + std::to_string(bytes) + " bytes came where one of " +
                        std::to_string(plan.bytes) + " was sent");
    }
};

}  // namespace pingpong
