// The least that models `transport`: everything a transport must have, and no get and put. Endpoints and mailboxes are
// instantiated over it, so that they use nothing else.
#include <rdmacoro/messaging/messaging.hpp>

namespace {

using namespace rdmacoro;

struct least {
    static constexpr const char* name = "least";
    static constexpr const char* description = "has what a transport must have";
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
    };
};

template <class Endpoint>
concept has_get = requires(Endpoint& e, const remote_region& r, std::span<std::byte> b) { e.rdma_get(r, b); };

}  // namespace

static_assert(transport<least>);
static_assert(!one_sided_link<least::link<detail::sink_archetype>>);
// What a transport lacks, its endpoints lack.
static_assert(!has_get<endpoint<least>>);
