// Opening a provider: fabric, domain, address vector, completion queue, and the one endpoint that all links share.
#pragma once

#include <rdmacoro/transport/ofi/agreement.hpp>
#include <rdmacoro/transport/ofi/counters.hpp>
#include <rdmacoro/transport/ofi/judge.hpp>
#include <rdmacoro/transport/ofi/options.hpp>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <rdma/fi_atomic.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_rma.h>

namespace rdmacoro::detail::fabric {

static_assert(address_format::sockaddr_in == FI_SOCKADDR_IN &&
              address_format::sockaddr_in6 == FI_SOCKADDR_IN6 && address_format::text == FI_ADDR_STR);

/// Closes an object of libfabric.
struct close_fid {
    template <class Fid>
    void operator()(Fid* object) const noexcept {
        static_cast<void>(::fi_close(&object->fid));
    }
};
using unique_fabric = std::unique_ptr<fid_fabric, close_fid>;
using unique_domain = std::unique_ptr<fid_domain, close_fid>;
using unique_addresses = std::unique_ptr<fid_av, close_fid>;
using unique_queue = std::unique_ptr<fid_cq, close_fid>;
using unique_endpoint = std::unique_ptr<fid_ep, close_fid>;
using unique_registration = std::unique_ptr<fid_mr, close_fid>;

/// A number that only processes of this host, since it was started, have.
[[nodiscard]] inline std::uint64_t host_number() noexcept {
    std::uint64_t hash = 1469598103934665603u;
    if (std::FILE* file = std::fopen("/proc/sys/kernel/random/boot_id", "re")) {
        for (int c = std::fgetc(file); c != EOF; c = std::fgetc(file))
            hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211u;
        std::fclose(file);
    }
    return hash;
}

/// A provider opened for one domain.
class device {
public:
    /// Throws `errc::unsupported` when this libfabric has no such provider, with the names of those it has, or when the
    /// provider is not what its profile says.
    device(const ofi_profile& profile, const ofi_options& options)
        : profile_(choose(profile, options)), options_(options) {
        info_ = ask();
        const std::string wrong = disagreement(profile_, *info_);
        if (!wrong.empty()) throw error(errc::unsupported, std::string(profile_.provider) + ": " + wrong);
        check_delivery();
        if (const int failed = open_fabric(); failed != 0)
            throw_failure(name() + ": open fabric " + info_->fabric_attr->name, failed);
        fid_domain* domain = nullptr;
        if (const int failed = ::fi_domain(fabric_.get(), info_.get(), &domain, nullptr); failed != 0)
            throw_failure(name() + ": open domain " + info_->domain_attr->name, failed);
        domain_.reset(domain);
        if (options_.counters) open_counters();
        if (const auto [step, failed] = open_endpoint(); failed != 0)
            throw_failure(name() + ": " + step + (node().empty() ? "" : " at node " + node()), failed);
        check_atomics();
    }
    ~device() {
        if (!abandoned_) return;
        close_endpoint();
        static_cast<void>(domain_.release());
        static_cast<void>(fabric_.release());
    }
    device(const device&) = delete;
    device& operator=(const device&) = delete;

    [[nodiscard]] const ofi_profile& profile() const noexcept { return profile_; }
    /// The profile's scheme, for texts.
    [[nodiscard]] std::string name() const { return std::string(profile_.scheme); }
    [[nodiscard]] const fi_info& info() const noexcept { return *info_; }
    [[nodiscard]] fid_domain* domain() const noexcept { return domain_.get(); }
    [[nodiscard]] fid_ep* endpoint() const noexcept { return endpoint_.get(); }
    [[nodiscard]] fid_cq* queue() const noexcept { return queue_.get(); }

