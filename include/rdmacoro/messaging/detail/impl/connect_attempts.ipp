// Bodies of connect_attempts.hpp.
#pragma once

#include <rdmacoro/coro/timer.hpp>
#include <rdmacoro/messaging/detail/connect_attempts.hpp>

#include <algorithm>

namespace rdmacoro::detail {

RDMACORO_COLD bool may_connect_later(const std::error_code& why) noexcept {
    return why == errc::connection_refused || why == errc::timed_out || why == errc::peer_lost ||
           why == errc::closed || why == errc::no_resources || why == std::errc::network_down ||
           why == std::errc::network_unreachable || why == std::errc::host_unreachable;
}

RDMACORO_COLD connect_attempts::connect_attempts(std::string_view address, duration limit, time_point now)
    : until_(deadline_after(now, limit)),
      limit_(limit),
      random_(static_cast<std::uint64_t>(now.time_since_epoch().count())),
      code_(make_error_code(errc::timed_out)),
      address_(address),
      text_("the listener has not answered") {
    for (const char c : address) random_ = (random_ ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
}

RDMACORO_COLD bool connect_attempts::failed(const std::system_error& why) {
    const std::error_code code = why.code();
    if (!may_connect_later(code)) return false;
    ++count_;
    // An attempt that the end of the time has cut off says less than those before it.
    if (code == errc::timed_out && count_ > 1) return true;
    code_ = code;
    std::string text = why.what();
    const std::string ending = ": " + code.message();
    if (text.ends_with(ending)) text.resize(text.size() - ending.size());
    if (text != code.message()) text_ = text;  // a time limit of its own says no more than that
    return true;
}

RDMACORO_COLD duration connect_attempts::pause(time_point now) noexcept {
    random_ = random_ * 6364136223846793005u + 1442695040888963407u;
    const auto half = static_cast<std::uint64_t>(pause_.count() / 2);
    const duration chosen(static_cast<duration::rep>(half + (random_ >> 33) % (half + 1)));
    pause_ = std::min(2 * pause_, longest_pause);
    return std::clamp(chosen, duration::zero(), std::max(duration::zero(), left(now)));
}

RDMACORO_COLD void connect_attempts::give_up() const {
    const auto limit = std::chrono::duration_cast<std::chrono::milliseconds>(limit_).count();
    const bool named = text_.find(address_) != std::string::npos;
    throw error(code_, (named ? "" : "connect to " + address_ + ": ") + text_ + " (" +
                           std::to_string(count_) + (count_ == 1 ? " attempt in " : " attempts in ") +
                           std::to_string(limit) + " ms)");
}

}  // namespace rdmacoro::detail
