// pmi_lines: the text of PMI, versions 1 and 2, over a descriptor.
#pragma once

#include <rdmacoro/service/detail/launcher.hpp>

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace rdmacoro::detail {

/// The fields of a message of PMI: `cmd=init rc=0`, or `cmd=init;rc=0;`.
class pmi_message {
public:
    pmi_message() = default;
    /// `between`: ' ' in version 1, ';' in version 2, where two of them stand for one within a value. Words without '=' are left out.
    pmi_message(std::string_view text, char between);

    /// nullptr: it does not say it.
    [[nodiscard]] const std::string* find(std::string_view key) const noexcept;
    /// As it came, for people.
    [[nodiscard]] const std::string& text() const noexcept { return text_; }

private:
    std::string text_;
    std::vector<std::pair<std::string, std::string>> fields_;
};

/// Messages over the descriptor that the launcher has left open. Without `close` it stays open: the launcher ends processes that close it
/// unasked, and this one may have to say first what went wrong.
class pmi_lines {
public:
    /// Longer ones are refused.
    static constexpr std::size_t most_bytes = 65536;

    /// Throws `errc::unsupported` where it is no open descriptor, or no socket.
    explicit pmi_lines(int fd);
    pmi_lines(const pmi_lines&) = delete;
    pmi_lines& operator=(const pmi_lines&) = delete;
    ~pmi_lines() = default;

    /// After the last words.
    void close() noexcept;
    /// In version 2 a message is a number of six digits and so many bytes, in version 1 a line.
    void use_version(int version) noexcept { version_ = version; }
    /// The limit; where it is over because this process stood still, as long again, a second at most: the answer may be there, or come at once.
    [[nodiscard]] patience in_time(const patience& limit) noexcept;
    /// By how much it was over.
    [[nodiscard]] duration late_by() const noexcept { return late_by_; }
    /// Sends `text` and returns the answer, the command of which must be `answer`. Throws, with both in the text, `errc::peer_lost`,
    /// `errc::protocol_violation`, `errc::timed_out` and `errc::canceled`.
    [[nodiscard]] pmi_message ask(std::string_view text, std::string_view answer, const patience& limit);
    /// The same without a look at the command.
    [[nodiscard]] pmi_message ask(std::string_view text, const patience& limit);
    /// The two parts of that, where other words come between them. Errors do not name the words.
    void say(std::string_view text, const patience& limit) { write(text, limit); }
    [[nodiscard]] pmi_message hear(const patience& limit);
    /// This answer is not waited for any more: it is dropped when it comes.
    void give_up(std::string_view answer) { given_up_.emplace_back(answer); }

private:
    void write(std::string_view text, const patience& limit);
    [[nodiscard]] std::string read(const patience& limit);
    void fill(const patience& limit);

    int fd_;
    int version_ = 1;
    duration late_by_{};
    std::optional<time_point> late_until_;
    std::string unread_;
    std::vector<std::string> given_up_;
};

}  // namespace rdmacoro::detail

#if !defined(RDMACORO_SEPARATE_COMPILATION)
#include <rdmacoro/service/detail/impl/pmi_lines.ipp>
#endif
