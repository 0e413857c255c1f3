#pragma once

// Peers made by hand, of the provider's calls and the transport's wire format, which do what no link would.

#include "ofi/pair.hpp"

#include <rdmacoro/transport/ofi/device.hpp>

#include <cerrno>
#include <cstring>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

namespace rdmacoro::test {

namespace fabric = rdmacoro::detail::fabric;

/// The TCP connection of a client to a listener.
class caller {
public:
    caller() = default;
    caller(caller&& other) noexcept
        : socket_(std::exchange(other.socket_, -1)), heard_(std::move(other.heard_)) {}
    caller& operator=(caller&&) = delete;
    ~caller() { hang_up(); }

    void connect(const std::string& address) {
        const auto port = static_cast<std::uint16_t>(std::stoi(address.substr(address.rfind(':') + 1)));
        socket_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        sockaddr_in to{};
        to.sin_family = AF_INET;
        to.sin_port = htons(port);
        to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        REQUIRE(::connect(socket_, reinterpret_cast<const sockaddr*>(&to), sizeof to) == 0);
    }
    void say(std::span<const std::byte> bytes) {
        REQUIRE(::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL) ==
                static_cast<ssize_t>(bytes.size()));
    }
    void show(const fabric::connect_info& own) {
        std::vector<std::byte> raw(fabric::connect_info::wire_bytes);
        own.store(raw.data());
        say(raw);
    }
    /// Reads the bytes that have come over the socket. False: the other side closed it.
    bool hear() {
        std::byte more[1024];
        const ssize_t n = ::recv(socket_, more, sizeof more, MSG_DONTWAIT);
        if (n > 0) heard_.insert(heard_.end(), more, more + n);
        return n > 0 || (n < 0 && errno == EAGAIN);
    }
    [[nodiscard]] const std::vector<std::byte>& heard() const { return heard_; }
    void hang_up() {
        if (socket_ >= 0) ::close(std::exchange(socket_, -1));
    }

private:
    int socket_ = -1;
    std::vector<std::byte> heard_;
};

/// A connect_info of a link over that endpoint.
[[nodiscard]] inline fabric::connect_info info_of(const fabric::device& of) {
    fabric::connect_info own;
    own.slot_bytes = static_cast<std::uint32_t>(of.profile().slot_bytes);
    own.credits = 64;
    own.flags = of.profile().one_sided == ofi_one_sided::served ? fabric::connect_info::served : 0;
    own.address_format = of.address_format();
    own.link = std::uint64_t{0xabcdef} << 16;
    own.host = fabric::host_number();
    own.nonce = of.nonce();
    own.address_bytes = static_cast<std::uint32_t>(of.own_address().size());
    own.name_provider(of.profile().provider);
    std::memcpy(own.address.data(), of.own_address().data(), of.own_address().size());
    return own;
}

/// The whole of a peer, by hand: a socket, a connect_info, an endpoint.
class stranger : public caller, private progress_source {
public:
    stranger(scheduler& on, const std::string& provider)
        : on_(on), options_(ofi_here(provider)), device_(*provider::find(provider), options_) {
        for (buffer& one : buffers_) receive(one);
        on.add_source(*this);
    }
    ~stranger() override {
        on_.remove_source(*this);
        hang_up();
        device_.close_endpoint();
    }

    [[nodiscard]] fabric::connect_info connect_info() const {
        fabric::connect_info own = info_of(device_);
        if (credits_ != 0) own.credits = credits_;
        return own;
    }
    /// The credits of its connect_info.
    void give(std::uint32_t credits) { credits_ = credits; }

    /// The whole of opening, to the first frames.
    void open(const std::string& address) {
        meet(address);
        frame(fabric::frame_kind::hello);
    }
    /// Opening without a frame.
    void meet(const std::string& address) { meet(address, connect_info()); }
    void meet(const std::string& address, const fabric::connect_info& shown) {
        connect(address);
        show(shown);
        on_.run_until([&] {
            hear();
            return heard().size() == fabric::connect_info::wire_bytes + 1;
        });
        fabric::connect_info theirs;
        theirs.load(heard().data());
        peer_ = theirs.link;
        REQUIRE(device_.insert(theirs.address.data(), theirs.address_bytes, theirs.nonce, to_) ==
                fabric::verdict::welcome);
        const std::byte welcome{static_cast<unsigned char>(fabric::verdict::welcome)};
        say(std::span(&welcome, 1));
    }

