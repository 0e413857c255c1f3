// The output of a rank, line by line, with its number in front.
#pragma once

#include <cstdint>
#include <string>

namespace run {

class tagged_output {
public:
    /// `from`: owned. `to`: 1 or 2.
    tagged_output(std::uint32_t rank, int from, int to);
    tagged_output(tagged_output&& other) noexcept;
    tagged_output& operator=(tagged_output&&) = delete;
    ~tagged_output();

    /// -1: it has ended.
    [[nodiscard]] int descriptor() const noexcept { return from_; }
    /// Forwards the whole lines of what is there.
    void forward();
    /// The last line has no end.
    void end();

private:
    void say(const std::string& line);

    std::string tag_;
    int from_;
    int to_;
    std::string unread_;
};

}  // namespace run