    [[nodiscard]] bool asks(std::uint64_t mr_flag) const noexcept {
        return (static_cast<unsigned>(info_->domain_attr->mr_mode) & mr_flag) != 0;
    }
    [[nodiscard]] bool atomics() const noexcept { return atomics_; }
    [[nodiscard]] bool orders_send_after_write() const noexcept {
        return (info_->tx_attr->msg_order & info_->rx_attr->msg_order & FI_ORDER_SAW) != 0 &&
               profile_.one_sided == ofi_one_sided::direct;
    }
    /// Receives that may be posted at a time.
    [[nodiscard]] std::size_t most_receives() const noexcept {
        return std::max<std::size_t>(info_->rx_attr->size, 2) - 1;
    }
    [[nodiscard]] std::size_t inject_limit() const noexcept {
        return std::min(info_->tx_attr->inject_size, options_.inject_bytes);
    }
    [[nodiscard]] std::uint64_t longest() const noexcept {
        constexpr std::uint64_t enough = std::uint64_t{1} << 30;
        return std::min<std::uint64_t>(info_->ep_attr->max_msg_size, enough) & ~std::uint64_t{63};
    }

    /// Closed where nobody asked for them.
    [[nodiscard]] const provider_counters& counters() const noexcept { return counters_; }

    // ---- sleeping until something completes

    /// -1: it has to be polled.
    [[nodiscard]] int wait_fd() const noexcept { return wait_fd_; }
    /// Whether `wait_fd` becomes readable when something completes that did not yet.
    [[nodiscard]] bool may_wait() const noexcept { return may_wait(*queue_); }
    /// The same of another queue of the domain.
    [[nodiscard]] bool may_wait(fid_cq& queue) const noexcept {
        fid* waits = &queue.fid;
        return wait_fd_ >= 0 && ::fi_trywait(fabric_.get(), &waits, 1) == FI_SUCCESS;
    }

    // ---- addresses

    /// The endpoint's own, as it is told to peers.
    [[nodiscard]] const std::vector<std::byte>& own_address() const noexcept { return own_address_; }
    [[nodiscard]] std::uint32_t address_format() const noexcept { return info_->addr_format; }
    /// For people: "fi_sockaddr_in://10.0.0.1:7471".
    [[nodiscard]] std::string address_text(const void* address) const {
        std::size_t bytes = 0;
        static_cast<void>(::fi_av_straddr(addresses_.get(), address, nullptr, &bytes));
        std::string text(bytes + 1, '\0');
        bytes = text.size();
        if (::fi_av_straddr(addresses_.get(), address, text.data(), &bytes) == nullptr) return "?";
        return text.c_str();
    }
    [[nodiscard]] std::string own_address_text() const { return address_text(own_address_.data()); }

    /// What cards are measured by, but for what the domain decides.
    [[nodiscard]] card_measure measure() const noexcept {
        return {.provider = profile_.provider,
                .slot_bytes = profile_.slot_bytes,
                .same_host = profile_.same_host,
                .address_format = address_format(),
                .own_address_bytes = own_address_.size()};
    }

    /// Makes the peer known to the provider. False: that is no address. Several links may have one peer; the provider knows
    /// it once, and still for a while when the last has gone, for it may come again.
    [[nodiscard]] bool insert(const std::byte* address, std::size_t bytes, fi_addr_t& number) noexcept {
        try {
            for (peer& known : peers_) {
                if (known.address.size() != bytes || std::memcmp(known.address.data(), address, bytes) != 0)
                    continue;
                ++known.users;
                number = known.number;
                return true;
            }
            forget_one();
            peers_.push_back({std::vector<std::byte>(address, address + bytes), FI_ADDR_UNSPEC, 1});
        } catch (const std::bad_alloc&) {
            return false;
        }
        peer& made = peers_.back();
        if (::fi_av_insert(addresses_.get(), made.address.data(), 1, &made.number, 0, nullptr) != 1 ||
            made.number == FI_ADDR_NOTAVAIL) {
            peers_.pop_back();
            return false;
        }
        number = made.number;
        return true;
    }
    void release(fi_addr_t number) noexcept {
        for (peer& known : peers_) {
            if (known.number == number && known.users != 0) {
                --known.users;
                return;
            }
        }
    }
    [[nodiscard]] std::size_t peers() const noexcept { return peers_.size(); }

    // ---- giving the endpoint up

