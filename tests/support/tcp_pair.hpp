#pragma once

// Two tcp domains on one scheduler, links between them, and a raw socket that speaks to one of them as a test pleases.

#include <rdmacoro/transport/tcp.hpp>
#include <rdmacoro/transport/tcp/address.hpp>

#include "support/recording_sink.hpp"
#include "support/run.hpp"

#include <algorithm>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>

#include <dirent.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

namespace rdmacoro::test {

using recorded_link = tcp::link<recording_sink>;

/// Descriptors that this process has open.
inline std::size_t open_descriptors() {
    DIR* listing = ::opendir("/proc/self/fd");
    std::size_t count = 0;
    while (::readdir(listing) != nullptr) ++count;
    ::closedir(listing);
    return count;
}

/// One end of a link and what it was told.
struct tcp_end {
    recording_sink sink;
    std::unique_ptr<recorded_link> link;
};

/// A scheduler in real time that gives up when nothing moves for long, with two domains, as two processes would have.
struct tcp_world {
    explicit tcp_world(const tcp_options& options = {}) : tcp_world(options, options) {}
    tcp_world(const tcp_options& client_options, const tcp_options& server_options)
        : client(on, client_options), server(on, server_options) {}

    scheduler on{impatient{}};
    tcp_domain client;
    tcp_domain server;

    template <class Done>
    void until(Done done) {
        on.run_until(done);
    }
    /// So many polls.
    void turns(unsigned count) {
        for (unsigned i = 0; i < count; ++i) on.turn();
    }

    tcp_listener listen(const std::string& address = "127.0.0.1:0") { return on.run(server.listen(address)); }

    struct connected {
        tcp_connection client;
        tcp_connection server;
    };
    connected connect(tcp_listener& listener) {
        connected made;
        bool accepted = false;
        detail::ready_node root;
        task<> accepting = accept(listener, made.server, accepted);
        accepting.bind({&on, {}});
        root.waiter = accepting.handle();
        on.make_ready(root);
        made.client = on.run(client.connect(listener.address()));
        until([&] { return accepted; });
        until([&] { return accepting.handle().done(); });
        return made;
    }

private:
    static task<> accept(tcp_listener& listener, tcp_connection& into, bool& accepted) {
        into = co_await listener.accept();
        accepted = true;
    }
};

/// A world with one link.
struct tcp_pair : tcp_world {
    explicit tcp_pair(const tcp_options& options = {}) : tcp_pair(options, options) {}
    tcp_pair(const tcp_options& client_options, const tcp_options& server_options)
        : tcp_world(client_options, server_options), listener(listen()) {
        connected made = connect(listener);
        a.link = std::make_unique<recorded_link>(std::move(made.client), a.sink);
        b.link = std::make_unique<recorded_link>(std::move(made.server), b.sink);
    }

    tcp_listener listener;
    tcp_end a;  // connected
    tcp_end b;  // accepted

