#include "journal.hpp"

#include <cerrno>
#include <cstdlib>
#include <sstream>

#include <unistd.h>

namespace soak {

namespace {

template <class Sums, class Function>
void each(Sums& sums, Function&& function) {
    function(sums.rounds);
    for (auto& over : sums.rounds_over) function(over);
    function(sums.messages);
    function(sums.bytes);
    function(sums.transfers);
    function(sums.sessions);
    function(sums.ended);
    function(sums.withdrawn);
    function(sums.refused);
    function(sums.lost);
}

}  // namespace

totals& totals::operator+=(const totals& other) noexcept {
    rounds += other.rounds;
    for (std::size_t t = 0; t < rounds_over.size(); ++t) rounds_over[t] += other.rounds_over[t];
    messages += other.messages;
    bytes += other.bytes;
    transfers += other.transfers;
    sessions += other.sessions;
    ended += other.ended;
    withdrawn += other.withdrawn;
    refused += other.refused;
    lost += other.lost;
    return *this;
}

std::string totals::line() const {
    std::string text;
    each(*this, [&](std::uint64_t number) {
        if (!text.empty()) text += ' ';
        text += std::to_string(number);
    });
    return text;
}

bool totals::parse(std::string_view line) {
    std::istringstream in{std::string(line)};
    each(*this, [&](std::uint64_t& number) { in >> number; });
    return !in.fail();
}

void journal::write(const std::string& line) {
    const std::string text = line + "\n";
    for (std::size_t done = 0; done < text.size();) {
        const ssize_t n = ::write(pipe_, text.data() + done, text.size() - done);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) std::_Exit(1);  // the overseer is gone
        done += static_cast<std::size_t>(n);
    }
}

}  // namespace soak
