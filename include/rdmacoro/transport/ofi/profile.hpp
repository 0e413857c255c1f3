// Profiles of libfabric's providers: constants that the transport relies on, and checks when it opens one.
//
// Needs no libfabric: the numbers that libfabric gives its flags stand here once more, and device.hpp compares them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace rdmacoro {

/// Flags of libfabric, under the names that the profiles use.
namespace ofi_flag {
inline constexpr std::uint64_t none = 0;  ///< no flag

// Memory registration: requirements of the provider.
inline constexpr std::uint64_t mr_local = 1u << 2;  ///< memory of this side must be registered, too
inline constexpr std::uint64_t mr_virt_addr = 1u
                                              << 4;  ///< peers name memory by its address, not by an offset
inline constexpr std::uint64_t mr_allocated = 1u << 5;  ///< pages must exist when they are registered
inline constexpr std::uint64_t mr_prov_key = 1u << 6;   ///< the provider chooses the keys
inline constexpr std::uint64_t mr_endpoint = 1u
                                             << 9;  ///< a registration is bound to an endpoint, then enabled

// Order: sends after sends, sends after writes.
inline constexpr std::uint64_t order_saw = 1u << 7;  ///< sends behind puts, `FI_ORDER_SAW`
inline constexpr std::uint64_t order_sas = 1u << 8;  ///< sends behind sends, `FI_ORDER_SAS`
}  // namespace ofi_flag

/// How an endpoint of a provider is woken.
enum class ofi_wait : std::uint8_t {
    none,        ///< it has to be polled
    descriptor,  ///< completions make a file descriptor readable
};

/// Whether a provider makes progress by itself.
enum class ofi_progress : std::uint8_t { manual, automatic };

/// Which side moves the data of a get or put.
enum class ofi_one_sided : std::uint8_t {
    direct,  ///< the side that asks reads and writes the other's memory
    served,  ///< the side that owns the memory checks the request, and writes or reads the other's
};

/// Which object must be closed to end a peer's put that is under way. (Not the registration of the memory: some providers keep it,
/// as verbs does, others check it only when a put begins.)
enum class ofi_access : std::uint8_t {
    connection,  ///< the provider's to that peer, as ofi_rxm has one: without it sends are answered as busy
    endpoint,    ///< this side's endpoint
};

/// Properties of a libfabric provider. A domain opens only where `fi_getinfo` confirms all of them; where the two
/// disagree the error names the field. Bounds are lower bounds that the transport relies on.
struct ofi_profile {
    std::string_view scheme;    ///< of addresses: "ofi+tcp"
    std::string_view provider;  ///< as libfabric names it: "tcp;ofi_rxm". Empty: chosen when the domain opens
    std::string_view description;  ///< for people

    std::uint64_t mr_mode = ofi_flag::none;             ///< offered, and must be in the answer
    std::uint64_t mr_optional = ofi_flag::none;         ///< also offered, and may be in the answer
    std::uint64_t message_order = ofi_flag::order_sas;  ///< which operations the provider keeps in order
    std::size_t inject_bytes = 64;                      ///< messages that leave without a completion
    std::uint64_t longest_message = 0xffff'ffff;        ///< and longest get or put
    std::size_t message_pieces = 1;                     ///< that a send gathers
    std::size_t rma_pieces = 1;                         ///< that a get or put names on the other side
    std::size_t key_bytes = 8;                          ///< of a remote key
    std::size_t remote_data_bytes = 0;                  ///< that a completion at the other side carries
    std::size_t get_alignment = 1;                      ///< of both addresses and the length of a get
    /// Whether transfers move without a call of this process.
    ofi_progress data_progress = ofi_progress::manual;
    ofi_wait wait = ofi_wait::none;                   ///< how a scheduler can sleep on its completion queue
    ofi_one_sided one_sided = ofi_one_sided::direct;  ///< how get and put are made
    /// The end of which object keeps peers from memory that was exposed to them.
    ofi_access access_ends_with = ofi_access::endpoint;
    bool delivery_complete = true;  ///< a put's completion can mean that the data is there
    bool offloaded = false;         ///< gets and puts need no processor of the other side
    bool atomics = false;           ///< fetch-and-add, compare-and-swap of 8 bytes
    bool counters = true;           ///< it counts its endpoints' operations, where asked to
    bool same_host = false;         ///< both ends are on one host
    /// It goes on where a former endpoint of a peer's address stopped: a new endpoint with that address cannot be reached, and is refused.
    bool remembers_peers = false;
    /// It maps a peer's memory when it takes the address: a new endpoint with that address needs another entry, once the links to the former one
    /// have ended.
    bool maps_peers = false;
    bool tells_address_by_ip = false;  ///< endpoints have IP addresses, and are found by one