    /// Whether to `close_endpoint` while a get is under way: the provider survives it, or has a thread that would go on with
    /// one that is left alone.
    [[nodiscard]] bool closes_amid_gets() const noexcept {
        const char* const thread = std::getenv("FI_OFI_RXM_DATA_AUTO_PROGRESS");
        return ::fi_version() >= profile_.closes_amid_gets_from ||
               info_->domain_attr->data_progress != FI_PROGRESS_MANUAL ||
               (thread != nullptr &&
                std::string_view("0 no false off").find(thread) == std::string_view::npos);
    }
    /// Nothing that was posted touches memory any more, and no completion comes of it.
    void close_endpoint() noexcept {
        endpoint_.reset();
        queue_.reset();
        forget_endpoint();
    }
    /// The same by leaving the endpoint alone: a provider that does nothing by itself does nothing for a queue that nobody reads.
    /// What it has stays the process's; so does what it belongs to. 0, or libfabric's negative number, if the domain can't go on.
    [[nodiscard]] int abandon_endpoint() noexcept {
        const int failed = counters_.abandon(*domain_);
        static_cast<void>(endpoint_.release());
        static_cast<void>(queue_.release());
        static_cast<void>(addresses_.release());
        abandoned_ = true;
        forget_endpoint();
        return failed;
    }

    struct opened {
        const char* step;
        int failed;
    };
    /// Another endpoint, with another address.
    [[nodiscard]] opened open_endpoint() noexcept {
        fi_av_attr table{};
        table.type = FI_AV_TABLE;
        fid_av* addresses = nullptr;
        if (const int failed = ::fi_av_open(domain_.get(), &table, &addresses, nullptr); failed != 0)
            return {"open an address vector", failed};
        addresses_.reset(addresses);
        if (const opened how = open_queue(); how.failed != 0) return how;
        fid_ep* endpoint = nullptr;
        if (const int failed = ::fi_endpoint(domain_.get(), info_.get(), &endpoint, nullptr); failed != 0)
            return {"open an endpoint", failed};
        endpoint_.reset(endpoint);
        if (const int failed = ::fi_ep_bind(endpoint, &addresses->fid, 0); failed != 0)
            return {"bind the address vector", failed};
        if (const int failed = ::fi_ep_bind(endpoint, &queue_->fid, FI_TRANSMIT | FI_RECV); failed != 0)
            return {"bind the completion queue", failed};
        if (const int failed = counters_.bind(*endpoint); failed != 0)
            return {"counters: the description says it has them, the provider refuses to bind one", failed};
        if (const int failed = ::fi_enable(endpoint); failed != 0) return {"enable the endpoint", failed};
        own_address_.resize(card::most_address);
        std::size_t bytes = own_address_.size();
        if (const int failed = ::fi_getname(&endpoint->fid, own_address_.data(), &bytes); failed != 0)
            return {"ask for the endpoint's address", failed};
        own_address_.resize(bytes);
        return {"", 0};
    }

private:
    struct peer {
        std::vector<std::byte> address;
        fi_addr_t number = FI_ADDR_UNSPEC;
        std::size_t users = 0;
    };
    static constexpr std::size_t most_unused_peers = 256;

    static const ofi_profile& choose(const ofi_profile& profile, const ofi_options& options) {
        if (!profile.provider.empty()) return profile;
        std::string wanted = options.provider;
        if (const char* named = std::getenv("RDMACORO_OFI_PROVIDER"); wanted.empty() && named != nullptr)
            wanted = named;
        if (wanted.empty()) wanted = "tcp";
        const ofi_profile* found = provider::find(wanted);
        if (found != nullptr) return *found;
        std::string known;
        for (const ofi_profile* one : provider::all)
            known += (known.empty() ? "" : ", ") + std::string(one->provider);
        throw error(errc::unsupported, "ofi: provider \"" + wanted +
                                           "\" is none that this toolkit describes (" + known +
                                           "); libfabric has here: " + providers_text());
    }

    /// The address of this host that the endpoint is to have; empty: any.
    [[nodiscard]] std::string node() const {
        const char* const named = std::getenv("RDMACORO_OFI_NODE");
        if (!options_.node.empty() || named == nullptr || !profile_.tells_address_by_ip) return options_.node;
        return named;
    }

