// Where the ranks meet: the toolkit's rendezvous, on a thread of its own.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

namespace run {

class meeting {
public:
    /// Listens at `address`, in numbers, at a free port.
    meeting(const std::string& address, std::uint32_t ranks, const std::string& key);
    meeting(const meeting&) = delete;
    meeting& operator=(const meeting&) = delete;
    ~meeting();

    /// For RDMACORO_JOB.
    [[nodiscard]] const std::string& url() const noexcept;
    /// The process of this rank has ended: those that wait for it are told.
    void ended(std::uint32_t rank);

private:
    struct state;
    std::unique_ptr<state> state_;
};

/// 32 hexadecimal digits, random.
std::string new_key();

}  // namespace run
