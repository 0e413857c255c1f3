#pragma once

// Two domains of an adapter's transport on one scheduler, with links between them, and a peer in a thread: for libfabric (ofi/pair.hpp)
// and verbs (verbs/pair.hpp).

#include <rdmacoro/coro/coro.hpp>

#include "support/recording_sink.hpp"
#include "support/run.hpp"

#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>

namespace rdmacoro::test {

/// One end of a link of the transport `Fabric::transport`, and the sink that records its events.
template <class Fabric>
struct fabric_end {
    using link_type = typename Fabric::transport::template link<recording_sink>;

    recording_sink sink;
    std::unique_ptr<link_type> link;
};

/// A scheduler in real time that gives up when nothing moves for long, with two domains, as two processes would have. `Fabric` also
/// has the type of the domains' `options`, an `address` to listen on, and `greet(world, a, b)`, which sends the first messages of a
/// new link.
template <class Fabric>
struct fabric_world {
    using options_type = typename Fabric::options;
    using domain_type = typename Fabric::transport::domain;
    using connection_type = typename Fabric::transport::connection;
    using end_type = fabric_end<Fabric>;

    explicit fabric_world(const options_type& options = {}) : fabric_world(options, options) {}
    fabric_world(const options_type& client_options, const options_type& server_options)
        : client(on, client_options), server(on, server_options) {}

    scheduler on{impatient{}};
    domain_type client;
    domain_type server;

    template <class Done>
    void until(Done done) {
        on.run_until(done);
    }
    void turns(unsigned count) {
        for (unsigned i = 0; i < count; ++i) on.turn();
    }

    struct connected {
        connection_type client;
        connection_type server;
    };
    connected connect() { return on.run(connect_both(*this)); }

    /// Both ends of a new link, after its first messages.
    void link(end_type& a, end_type& b) {
        connected made = connect();
        a.link = std::make_unique<typename end_type::link_type>(std::move(made.client), a.sink);
        b.link = std::make_unique<typename end_type::link_type>(std::move(made.server), b.sink);
        Fabric::greet(*this, a, b);
        for (end_type* one : {&a, &b}) {
            one->sink.messages.clear();
            one->sink.count = 0;
        }
    }
    /// One message, until it has come.
    void exchange(end_type& from, end_type& to, std::span<const std::byte> payload = {}) {
        recording_completion none;
        const std::uint64_t before = to.sink.count;
        until(
            [&] { return from.link->post(header_of(0), const_buffers(payload), none) == post_result::done; });
        until([&] { return to.sink.count == before + 1; });
    }

    /// Until both sides have heard the last of it, and the network has let go of everything.
    void until_all_gone() {
        until([&] { return client.connections() == 0 && server.connections() == 0; });
    }

private:
    static task<connected> connect_both(fabric_world& w) {
        auto listening = co_await w.server.listen(Fabric::address);
        auto accepting = start(listening.accept());
        connected made;
        made.client = co_await w.client.connect(listening.address());
        made.server = co_await accepting;
        co_return made;
    }
};

/// Posts until it is taken.
template <class Fabric>
void post_for_sure(fabric_world<Fabric>& w, fabric_end<Fabric>& from, std::uint64_t number,
                   std::span<const std::byte> payload = {}) {
    recording_completion none;
    w.until([&] {
        return from.link->post(header_of(number), const_buffers(payload), none) == post_result::done;
    });
}

/// The differences of counts that only grow, `after` less `before`.
template <class Counts>
[[nodiscard]] Counts more(const Counts& after, const Counts& before) {
    static_assert(std::is_trivially_copyable_v<Counts> && sizeof(Counts) % sizeof(std::uint64_t) == 0);
    using numbers = std::array<std::uint64_t, sizeof(Counts) / sizeof(std::uint64_t)>;
    auto now = std::bit_cast<numbers>(after);
    const auto then = std::bit_cast<numbers>(before);
    for (std::size_t i = 0; i < now.size(); ++i) now[i] -= then[i];
    return std::bit_cast<Counts>(now);
}

/// Parks as soon as nothing moves.
struct park_at_once {
    idle::action next(rdmacoro::clock&) noexcept { return idle::action::park; }
    void progress() noexcept {}
};

/// Echoes what comes, in a thread with a scheduler of its own that parks whenever it can, until the peer is gone.
template <class Fabric>
class echo_thread {
    using domain_type = typename Fabric::transport::domain;
    using connection_type = typename Fabric::transport::connection;

public:
    explicit echo_thread(const typename Fabric::options& options)
        : thread_([this, options] { echo(options); }) {
        while (!listens_.load()) std::this_thread::yield();
    }
    echo_thread(const echo_thread&) = delete;
    echo_thread& operator=(const echo_thread&) = delete;
    ~echo_thread() { join(); }
    void join() {
        if (thread_.joinable()) thread_.join();
    }

    [[nodiscard]] const std::string& address() const { return address_; }
    /// How often it has slept. Once it is joined.
    [[nodiscard]] std::uint64_t parks() const { return parks_; }

private:
    void echo(const typename Fabric::options& options) {
        scheduler on{park_at_once{}};
        domain_type domain(on, options);
        fabric_end<Fabric> end;
        end.link = std::make_unique<typename fabric_end<Fabric>::link_type>(
            on.run(accept_one(domain, address_, listens_)), end.sink);
        end.sink.count_only = true;
        std::uint64_t owed = 0;
        end.sink.on_message = [&](const recorded_message&) { ++owed; };
        on.run_until([&] {
            while (owed != 0 && end.link->post_copied(header_of(owed), {}) == post_result::done) --owed;
            return end.sink.downs != 0;
        });
        parks_ = on.parks();
    }
    static task<connection_type> accept_one(domain_type& domain, std::string& address,
                                            std::atomic<bool>& listens) {
        auto listening = co_await domain.listen(Fabric::address);
        address = listening.address();
        listens.store(true);
        co_return co_await listening.accept();
    }

    std::string address_;
    std::atomic<bool> listens_{false};
    std::uint64_t parks_ = 0;
    std::thread thread_;  // last: it uses the others
};

/// Exchanges messages with a thread that parks whenever it can, from a scheduler that does so, too. Whether both slept meanwhile.
template <class Fabric>
[[nodiscard]] bool rounds_with_sleep(const typename Fabric::options& options) {
    echo_thread<Fabric> other(options);
    scheduler on{park_at_once{}};
    typename Fabric::transport::domain domain(on, options);
    fabric_end<Fabric> end;
    end.link = std::make_unique<typename fabric_end<Fabric>::link_type>(
        on.run(domain.connect(other.address())), end.sink);
    constexpr std::uint64_t rounds = 300;
    for (std::uint64_t n = 0; n < rounds; ++n) {
        on.run_until([&] { return end.link->post_copied(header_of(n), {}) == post_result::done; });
        on.run_until([&] { return end.sink.count == n + 1; });
    }
    const bool slept = on.parks() > 0;
    end.link.reset();
    on.run_until([&] { return domain.connections() == 0; });
    other.join();
    return slept && other.parks() > 0;
}

}  // namespace rdmacoro::test
