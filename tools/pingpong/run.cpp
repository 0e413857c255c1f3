#include "run.hpp"

#include "cpus.hpp"
#include "results.hpp"
#include "transports.hpp"

#include <cstdio>

namespace pingpong {

namespace {
const protocol_entry& entry_for(const options& asked) {
    return find_list(*find_transport(asked.where.scheme), asked.protocol);
}
}  // namespace

void run_connecting(const options& asked) {
    if (!asked.cpus.empty()) pin_to(cpu_of(asked, true, 0));
    if (asked.explain) {
        std::fputs(entry_for(asked).explain(asked).c_str(), stdout);
        return;
    }
    reporter out(asked);
    entry_for(asked).connect(asked, out);
    out.finish();
}

void run_listening(const options& asked, const std::function<void(const std::string&)>& listening) {
    if (!asked.cpus.empty()) pin_to(cpu_of(asked, false, 0));
    if (asked.explain && asked.as == options::role::listen) {
        std::fputs(entry_for(asked).explain(asked).c_str(), stdout);
        return;
    }
    entry_for(asked).listen(asked, listening);
}

}  // namespace pingpong