    /// Posts and waits until the memory is free again; false when the link is down.
    bool send(tcp_end& from, std::uint64_t number, const const_buffers& payload) {
        for (;;) {
            recording_completion c;
            const unsigned writables = from.sink.writables;
            switch (from.link->post(header_of(number), payload, c)) {
                case post_result::done: return true;
                case post_result::posted: until([&] { return c.calls != 0; }); return !c.outcome;
                case post_result::retry:
                    until([&] { return from.sink.writables != writables || from.sink.downs != 0; });
                    break;
                case post_result::failed: return false;
            }
        }
    }
};

/// A plain socket, to be whatever a link's peer may turn out to be. It never waits: what it does it does while the
/// world turns.
class raw_peer {
public:
    explicit raw_peer(int fd) : fd_(fd) {}
    raw_peer(raw_peer&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
    raw_peer& operator=(raw_peer&&) = delete;
    ~raw_peer() { hang_up(); }

    /// Connected to "127.0.0.1:port".
    static raw_peer to(const std::string& address) { return connecting(address, "", 0); }
    /// The same, but not connected before the listener has room; from `own`, if given: any address of the loopback network.
    static raw_peer towards(const std::string& address, const std::string& own = "") {
        return connecting(address, own, SOCK_NONBLOCK);
    }

    void hang_up() {
        if (fd_ >= 0) ::close(std::exchange(fd_, -1));
    }
    /// Cuts the connection: the other side gets a reset.
    void reset() {
        const linger now{1, 0};
        ::setsockopt(fd_, SOL_SOCKET, SO_LINGER, &now, sizeof now);
        hang_up();
    }

    /// False when the other side takes no more, for now or for ever.
    bool try_send(std::span<const std::byte> bytes, std::size_t& sent) {
        const ssize_t now =
            ::send(fd_, bytes.data() + sent, bytes.size() - sent, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (now > 0) sent += static_cast<std::size_t>(now);
        return now > 0 || sent == bytes.size();
    }
    void send(tcp_world& world, std::span<const std::byte> bytes) {
        std::size_t sent = 0;
        world.until([&] {
            if (sent != bytes.size()) try_send(bytes, sent);
            return sent == bytes.size() || ended();
        });
    }
    /// The bytes that come until `bytes` are here, or the other side ends.
    std::vector<std::byte> receive(tcp_world& world, std::size_t bytes) {
        std::vector<std::byte> got(bytes);
        std::size_t have = 0;
        world.until([&] {
            const ssize_t now = ::recv(fd_, got.data() + have, bytes - have, MSG_DONTWAIT);
            if (now > 0) have += static_cast<std::size_t>(now);
            return have == bytes || now == 0 || (now < 0 && errno != EAGAIN);
        });
        got.resize(have);
        return got;
    }
    /// The other side has closed the connection, or cut it.
    [[nodiscard]] bool ended() const {
        pollfd look{fd_, POLLRDHUP, 0};
        return ::poll(&look, 1, 0) > 0 && (look.revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0;
    }

    [[nodiscard]] int fd() const noexcept { return fd_; }

private:
    static detail::inet_endpoint endpoint(const std::string& address) {
        return detail::inet_resolved::ask(detail::parse_tcp_address(address), AI_NUMERICHOST).endpoints.at(0);
    }
    static raw_peer connecting(const std::string& address, const std::string& own, int flags) {
        const detail::inet_endpoint at = endpoint(address);
        raw_peer made(::socket(at.address.ss_family, SOCK_STREAM | SOCK_CLOEXEC | flags, 0));
        if (!own.empty()) {
            const detail::inet_endpoint from = endpoint(own + ":0");
            if (::bind(made.fd_, from.get(), from.bytes) != 0) throw std::runtime_error("raw_peer: bind");
        }
        if (::connect(made.fd_, at.get(), at.bytes) != 0 && errno != EINPROGRESS)
            throw std::runtime_error("raw_peer: connect");
        return made;
    }

    int fd_;
};

/// A link of `world.server` whose peer is a raw socket that has greeted.
struct raw_pair : tcp_world {
    explicit raw_pair(const tcp_options& options = {})
        : tcp_world(options), listener(listen()), peer(raw_peer::to(listener.address())) {
        detail::tcp_greeting greeting;
        greeting.nonce = 4711;
        const auto bytes = greeting.store();
        peer.send(*this, bytes);
        b.link = std::make_unique<recorded_link>(on.run(listener.accept()), b.sink);
        static_cast<void>(peer.receive(*this, detail::tcp_greeting::wire_bytes));
    }

    tcp_listener listener;
    raw_peer peer;
    tcp_end b;
};

/// A frame as it goes over the wire: word, head, data.
inline std::vector<std::byte> frame(detail::tcp_frame kind, std::size_t bytes,
                                    std::span<const std::byte> head, std::span<const std::byte> data = {}) {
    std::vector<std::byte> made(detail::tcp_word_bytes + head.size() + data.size());
    detail::tcp_word{kind, static_cast<std::uint32_t>(bytes)}.store(made.data());
    std::copy(head.begin(), head.end(), made.begin() + detail::tcp_word_bytes);
    std::copy(data.begin(), data.end(), made.end() - static_cast<std::ptrdiff_t>(data.size()));
    return made;
}
inline std::vector<std::byte> message_frame(std::uint64_t number, std::span<const std::byte> data) {
    return frame(detail::tcp_frame::message, data.size(), header_of(number), data);
}
template <class Head>
std::vector<std::byte> one_sided_frame(detail::tcp_frame kind, const Head& head,
                                       std::span<const std::byte> data = {}) {
    std::vector<std::byte> bytes(Head::wire_bytes);
    head.store(bytes.data());
    return frame(kind, data.size(), bytes, data);
}

}  // namespace rdmacoro::test
