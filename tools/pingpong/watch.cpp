#include "watch.hpp"

#include "failure.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <string_view>
#include <system_error>

#include <signal.h>
#include <sys/time.h>
#include <unistd.h>

namespace pingpong {

namespace {

// For the signal handler, which must call only async-signal-safe functions: no allocation, no locks.
constexpr long milliseconds_between_looks = 500;
std::array<char, 64> program_name{};
std::array<char, 96> what{};
std::uint64_t total = 0;
std::uint64_t looks_allowed = 0;
std::uint64_t looks_still = 0;
std::uint64_t looks_at_this = 0;
std::uint64_t seen = 0;
bool shows = false;
bool line_is_there = false;

class line {
public:
    line& operator<<(std::string_view text) noexcept {
        const std::size_t fits = std::min(text.size(), text_.size() - size_);
        std::memcpy(text_.data() + size_, text.data(), fits);
        size_ += fits;
        return *this;
    }
    line& operator<<(std::uint64_t number) noexcept {
        std::array<char, 24> digits{};
        const char* const end = std::to_chars(digits.data(), digits.data() + digits.size(), number).ptr;
        return *this << std::string_view(digits.data(), static_cast<std::size_t>(end - digits.data()));
    }
    void write() const noexcept {
        [[maybe_unused]] const ssize_t ignored = ::write(STDERR_FILENO, text_.data(), size_);
    }

private:
    std::array<char, 512> text_{};
    std::size_t size_ = 0;
};

template <std::size_t N>
void keep(std::array<char, N>& place, const std::string& text) {
    place.fill('\0');
    text.copy(place.data(), N - 1);
}

void set_timer(long milliseconds) {
    const timeval every{milliseconds / 1000, milliseconds % 1000 * 1000};
    const itimerval timer{every, every};
    if (::setitimer(ITIMER_REAL, &timer, nullptr) != 0) {
        throw std::system_error(errno, std::system_category(), "setitimer");
    }
}

}  // namespace

void watch::look(int) noexcept {
    if (!expecting_.load(std::memory_order_relaxed)) return;
    const int error = errno;
    const std::uint64_t now = watched_.load(std::memory_order_relaxed)->load(std::memory_order_relaxed);
    ++looks_at_this;
    if (now != seen) {
        seen = now;
        looks_still = 0;
    } else if (++looks_still >= looks_allowed && looks_allowed != 0) {
        clear_line();
        line text;
        text << program_name.data() << ": nothing moved for "
             << looks_allowed * milliseconds_between_looks / 1000 << " s during " << what.data() << " ("
             << now << " of " << total << "); --timeout allows longer, 0 forever\n";
        text.write();
        ::_exit(status_failed);
    }
    if (shows && total != 0 && looks_at_this >= 2) {
        line text;
        text << "\r" << what.data() << ": " << now * 100 / total << " %\033[K";
        text.write();
        line_is_there = true;
    }
    errno = error;
}

void watch::begin(const std::string& name, std::uint64_t stall_seconds, bool show) {
    stop();
    keep(program_name, name);
    shows = show && ::isatty(STDERR_FILENO) != 0;
    looks_allowed = stall_seconds * 1000 / milliseconds_between_looks;
    if (!shows && looks_allowed == 0) return;
    struct sigaction action{};
    action.sa_handler = [](int signal) { look(signal); };
    action.sa_flags = SA_RESTART;
    if (::sigaction(SIGALRM, &action, nullptr) != 0)
        throw std::system_error(errno, std::system_category(), "sigaction");
    set_timer(milliseconds_between_looks);
}

void watch::stop() {
    rest();
    set_timer(0);
}

void watch::expect(const std::string& doing, std::uint64_t steps) {
    rest();
    keep(what, doing);
    total = steps;
    reached(0);
    watched_.store(&done_, std::memory_order_relaxed);
    seen = 0;
    looks_still = 0;
    looks_at_this = 0;
    std::atomic_signal_fence(std::memory_order_seq_cst);
    expecting_.store(true, std::memory_order_relaxed);
}

void watch::clear_line() noexcept {
    if (!line_is_there) return;
    line_is_there = false;
    line text;
    text << "\r\033[K";
    text.write();
}

}  // namespace pingpong
