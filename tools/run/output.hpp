// The output of a rank, line by line, with its number in front.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>

namespace run {

/// The output of `run` to which ranks' lines go: the standard one, 1, or that for errors, 2.
class common_output {
public:
    /// `until_writable`: waits until the descriptor takes bytes; false: nothing more is to be written. `say`: tells the user of a failure.
    common_output(int to, std::function<bool(int)> until_writable, std::function<void(std::string)> say)
        : to_(to), until_writable_(std::move(until_writable)), say_(std::move(say)) {}

    /// Drops what it is given once the reader has gone, or a write has failed; the latter is said at once.
    void write(std::string_view all);
    /// A write has failed otherwise than for a reader that has gone.
    [[nodiscard]] bool failed() const noexcept { return failed_; }

private:
    int to_;
    std::function<bool(int)> until_writable_;
    std::function<void(std::string)> say_;
    bool over_ = false;
    bool failed_ = false;
};

class tagged_output {
public:
    /// Of a line that has not ended yet fewer bytes than these are kept: with this number they are forwarded, as a line of their own.
    static constexpr std::size_t longest = 65536;

    /// `from`: owned.
    tagged_output(std::uint32_t rank, int from, common_output& to);
    tagged_output(tagged_output&& other) noexcept;
    tagged_output& operator=(tagged_output&&) = delete;
    ~tagged_output();

    /// -1: it has ended.
    [[nodiscard]] int descriptor() const noexcept { return from_; }
    /// Forwards the whole lines of what is there. The number of bytes that it has read.
    std::size_t forward();
    /// The last line has no end.
    void end();

private:
    std::string tag_;
    int from_;
    common_output* to_;
    std::string unread_;
};

}  // namespace run
