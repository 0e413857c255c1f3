#include "ofi/pair.hpp"

#include <rdmacoro/transport/ofi/device.hpp>

#include <sys/socket.h>

// A peer that violates the protocol is cut off at once, whatever of its messages the receiver has yet to take.

using namespace rdmacoro;
using namespace rdmacoro::test;
namespace fabric = rdmacoro::detail::fabric;

namespace {

/// The peer of one link: a socket, a connect_info and an endpoint, which sends any frames.
class violator : private progress_source {
public:
    violator(scheduler& on, const std::string& provider)
        : on_(on), options_(ofi_here(provider)), device_(*provider::find(provider), options_) {
        for (buffer& one : buffers_)
            REQUIRE(::fi_recv(device_.endpoint(), one.bytes.data(), one.bytes.size(), nullptr, FI_ADDR_UNSPEC,
                              &one.context) == 0);
        on.add_source(*this);
    }
    ~violator() override {
        on_.remove_source(*this);
        if (socket_ >= 0) ::close(socket_);
        device_.close_endpoint();
    }

    /// Opens a link as it should be, to the first frame.
    void open(const std::string& address) {
        socket_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        sockaddr_in to{};
        to.sin_family = AF_INET;
        to.sin_port = htons(static_cast<std::uint16_t>(std::stoi(address.substr(address.rfind(':') + 1))));
        to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        REQUIRE(::connect(socket_, reinterpret_cast<const sockaddr*>(&to), sizeof to) == 0);
        std::vector<std::byte> raw(fabric::connect_info::wire_bytes);
        own_info().store(raw.data());
        REQUIRE(::send(socket_, raw.data(), raw.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(raw.size()));
        std::vector<std::byte> answer(fabric::connect_info::wire_bytes + 1);
        std::size_t got = 0;
        on_.run_until([&] {
            const ssize_t n = ::recv(socket_, answer.data() + got, answer.size() - got, MSG_DONTWAIT);
            if (n > 0) got += static_cast<std::size_t>(n);
            return got == answer.size();
        });
        fabric::connect_info theirs;
        theirs.load(answer.data());
        peer_ = theirs.link;
        REQUIRE(device_.insert(theirs.address.data(), theirs.address_bytes, to_));
        const std::byte welcome{static_cast<unsigned char>(fabric::verdict::welcome)};
        REQUIRE(::send(socket_, &welcome, 1, MSG_NOSIGNAL) == 1);
        frame(fabric::frame_kind::hello);
    }

    void message(std::uint64_t number) { frame(fabric::frame_kind::message, 0, header_of(number)); }
    /// Returns credits that this side was never granted.
    void return_too_many_credits() { frame(fabric::frame_kind::credit, 0xffff); }

private:
    struct buffer {
        fi_context2 context{};
        std::array<std::byte, 8192> bytes{};
    };

    [[nodiscard]] fabric::connect_info own_info() const {
        fabric::connect_info own;
        own.slot_bytes = static_cast<std::uint32_t>(device_.profile().slot_bytes);
        own.credits = 64;
        own.flags = device_.profile().one_sided == ofi_one_sided::served ? fabric::connect_info::served : 0;
        own.address_format = device_.address_format();
        own.link = std::uint64_t{0xfeed} << 16;
        own.host = fabric::host_number();
        own.address_bytes = static_cast<std::uint32_t>(device_.own_address().size());
        own.name_provider(device_.profile().provider);
        std::memcpy(own.address.data(), device_.own_address().data(), device_.own_address().size());
        return own;
    }

    void frame(fabric::frame_kind kind, std::uint16_t credits = 0, std::span<const std::byte> rest = {}) {
        std::vector<std::byte> raw(fabric::frame_word_bytes + rest.size());
        fabric::frame{kind, credits, next_++, peer_}.store(raw.data());
        if (!rest.empty()) std::memcpy(raw.data() + fabric::frame_word_bytes, rest.data(), rest.size());
        on_.run_until([&] { return ::fi_inject(device_.endpoint(), raw.data(), raw.size(), to_) == 0; });
    }

    bool poll() noexcept override {
        fi_cq_msg_entry entries[8];
        return ::fi_cq_read(device_.queue(), entries, 8) > 0;
    }

    scheduler& on_;
    ofi_options options_;
    fabric::device device_;
    std::vector<buffer> buffers_ = std::vector<buffer>(16);
    int socket_ = -1;
    fi_addr_t to_ = FI_ADDR_UNSPEC;
    std::uint64_t peer_ = 0;
    std::uint32_t next_ = 0;
};

}  // namespace

TEST_CASE("a peer that violates the protocol is cut off while its messages are deferred") {
    const std::string provider = GENERATE(as<std::string>{}, "tcp", "shm");
    CAPTURE(provider);
    scheduler on{impatient{}};
    ofi_any_domain domain(on, ofi_here(provider));
    ofi_listener listening = on.run(domain.listen("127.0.0.1:0"));
    violator peer(on, provider);
    peer.open(listening.address());
    ofi_end end;
    end.link = std::make_unique<ofi_recorded_link>(on.run(listening.accept()), end.sink);
    end.sink.refuse_all = true;
    constexpr std::uint64_t sent = 5;
    for (std::uint64_t n = 0; n < sent; ++n) peer.message(n);
    on.run_until([&] { return end.link->counts().received == 1 + sent; });
    for (int n = 0; n < 100; ++n) on.turn();
    REQUIRE(end.sink.downs == 0);  // deferring alone ends nothing
    REQUIRE(end.sink.count == 0);  // and the messages wait in front of the violation
    peer.return_too_many_credits();
    on.run_until([&] { return end.sink.downs != 0; });
    CHECK(end.sink.reason == errc::protocol_violation);
    CHECK(end.sink.count == 0);
}

TEST_CASE("messages that arrived before a violation are delivered while the receiver takes them") {
    scheduler on{impatient{}};
    ofi_any_domain domain(on, ofi_here("tcp"));
    ofi_listener listening = on.run(domain.listen("127.0.0.1:0"));
    violator peer(on, "tcp");
    peer.open(listening.address());
    ofi_end end;
    end.link = std::make_unique<ofi_recorded_link>(on.run(listening.accept()), end.sink);
    for (std::uint64_t n = 0; n < 5; ++n) peer.message(n);
    on.run_until([&] { return end.sink.count == 5; });
    peer.return_too_many_credits();
    on.run_until([&] { return end.sink.downs != 0; });
    CHECK(end.sink.reason == errc::protocol_violation);
    CHECK(end.sink.count == 5);
}