    [[nodiscard]] unique_info ask() const {
        const unique_info hints = hints_of(profile_);
        if (!options_.fabric.empty()) hints->fabric_attr->name = ::strdup(options_.fabric.c_str());
        if (!options_.domain.empty()) hints->domain_attr->name = ::strdup(options_.domain.c_str());
        const std::string node = this->node();
        fi_info* answer = nullptr;
        const int failed = ::fi_getinfo(spoken_version, node.empty() ? nullptr : node.c_str(), nullptr,
                                        node.empty() ? 0 : FI_SOURCE, hints.get(), &answer);
        unique_info found(answer);
        // Layered providers do not look at the names.
        const auto named = [](const char* is, const std::string& wanted) {
            return wanted.empty() || (is != nullptr && wanted == is);
        };
        for (const fi_info* one = found.get(); one != nullptr; one = one->next) {
            if (named(one->fabric_attr->name, options_.fabric) &&
                named(one->domain_attr->name, options_.domain))
                return unique_info(::fi_dupinfo(one));
        }
        if (found != nullptr) refuse_names(*found);
        std::string text =
            name() + ": libfabric has no provider \"" + std::string(profile_.provider) + "\" here";
        unique_info bare(::fi_allocinfo());
        if (bare != nullptr) {
            bare->fabric_attr->prov_name = ::strdup(std::string(profile_.provider).c_str());
            fi_info* some = nullptr;
            const int none = ::fi_getinfo(spoken_version, nullptr, nullptr, 0, bare.get(), &some);
            const unique_info any(some);
            if (none == 0) text = why_not(*hints, node);
        }
        text += "; it has: " + providers_text();
        if (failed != -FI_ENODATA) text += " (fi_getinfo: " + text_of(failed) + ")";
        throw error(errc::unsupported, text);
    }

    [[gnu::cold, noreturn]] void refuse_names(const fi_info& found) const {
        std::string text;
        for (const fi_info* one = &found; one != nullptr; one = one->next) {
            const std::string names =
                std::string("domain ") + one->domain_attr->name + " of fabric " + one->fabric_attr->name;
            if (text.find(names) == text.npos) text += (text.empty() ? "" : ", ") + names;
        }
        throw error(errc::unsupported,
                    name() + ": there is no" +
                        (options_.domain.empty() ? "" : " domain \"" + options_.domain + "\"") +
                        (options_.fabric.empty() ? "" : " of fabric \"" + options_.fabric + "\"") +
                        "; there is " + text);
    }

    /// The provider is there, but does not answer to all of the hints: which it is, is found by leaving out one at a time.
    [[nodiscard]] std::string why_not(const fi_info& hints, const std::string& node) const {
        const auto answers = [&](auto change, const std::string& from) {
            const unique_info tried(::fi_dupinfo(&hints));
            if (tried == nullptr) return false;
            change(*tried);
            fi_info* answer = nullptr;
            const int failed = ::fi_getinfo(spoken_version, from.empty() ? nullptr : from.c_str(), nullptr,
                                            from.empty() ? 0 : FI_SOURCE, tried.get(), &answer);
            const unique_info found(answer);
            return failed == 0;
        };
        const std::string who(profile_.provider);
        if (!node.empty() && answers([](fi_info&) {}, std::string()))
            return who + ": node \"" + node + "\" is no address of an interface that it uses";
        const auto without = [&](char*& text) { std::free(std::exchange(text, nullptr)); };
        if (!options_.domain.empty() && answers([&](fi_info& h) { without(h.domain_attr->name); }, node))
            return who + ": it has no domain \"" + options_.domain + "\"";
        if (!options_.fabric.empty() && answers([&](fi_info& h) { without(h.fabric_attr->name); }, node))
            return who + ": it has no fabric \"" + options_.fabric + "\"";
        if (answers([](fi_info& h) { h.domain_attr->mr_mode = 0xffc; }, node))
            return who + ": domain_attr.mr_mode: the description says " +
                   mr_mode_text(profile_.mr_mode | profile_.mr_optional) + ", the provider asks for more";
        if (answers([](fi_info& h) { h.tx_attr->msg_order = h.rx_attr->msg_order = 0; }, node))
            return who + ": msg_order: the description says " +
                   flags_text(profile_.message_order, FI_TYPE_MSG_ORDER) + ", the provider offers less";
        if (answers([](fi_info& h) { h.caps = FI_MSG; }, node))
            return who + ": caps: the description says " + flags_text(hints.caps, FI_TYPE_CAPS) +
                   ", the provider offers less";
        if (answers([](fi_info& h) { h.domain_attr->threading = FI_THREAD_UNSPEC; }, node))
            return who + ": domain_attr.threading: the description says one thread for each domain, the "
                         "provider does "
                         "not";
        return who + ": it does not do what the description says";
    }

