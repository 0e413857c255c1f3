#include "mishap.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdio>
#include <sstream>

namespace soak {

namespace {

constexpr std::array<const char*, 3> names{"lost", "cut", "unanswered"};  // in the order of the kinds

/// An event this long before a session began may have been noted late.
constexpr double noted_late = 1;
/// Over libfabric a peer that stands still for so long in the middle of a get or put costs a domain all its links.
constexpr double longest_pause = 1;
/// An event that long ago ends no link of another worker any more.
constexpr double recently = 45;

bool rightly_lost(const mishap& of, double began, std::span<const treatment> workers, double now) {
    // The peer of the session was a life that has ended.
    if (workers[of.peer].killed_at() > began - noted_late) return true;
    if (of.transport != "ofi") return false;
    // A death, or a peer that stands still, can end all links of a domain.
    const double since = std::max(began - noted_late, now - recently);
    return std::any_of(workers.begin(), workers.end(), [&](const treatment& w) {
        return w.killed_at() > since || w.stood_still_at(now) > since;
    });
}

}  // namespace

std::string mishap::line() const {
    return std::string(names[static_cast<std::size_t>(what)]) + " " + std::to_string(peer) + " " + transport +
           " " + std::to_string(began.time_since_epoch().count()) + " " + why;
}

std::optional<mishap> mishap::parse(std::string_view line) {
    mishap is;
    std::string name;
    mishap::time_point::rep began = 0;
    std::istringstream in{std::string(line)};
    if (!(in >> name >> is.peer >> is.transport >> began)) return {};
    const auto* const found = std::find(names.begin(), names.end(), name);
    if (found == names.end()) return {};
    is.what = static_cast<kind>(found - names.begin());
    is.began = time_point(time_point::duration(began));
    std::getline(in >> std::ws, is.why);
    return is;
}

void treatment::let_go_on(double now) noexcept {
    stood_still_ = stood_still_at(now);
    stopped_at_ = never;
}

double treatment::stood_still_at(double now) const noexcept {
    return stopped_at_ != never && now - stopped_at_ > longest_pause ? now : stood_still_;
}

std::string judge(unsigned number, const mishap& of, double began, std::span<const treatment> workers,
                  bool disturbed, double now) {
    if (of.what == mishap::kind::lost ? rightly_lost(of, began, workers, now) : disturbed) return {};
    char age[32];
    std::snprintf(age, sizeof age, "%.1f", now - began);
    const std::string self = "worker " + std::to_string(number);
    const std::string peer = "worker " + std::to_string(of.peer) + " over " + of.transport;
    switch (of.what) {
        case mishap::kind::lost:
            return self + " lost " + peer + ", which was not killed in the " + age +
                   " s of that session: " + of.why;
        case mishap::kind::cut:
            return self + " had a round with " + peer + " cut short in a session of " + age + " s: " + of.why;
        case mishap::kind::unanswered: break;
    }
    return self + " had no answer from " + peer + " to a connect in " + age + " s";
}

}  // namespace soak
