#include "run.hpp"

#include "connecting.hpp"
#include "cpus.hpp"
#include "idle_choice.hpp"
#include "listening.hpp"
#include "output.hpp"
#include "peer.hpp"
#include "results.hpp"
#include "talk.hpp"
#include "transports.hpp"

#include <rdmacoro/coro/as_result.hpp>
#include <rdmacoro/coro/error.hpp>
#include <rdmacoro/coro/scheduler.hpp>

#include <memory>
#include <utility>

namespace pingpong {

namespace {

rdmacoro::task<std::string> explain_connected(const options& asked) {
    auto connecting = list_of(asked).connect(asked.where.whole);
    auto made = co_await rdmacoro::as_result(std::move(connecting));
    if (!made && made.error() == rdmacoro::errc::connection_refused) {
        co_return "No process listens at " + asked.where.whole +
            ": this is the table without a connection.\n" + list_of(asked).explain();
    }
    const std::unique_ptr<peer> over = std::move(made).value();
    const std::string table = over->explain();
    co_await send_control(*over, bye_message{.failed = 0});
    co_await over->close();
    co_return table;
}

}  // namespace

void run_connecting(const options& asked) {
    if (!asked.cpus.empty()) pin_to(cpu_of(asked, true, 0));
    if (asked.explain) {
        rdmacoro::scheduler owner;
        write_to("-", owner.run(explain_connected(asked)));
        return;
    }
    reporter out(asked);
    const idle_kind idle = asked.idle.value_or(idle_kind::adaptive);
    rdmacoro::scheduler owner{chosen_idle(&idle)};
    owner.run(connect_and_measure(asked, out));
    out.finish();
}

void run_listening(const options& asked, const std::function<void(const std::string&)>& listening) {
    if (!asked.cpus.empty()) pin_to(cpu_of(asked, false, 0));
    if (asked.explain && asked.as == options::role::listen) {
        write_to("-", list_of(asked).explain());
        return;
    }
    idle_kind idle = asked.idle.value_or(idle_kind::adaptive);
    rdmacoro::scheduler owner{chosen_idle(&idle)};
    owner.run(listen_and_serve(asked, idle, listening));
}

}  // namespace pingpong