    void check_delivery() const {
        if (!profile_.delivery_complete) return;
        const unique_info hints = hints_of(profile_);
        hints->tx_attr->op_flags = FI_DELIVERY_COMPLETE;
        fi_info* answer = nullptr;
        const int failed = ::fi_getinfo(spoken_version, nullptr, nullptr, 0, hints.get(), &answer);
        const unique_info found(answer);
        if (failed != 0)
            throw error(errc::unsupported,
                        std::string(profile_.provider) +
                            ": tx_attr.op_flags: the description says FI_DELIVERY_COMPLETE, the "
                            "provider does not offer it");
    }

    void check_atomics() {
        if (!profile_.atomics) return;
        std::size_t adds = 0;
        std::size_t swaps = 0;
        atomics_ = ::fi_fetch_atomicvalid(endpoint_.get(), FI_UINT64, FI_SUM, &adds) == 0 && adds != 0 &&
                   ::fi_compare_atomicvalid(endpoint_.get(), FI_UINT64, FI_CSWAP, &swaps) == 0 && swaps != 0;
        if (!atomics_)
            throw error(errc::unsupported,
                        std::string(profile_.provider) +
                            ": atomics: the description says FI_SUM and FI_CSWAP of 64 bits, the "
                            "provider does not offer them");
    }

    void open_counters() {
        if (!profile_.counters)
            throw error(errc::unsupported, std::string(profile_.provider) +
                                               ": counters: options ask for them, the description says that "
                                               "the provider has none");
        if (const int failed = counters_.open(*domain_); failed != 0)
            throw_failure(
                std::string(profile_.provider) +
                    ": counters: the description says it has them, the provider refuses to open one",
                failed);
    }

    [[nodiscard]] int open_fabric() noexcept {
        fid_fabric* fabric = nullptr;
        const int failed = ::fi_fabric(info_->fabric_attr, &fabric, nullptr);
        fabric_.reset(fabric);
        return failed;
    }

    [[nodiscard]] opened open_queue() noexcept {
        const bool parks = profile_.wait == ofi_wait::descriptor && options_.may_park;
        fi_cq_attr wanted{};
        wanted.size = info_->rx_attr->size + info_->tx_attr->size;
        wanted.format = FI_CQ_FORMAT_MSG;
        wanted.wait_obj = parks ? FI_WAIT_FD : FI_WAIT_NONE;
        fid_cq* queue = nullptr;
        if (const int failed = ::fi_cq_open(domain_.get(), &wanted, &queue, nullptr); failed != 0)
            return {parks ? "wait object: the description says a file descriptor, the provider refuses"
                          : "open a completion queue",
                    failed};
        queue_.reset(queue);
        wait_fd_ = -1;
        if (!parks) return {"", 0};
        if (const int failed = ::fi_control(&queue->fid, FI_GETWAIT, &wait_fd_); failed != 0)
            return {"wait object: the description says a file descriptor, the provider has none", failed};
        return {"", 0};
    }

    /// Room for one more peer: one without a link makes it.
    void forget_one() {
        const auto unused = [](const peer& p) { return p.users == 0; };
        if (std::count_if(peers_.begin(), peers_.end(), unused) <
            static_cast<std::ptrdiff_t>(most_unused_peers))
            return;
        const auto oldest = std::find_if(peers_.begin(), peers_.end(), unused);
        static_cast<void>(::fi_av_remove(addresses_.get(), &oldest->number, 1, 0));
        peers_.erase(oldest);
    }

    void forget_endpoint() noexcept {
        addresses_.reset();
        peers_.clear();
        wait_fd_ = -1;
    }

    const ofi_profile& profile_;
    const ofi_options& options_;
    unique_info info_;
    unique_fabric fabric_;
    unique_domain domain_;
    provider_counters counters_;
    unique_addresses addresses_;
    unique_queue queue_;
    unique_endpoint endpoint_;  // goes first
    std::vector<peer> peers_;
    std::vector<std::byte> own_address_;
    int wait_fd_ = -1;
    bool atomics_ = false;
    bool abandoned_ = false;  // an endpoint is still open
};

}  // namespace rdmacoro::detail::fabric
