// The listening side: takes part in the exchanges that its clients ask for.
#pragma once

#include "idle_choice.hpp"
#include "options.hpp"

#include <rdmacoro/coro/task.hpp>

#include <functional>
#include <string>

namespace pingpong {

/// Listens, calls `listening` with the address, and serves one client, or clients for ever. All are borrowed: `idle` is what the scheduler
/// idles by, and is the client's choice while that is served. Throws when the one client's run failed.
rdmacoro::task<> listen_and_serve(const options& asked, idle_kind& idle,
                                  const std::function<void(const std::string&)>& listening);

}  // namespace pingpong