    /// Messages that find no receive wait in memory that grows; where they do not, each credit needs a receive.
    bool keeps_unexpected = false;
    bool sends_may_wait =
        false;  ///< a message that is not injected may stay with its sender until it is matched
    /// Version of libfabric, as `FI_VERSION` makes it, from which the provider's matching can be relied on.
    std::uint32_t matches_from = 0;
    static constexpr std::uint32_t matches_never = 0xffff'ffff;  ///< its tag matching is not used
    /// Version, likewise, from which an endpoint may be closed while a get is under way. An earlier one's is left as it is: see
    /// `ofi_counts::abandoned`.
    std::uint32_t closes_amid_gets_from = 0;
    /// Whether the completion queue is read out before its endpoint is closed: ofi_rxm over verbs gives the buffer of a message that was
    /// not read back to a connection that it has closed, and crashes (libfabric issue 11828).
    bool reads_before_close = false;

    std::size_t slot_bytes = 8192;  ///< of the messages received in one piece, unless options say otherwise
    std::size_t eager_bytes = 0;    ///< payload up to which one message is best; 0: the payload of a slot
    /// Payload from which a get or put is better than pieces in slots: for tcp, shm and udp from bench/README.md, else a guess.
    std::size_t rendezvous_bytes = 16384;
    std::size_t get_bytes = static_cast<std::size_t>(-1);  ///< payload up to which a get is better than a put
};

