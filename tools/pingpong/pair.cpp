#include "pair.hpp"

#include "failure.hpp"
#include "listening_process.hpp"
#include "run.hpp"

namespace pingpong {

int run_pair(options asked) {
    listening_process child("pingpong", [&asked](const auto& listening) { run_listening(asked, listening); });
    if (child.address().empty()) {
        static_cast<void>(child.ends_well());  // it has printed the reason
        return status_failed;
    }
    asked.where.whole = child.address();
    run_connecting(asked);
    return child.ends_well() ? 0 : status_failed;
}

}  // namespace pingpong
