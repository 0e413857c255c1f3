#include "pair.hpp"

#include "../../tools/pingpong/cpus.hpp"
#include "../../tools/pingpong/sizes.hpp"

#include <string>

#include <unistd.h>

namespace bench {

namespace {

std::string listening_address(std::string_view transport) {
    static unsigned made = 0;
    if (transport == "tcp") return "tcp://127.0.0.1:0";
    if (transport == "verbs") return "verbs://*:0";
    return std::string(transport) + "://bench-" + std::to_string(::getpid()) + "-" + std::to_string(++made);
}

}  // namespace

void run_processes(const settings& asked, const std::string& where,
                   const pingpong::listening_process::body& listen,
                   const std::function<void(const std::string& address)>& connect) {
    pingpong::listening_process child(asked.name, [&](const auto& listening) {
        pingpong::pin_to(asked.cpus[1]);
        listen(listening);
    });
    if (child.address().empty()) {
        static_cast<void>(child.ends_well());  // it has printed the reason
        throw run_error(where + ": the listening side could not begin");
    }
    pingpong::pin_to(asked.cpus[0]);
    watch::begin(asked.name, asked.timeout_seconds, true);
    try {
        connect(child.address());
    } catch (const std::exception& error) {
        watch::stop();
        throw run_error(where + ": " + error.what());
    }
    watch::stop();
    if (!child.ends_well()) throw run_error(where + ": the listening side failed");
}

void run_pair(const settings& asked, const link_entry& link, const side& measuring, const side& other) {
    const std::string wanted = listening_address(link.transport);
    run_processes(
        asked, std::string(link.transport) + ", " + std::string(link.protocol),
        [&](const auto& listening) { link.listen(wanted, asked.idle, listening, other); },
        [&](const std::string& address) { link.connect(address, asked.idle, measuring); });
}

rc::task<> receive_go(peer& from) { static_cast<void>(co_await receive_value<std::uint64_t>(from, go_tag)); }

void check_length(const rc::received& got, std::size_t bytes) {
    if (got.bytes != bytes) {
        throw run_error("a message of " + std::to_string(got.bytes) + " bytes came where one of " +
                        std::to_string(bytes) + " was sent");
    }
}

void check_size(peer& other, const link_entry& link, std::size_t bytes) {
    if (other.policy_for(bytes) == "none") {
        throw run_error("the list (" + link.text + ") carries no message of " + pingpong::size_text(bytes));
    }
}

}  // namespace bench
