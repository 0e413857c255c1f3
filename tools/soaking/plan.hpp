// The steps of the two ends of a session in a round. Both draw it from the same random numbers, so that each knows what the other does.
#pragma once

#include <rdmacoro/protocol/requests.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace soak {

/// SplitMix64: small, and the same numbers everywhere. Steele, Lea, Flood, "Fast splittable pseudorandom number generators", 2014.
class random {
public:
    explicit random(std::uint64_t seed) noexcept : state_(seed) {}

    std::uint64_t next() noexcept {
        std::uint64_t z = state_ += 0x9e3779b97f4a7c15;
        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
        z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
        return z ^ (z >> 31);
    }
    /// Less than `end`, which is not 0.
    std::uint64_t below(std::uint64_t end) noexcept { return next() % end; }
    /// True once in `times`, on average.
    bool once_in(std::uint64_t times) noexcept { return below(times) == 0; }

private:
    std::uint64_t state_;
};

struct planned_message {
    bool from_client = false;
    rdmacoro::tag_type tag = 0;
    std::size_t bytes = 0;
    std::uint64_t content = 0;  ///< seed of its bytes
};

enum class ending : std::uint8_t {
    none,          ///< another round follows
    close,         ///< both ends close in good order
    client_drops,  ///< the client destroys its endpoint without a word
    server_drops,
};

struct round_plan {
    std::vector<planned_message> messages;
    bool in_step = false;           ///< begins when both ends have received all of the rounds before
    bool any_tag = false;           ///< all receives take any tag, in order
    bool client_owns = false;       ///< the memory of the gets and puts
    std::size_t exposed_bytes = 0;  ///< of that memory; 0: no gets and puts in this round
    std::uint64_t exposed_content = 0;
    unsigned pause_ms = 0;  ///< both ends are idle after the round
    ending end = ending::none;
};

/// The next round. `longest` is the limit of a message's length, in bytes.
[[nodiscard]] round_plan next_round(random& shared, std::size_t longest);

/// Fills memory with the bytes of that seed.
void fill(std::span<std::byte> memory, std::uint64_t content) noexcept;

/// Whether memory holds the bytes of that seed, beginning `offset` bytes into them.
[[nodiscard]] bool holds(std::span<const std::byte> memory, std::uint64_t content,
                         std::size_t offset = 0) noexcept;

}  // namespace soak
