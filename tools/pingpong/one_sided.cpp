#include "one_sided.hpp"

#include "talk.hpp"
#include "watch.hpp"

#include <cstddef>
#include <utility>

namespace pingpong {

rdmacoro::task<> ask_step(peer& of, step_message::what what, std::uint64_t window) {
    co_await send_control(of, step_message{what, window});
    if (what == step_message::what::end) co_return;
    static_cast<void>(co_await receive_control<stepped_message>(of));
}

rdmacoro::task<> answer_steps(peer& to, exchange& x) {
    const std::size_t window = static_cast<std::size_t>(x.plan.window);
    for (;;) {
        const auto step = co_await receive_control<step_message>(to);
        if (step.ask == step_message::what::end) co_return;
        for (std::size_t k = 0; k < window; ++k) {
            if (step.ask == step_message::what::prepare) {
                x.fill(x.out.slot(k), step.window * window + k, direction::from_listening);
            } else {
                x.check(x.in.slot(k), step.window * window + k, direction::to_listening);
            }
        }
        watch::reached(step.window);
        co_await send_control(to, stepped_message{});
    }
}

rdmacoro::task<> without_ticks(rdmacoro::task<tick_count> measured) {
    static_cast<void>(co_await std::move(measured));
}

}  // namespace pingpong
