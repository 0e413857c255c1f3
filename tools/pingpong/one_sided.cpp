#include "one_sided.hpp"

#include "pause.hpp"
#include "talk.hpp"
#include "watch.hpp"

#include <rdmacoro/coro/as_result.hpp>

#include <chrono>
#include <cstddef>
#include <utility>

namespace pingpong {

rdmacoro::task<> ask_step(peer& of, step_message::what what, std::uint64_t number) {
    co_await send_control(of, step_message{what, number});
    if (what == step_message::what::end) co_return;
    static_cast<void>(co_await receive_control<stepped_message>(of));
}

rdmacoro::task<> tell_progress(peer& to) {
    constexpr std::chrono::milliseconds between{250};  // half of what the watch takes from look to look
    while (co_await pause(between)) {
        // Where it fails, so do the gets and puts, which say why.
        const auto sent = co_await rdmacoro::as_result(
            send_control(to, step_message{step_message::what::progress, watch::done()}));
        if (!sent) co_return;
    }
}

rdmacoro::task<> answer_steps(peer& to, exchange& x) {
    const std::size_t window = static_cast<std::size_t>(x.plan.window);
    for (;;) {
        const auto step = co_await receive_control<step_message>(to);
        if (step.ask == step_message::what::end) co_return;
        if (step.ask == step_message::what::progress) {
            watch::reached(step.number);
            continue;
        }
        for (std::size_t k = 0; k < window; ++k) {
            if (step.ask == step_message::what::prepare) {
                x.fill(x.out.slot(k), step.number * window + k, direction::from_listening);
            } else {
                x.check(x.in.slot(k), step.number * window + k, direction::to_listening);
            }
            watch::moved();
        }
        co_await send_control(to, stepped_message{});
    }
}

rdmacoro::task<> without_ticks(rdmacoro::task<tick_count> measured) {
    static_cast<void>(co_await std::move(measured));
}

}  // namespace pingpong