    /// Sends bytes by the provider.
    void send(std::span<const std::byte> bytes) {
        on_.run_until([&] { return ::fi_inject(device_.endpoint(), bytes.data(), bytes.size(), to_) == 0; });
    }
    /// Sends the next frame of this link, with `rest` behind the word.
    void frame(fabric::frame_kind kind, std::span<const std::byte> rest = {}, std::uint16_t credits = 0) {
        frame(fabric::frame{kind, credits, next_++, peer_}, rest);
    }
    void frame(const fabric::frame& word, std::span<const std::byte> rest = {}) {
        std::vector<std::byte> raw(fabric::frame_word_bytes + rest.size());
        word.store(raw.data());
        if (!rest.empty()) std::memcpy(raw.data() + fabric::frame_word_bytes, rest.data(), rest.size());
        send(raw);
    }
    [[nodiscard]] unsigned received() const { return received_; }
    /// The bytes behind the word of the first frame of this kind that came; empty: none did.
    [[nodiscard]] std::vector<std::byte> rest_of(fabric::frame_kind kind) const {
        for (const std::vector<std::byte>& one : frames_) {
            fabric::frame word;
            if (word.load(one.data(), one.size()) && word.kind == kind)
                return {one.begin() + fabric::frame_word_bytes, one.end()};
        }
        return {};
    }
    /// The same of the last one.
    [[nodiscard]] std::vector<std::byte> last_rest_of(fabric::frame_kind kind) const {
        std::vector<std::byte> last;
        for (const std::vector<std::byte>& one : frames_) {
            fabric::frame word;
            if (word.load(one.data(), one.size()) && word.kind == kind)
                last = {one.begin() + fabric::frame_word_bytes, one.end()};
        }
        return last;
    }
    /// The words of all frames that came, in their order.
    [[nodiscard]] std::vector<fabric::frame> words() const {
        std::vector<fabric::frame> all(frames_.size());
        for (std::size_t n = 0; n < all.size(); ++n)
            REQUIRE(all[n].load(frames_[n].data(), frames_[n].size()));
        return all;
    }
    /// Nothing of the provider goes on any more, and no get is answered.
    void stand_still() { polls_ = false; }
    /// Ends the provider's connections.
    void close_endpoint() { device_.close_endpoint(); }
    [[nodiscard]] const fabric::device& device() const { return device_; }
    [[nodiscard]] std::uint64_t peer() const { return peer_; }
    [[nodiscard]] std::uint32_t next() const { return next_; }

private:
    struct buffer {
        fi_context2 context{};
        std::array<std::byte, 8192> bytes{};
    };
    void receive(buffer& into) {
        REQUIRE(::fi_recv(device_.endpoint(), into.bytes.data(), into.bytes.size(), nullptr, FI_ADDR_UNSPEC,
                          &into.context) == 0);
    }

    bool poll() noexcept override {
        if (!polls_) return false;
        fi_cq_msg_entry entries[8];
        const ssize_t n = ::fi_cq_read(device_.queue(), entries, 8);
        for (ssize_t i = 0; i < n; ++i) {
            ++received_;
            const auto* into = static_cast<const buffer*>(entries[i].op_context);
            frames_.emplace_back(into->bytes.data(), into->bytes.data() + entries[i].len);
        }
        return n > 0;
    }

    scheduler& on_;
    ofi_options options_;
    fabric::device device_;
    std::vector<buffer> buffers_ = std::vector<buffer>(64);
    fi_addr_t to_ = FI_ADDR_UNSPEC;
    std::uint64_t peer_ = 0;
    std::uint32_t credits_ = 0;  // 0: the usual
    std::uint32_t next_ = 0;
    unsigned received_ = 0;
    bool polls_ = true;
    std::vector<std::vector<std::byte>> frames_;
};

/// A domain that listens, for strangers and for a well-behaved peer.
struct besieged {
    explicit besieged(const std::string& provider) : besieged(ofi_here(provider)) {}
    explicit besieged(const ofi_options& options) : domain(on, options) {
        listening = on.run(domain.listen("127.0.0.1:0"));
    }
    /// The stranger's link, as the domain has it.
    void take(stranger& from, ofi_end& end) {
        from.open(listening.address());
        end.link = std::make_unique<ofi_recorded_link>(on.run(listening.accept()), end.sink);
    }

    scheduler on{impatient{}};
    ofi_any_domain domain;
    ofi_listener listening;
};

}  // namespace rdmacoro::test
