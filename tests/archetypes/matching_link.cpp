// The least that models `matching_link`: what every link has, and its own functions. Endpoints and mailboxes that leave
// matching to it are instantiated over it, so that they use nothing else.
#include <rdmacoro/messaging/messaging.hpp>

// Not an unnamed one: what is declared here is used and nowhere defined.
namespace matching_archetype {

using namespace rdmacoro;

struct least {
    static constexpr const char* name = "least";
    static constexpr const char* description = "has what a transport must have, and matches";
    static constexpr capabilities static_capabilities{};

    class connection {
    public:
        connection() = default;
        connection(connection&&) noexcept = default;
        connection& operator=(connection&&) noexcept = default;
    };

    class listener {
    public:
        listener(listener&&) noexcept = default;
        listener& operator=(listener&&) noexcept = default;
        task<connection> accept();
        std::string address() const;
    };

    class domain {
    public:
        explicit domain(scheduler&);
        domain(const domain&) = delete;
        domain& operator=(const domain&) = delete;
        task<connection> connect(std::string_view);
        task<listener> listen(std::string_view);
        region register_memory(std::span<std::byte>, rdmacoro::access_rights);
        scheduler& owner() noexcept;
    };

    template <class Sink>
    class link {
    public:
        link(connection, Sink&);
        link(const link&) = delete;
        link& operator=(const link&) = delete;
        post_result post(const message_header&, const const_buffers&, completion&) noexcept;
        post_result post_copied(const message_header&, const const_buffers&) noexcept;
        bool revoke(completion&) noexcept;
        unsigned poll(unsigned) noexcept;
        lent_buffer keep() noexcept;
        void close(std::error_code) noexcept;
        const rdmacoro::capabilities& capabilities() const noexcept;
        scheduler& owner() noexcept;
        std::string peer_name() const;

        post_result post_tagged(std::uint64_t, std::uint32_t, const const_buffers&, completion&) noexcept;
        post_result post_receive(std::uint64_t, std::uint64_t, const mutable_buffers&,
                                 tagged_completion&) noexcept;
        post_result claim(tagged_completion&) noexcept;
        post_result receive_claimed(claimed_message, const mutable_buffers&, tagged_completion&) noexcept;
        void discard(claimed_message) noexcept;
        bool withdraw(completion&) noexcept;
        const matching_traits& matching() const noexcept;
    };
};

using list = protocols<provider_matched>;

/// Everything that is awaited.
task<> awaits_all(endpoint<least, list>& peer, mailbox<least, list>& box, std::span<std::byte> memory) {
    co_await peer.send(memory);
    co_await peer.ssend(memory);
    co_await peer.recv(memory);
    co_await peer.recv_lent();
    co_await peer.probe();
    co_await box.send(box.attach(std::move(peer)), memory);
    co_await box.recv(memory);
    co_await box.recv_lent();
    co_await box.probe();
    co_await box.close();
}

static_assert(transport<least>);
static_assert(matching_link<least::link<detail::sink_archetype>>);

}  // namespace matching_archetype
