#include "meeting.hpp"

#include <rdmacoro/service/detail/meeting_server.hpp>
#include <rdmacoro/service/node_card.hpp>

#include <cerrno>
#include <cstdio>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include <sys/eventfd.h>
#include <unistd.h>

namespace run {

namespace detail = rdmacoro::detail;

struct meeting::state {
    state(const detail::inet_endpoint& at, std::uint32_t ranks, const detail::job_key& key)
        : server(at, ranks, key, false), url("tcp://" + server.address()) {}
    ~state() { ::close(wake); }

    void serve() {
        for (;;) {
            try {
                for (;;) server.turn(detail::patience(rdmacoro::time_point::max(), wake));
            } catch (const std::system_error& ended) {
                if (ended.code() != rdmacoro::errc::canceled) {
                    std::fprintf(stderr, "run: the rendezvous of the ranks: %s\n", ended.what());
                    return;
                }
            } catch (const std::exception& ended) {
                std::fprintf(stderr, "run: the rendezvous of the ranks: %s\n", ended.what());
                return;
            }
            std::uint64_t count = 0;
            static_cast<void>(::read(wake, &count, sizeof count));
            const std::lock_guard held(lock);
            for (const std::uint32_t rank : std::exchange(gone, {})) server.ended(rank);
            if (over) return;
        }
    }
    void call() const {
        const std::uint64_t one = 1;
        static_cast<void>(::write(wake, &one, sizeof one));
    }

    int wake = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    detail::meeting_server server;
    std::string url;
    std::mutex lock;
    std::vector<std::uint32_t> gone;
    bool over = false;
    std::thread serves;
};

meeting::meeting(const std::string& address, std::uint32_t ranks, const std::string& key) {
    const bool bare_v6 = address.find(':') != std::string::npos && address.front() != '[';
    const auto where =
        detail::inet_address::parse("tcp", bare_v6 ? "[" + address + "]:0" : address + ":0", "");
    const detail::inet_resolved found = detail::inet_resolved::ask(where, AI_PASSIVE | AI_NUMERICHOST);
    if (found.endpoints.empty())
        throw rdmacoro::error(rdmacoro::errc::address_invalid, address + " is no address in numbers");
    state_ = std::make_unique<state>(found.endpoints.front(), ranks, detail::job_key(&key));
    if (state_->wake < 0) throw std::system_error(errno, std::system_category(), "eventfd");
    state_->serves = std::thread([of = state_.get()] { of->serve(); });
}
meeting::~meeting() {
    {
        const std::lock_guard held(state_->lock);
        state_->over = true;
    }
    state_->call();
    state_->serves.join();
}
const std::string& meeting::url() const noexcept { return state_->url; }
void meeting::ended(std::uint32_t rank) {
    {
        const std::lock_guard held(state_->lock);
        state_->gone.push_back(rank);
    }
    state_->call();
}

std::string new_key() {
    return rdmacoro::to_string(rdmacoro::new_generation()) + rdmacoro::to_string(rdmacoro::new_generation());
}

}  // namespace run