/// The providers that the transport knows.
namespace provider {

/// Cray XE, XK and XC: Gemini and Aries by uGNI. In libfabric up to 1.20. The limits of the protocol list are those of
/// FastMPJ's ugnidev; the provider decides where the hardware changes from FMA to BTE.
inline constexpr ofi_profile gni{.scheme = "ugni",
                                 .provider = "gni",
                                 .description = "Cray Gemini and Aries, by libfabric's gni",
                                 .mr_mode =
                                     ofi_flag::mr_virt_addr | ofi_flag::mr_allocated | ofi_flag::mr_prov_key,
                                 .mr_optional = ofi_flag::mr_local,
                                 .message_pieces = 8,
                                 .remote_data_bytes = 8,
                                 .get_alignment = 4,
                                 .offloaded = true,
                                 .atomics = true,
                                 .slot_bytes = 16384 + 64,
                                 .eager_bytes = 16384,
                                 .rendezvous_bytes = 0,
                                 .get_bytes = 65536};

/// HPE Slingshot. In libfabric from 1.21 on.
inline constexpr ofi_profile cxi{.scheme = "ofi+cxi",
                                 .provider = "cxi",
                                 .description = "HPE Slingshot, by libfabric's cxi",
                                 .mr_mode = ofi_flag::mr_endpoint | ofi_flag::mr_prov_key,
                                 .mr_optional = ofi_flag::mr_allocated,
                                 .inject_bytes = 192,
                                 .remote_data_bytes = 8,
                                 .wait = ofi_wait::descriptor,
                                 .offloaded = true,
                                 .atomics = true,
                                 .rendezvous_bytes = 0};

/// The Elastic Fabric Adapter of Amazon's cloud. Gets and puts need the other side's processor on some instance types, so
/// the profile does not rely on offload.
inline constexpr ofi_profile efa{.scheme = "ofi+efa",
                                 .provider = "efa",
                                 .description = "Amazon's Elastic Fabric Adapter, by libfabric's efa",
                                 .mr_mode =
                                     ofi_flag::mr_virt_addr | ofi_flag::mr_allocated | ofi_flag::mr_prov_key,
                                 .mr_optional = ofi_flag::mr_local,
                                 .inject_bytes = 0,
                                 .key_bytes = 4,
                                 .remote_data_bytes = 4};

/// InfiniBand and RoCE, with libfabric's reliable datagrams over connected queue pairs. ofi_rxm sizes its completion queue for 256 peers,
/// times what it posts for each: where the device's queues are shorter, set FI_OFI_RXM_MSG_TX_SIZE, FI_OFI_RXM_MSG_RX_SIZE or
/// FI_UNIVERSE_SIZE lower before the first domain opens. libfabric keeps registrations unless FI_MR_CACHE_MAX_COUNT is 0: a key works on
/// after its region's end.
inline constexpr ofi_profile verbs{.scheme = "ofi+verbs",
                                   .provider = "verbs;ofi_rxm",
                                   .description = "InfiniBand and RoCE, by libfabric's verbs",
                                   .mr_mode = ofi_flag::mr_virt_addr | ofi_flag::mr_allocated |
                                              ofi_flag::mr_prov_key,
                                   .mr_optional = ofi_flag::mr_local,
                                   .message_order = ofi_flag::order_sas | ofi_flag::order_saw,
                                   .longest_message = std::uint64_t{1} << 20,
                                   .key_bytes = 4,
                                   .remote_data_bytes = 4,
                                   .wait = ofi_wait::descriptor,
                                   .access_ends_with = ofi_access::connection,
                                   .offloaded = true,
                                   .tells_address_by_ip = true,
                                   .keeps_unexpected = true,
                                   .reads_before_close = true,
                                   .rendezvous_bytes = 0};

/// Any network that speaks TCP. Before libfabric 1.18 the provider frees a get twice if the get's data is arriving when
/// its endpoint is closed.
inline constexpr ofi_profile tcp{.scheme = "ofi+tcp",
                                 .provider = "tcp;ofi_rxm",
                                 .description = "TCP sockets, by libfabric's tcp",
                                 .message_order = ofi_flag::order_sas | ofi_flag::order_saw,
                                 .message_pieces = 4,
                                 .remote_data_bytes = 8,
                                 .wait = ofi_wait::descriptor,
                                 .access_ends_with = ofi_access::connection,
                                 .tells_address_by_ip = true,
                                 .keeps_unexpected = true,
                                 .closes_amid_gets_from = 1u << 16 | 18,
                                 .rendezvous_bytes = 20480};

/// Two processes of one host. The provider does not report which peer's get or put was refused, so the side that owns
/// the memory serves them. Before libfabric 1.19 it matches early messages with masks of other receives.
inline constexpr ofi_profile shm{.scheme = "ofi+shm",
                                 .provider = "shm",
                                 .description = "shared memory, by libfabric's shm",
                                 .inject_bytes = 4096,
                                 .message_pieces = 4,
                                 .remote_data_bytes = 8,
                                 .one_sided = ofi_one_sided::served,
                                 .atomics = false,
                                 .same_host = true,
                                 .maps_peers = true,
                                 .keeps_unexpected = true,
                                 .sends_may_wait = true,
                                 .matches_from = 1u << 16 | 19,
                                 .rendezvous_bytes = 0};

/// TCP sockets, by the provider that others are developed against; not for speed. Takes few messages that match no receive.
inline constexpr ofi_profile sockets{.scheme = "ofi+sockets",
                                     .provider = "sockets",
                                     .description = "TCP sockets, by libfabric's sockets",
                                     .message_order = ofi_flag::order_sas | ofi_flag::order_saw,
                                     .message_pieces = 8,
                                     .remote_data_bytes = 8,
                                     .data_progress = ofi_progress::automatic,
                                     .wait = ofi_wait::descriptor,
                                     .tells_address_by_ip = true,
                                     .keeps_unexpected = true,
                                     .matches_from = ofi_profile::matches_never,
                                     .rendezvous_bytes = 196608};

/// UDP datagrams, made reliable by libfabric. For tests: a new endpoint that gets the UDP port of a former peer is refused by those that
/// knew it.
inline constexpr ofi_profile udp{.scheme = "ofi+udp",
                                 .provider = "udp;ofi_rxd",
                                 .description = "UDP sockets, by libfabric's udp",
                                 .message_pieces = 4,
                                 .remote_data_bytes = 8,
                                 .remembers_peers = true,
                                 .tells_address_by_ip = true,
                                 .rendezvous_bytes = 196608};

/// Whichever of these is named when the domain opens.
inline constexpr ofi_profile any{
    .scheme = "ofi", .provider = "", .description = "any of libfabric's providers"};

/// All but `any`, for texts and for `any` to choose from.
inline constexpr const ofi_profile* all[] = {&gni, &cxi, &efa, &verbs, &tcp, &shm, &sockets, &udp};

/// The profile of a provider by libfabric's name for it, or by the part of its scheme behind "ofi+": "tcp;ofi_rxm", "tcp".
/// Nullptr: there is none.
[[nodiscard]] constexpr const ofi_profile* find(std::string_view name) noexcept {
    constexpr std::string_view prefix = "ofi+";
    for (const ofi_profile* one : all) {
        if (name == one->provider || name == one->scheme) return one;
        if (one->scheme.substr(0, prefix.size()) == prefix && name == one->scheme.substr(prefix.size()))
            return one;
    }
    return nullptr;
}

}  // namespace provider
}  // namespace rdmacoro
