// Bodies of device.hpp.
#pragma once

#include <rdmacoro/transport/ofi/device.hpp>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <new>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include <rdma/fi_atomic.h>
#include <rdma/fi_cm.h>
#include <sys/random.h>

namespace rdmacoro::detail::fabric {

RDMACORO_DECL std::uint64_t host_number() noexcept {
    std::uint64_t hash = 1469598103934665603u;
    if (std::FILE* file = std::fopen("/proc/sys/kernel/random/boot_id", "re")) {
        for (int c = std::fgetc(file); c != EOF; c = std::fgetc(file))
            hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211u;
        std::fclose(file);
    }
    return hash;
}

RDMACORO_DECL device::device(const ofi_profile& profile, const ofi_options& options)
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
    if (const auto [step, failed] = open_endpoint(); failed != 0) {
        const std::string what = name() + ": " + step + (node().empty() ? "" : " at node " + node());
        if (failed == -FI_EBUSY && profile_.maps_peers && endpoint_ != nullptr) refuse_left_memory(what);
        throw_failure(what, failed);
    }
    check_atomics();
}

/// shm names its memory by the process's number: a killed process leaves it behind, and one that gets the number finds it.
RDMACORO_COLD void device::refuse_left_memory(const std::string& what) const {
    std::array<char, connect_info::most_address + 1> own{};
    std::size_t bytes = connect_info::most_address;
    static_cast<void>(::fi_getname(&endpoint_->fid, own.data(), &bytes));
    std::string_view file = own.data();
    if (const auto scheme = file.find("://"); scheme != file.npos) file.remove_prefix(scheme + 3);
    throw error(std::error_code(EBUSY, std::system_category()),
                what + ": a process with this one's number was killed and has left the file /dev/shm/" +
                    std::string(file) + "; remove it, or open the domain once more");
}

RDMACORO_DECL device::~device() {
    if (!abandoned_) return;
    close_endpoint();
    static_cast<void>(domain_.release());
    static_cast<void>(fabric_.release());
}

RDMACORO_DECL bool device::orders_send_after_write() const noexcept {
    return (info_->tx_attr->msg_order & info_->rx_attr->msg_order & FI_ORDER_SAW) != 0 &&
           profile_.one_sided == ofi_one_sided::direct;
}

RDMACORO_DECL std::uint64_t device::longest() const noexcept {
    constexpr std::uint64_t enough = std::uint64_t{8}
                                     << 20;  // for any speed, and over soon when it is given up
    return std::min<std::uint64_t>(info_->ep_attr->max_msg_size, enough) & ~std::uint64_t{63};
}

RDMACORO_DECL std::string device::address_text(const void* address) const {
    std::size_t bytes = 0;
    static_cast<void>(::fi_av_straddr(addresses_.get(), address, nullptr, &bytes));
    std::string text(bytes + 1, '\0');
    bytes = text.size();
    if (::fi_av_straddr(addresses_.get(), address, text.data(), &bytes) == nullptr) return "?";
    return text.c_str();
}

RDMACORO_DECL connect_limits device::measure() const noexcept {
    return {.provider = profile_.provider,
            .slot_bytes = profile_.slot_bytes,
            .same_host = profile_.same_host,
            .address_format = address_format(),
            .own_address_bytes = own_address_.size()};
}

RDMACORO_DECL verdict device::insert(const std::byte* address, std::size_t bytes, std::uint32_t nonce,
                                     fi_addr_t& number) noexcept {
    try {
        const auto known = std::find_if(peers_.begin(), peers_.end(), [&](const peer& p) {
            return p.address.size() == bytes && std::memcmp(p.address.data(), address, bytes) == 0;
        });
        if (known != peers_.end()) {
            const bool other = known->nonce != nonce;
            if (other && (profile_.remembers_peers || (profile_.maps_peers && known->users != 0)))
                return verdict::reused_address;
            if (!other || !profile_.maps_peers) {
                known->nonce = nonce;
                ++known->users;
                number = known->number;
                return verdict::welcome;
            }
            forget(known);
        }
        if (!forget_one()) return verdict::no_room;
        peers_.push_back({std::vector<std::byte>(address, address + bytes), nonce, FI_ADDR_UNSPEC, 1});
    } catch (const std::bad_alloc&) {
        return verdict::no_room;
    }
    const auto take = [this](peer& p) noexcept {
        return ::fi_av_insert(addresses_.get(), p.address.data(), 1, &p.number, 0, nullptr) == 1 &&
               p.number != FI_ADDR_NOTAVAIL;
    };
    if (!take(peers_.back())) {
        const bool full = peers_.size() > least_table;
        if (!full || !forget_oldest() || !take(peers_.back())) {
            peers_.pop_back();
            return full ? verdict::no_room : verdict::bad_address;
        }
    }
    number = peers_.back().number;
    return verdict::welcome;
}

RDMACORO_DECL void device::release(fi_addr_t number) noexcept {
    for (peer& known : peers_) {
        if (known.number == number && known.users != 0) {
            --known.users;
            return;
        }
    }
}

RDMACORO_DECL bool device::closes_amid_gets() const noexcept {
    const char* const thread = std::getenv("FI_OFI_RXM_DATA_AUTO_PROGRESS");
    return ::fi_version() >= profile_.closes_amid_gets_from ||
           info_->domain_attr->data_progress != FI_PROGRESS_MANUAL ||
           (thread != nullptr && std::string_view("0 no false off").find(thread) == std::string_view::npos);
}

RDMACORO_DECL void device::close_endpoint() noexcept {
    endpoint_.reset();
    queue_.reset();
    forget_endpoint();
}

RDMACORO_DECL int device::abandon_endpoint() noexcept {
    const int failed = counters_.abandon(*domain_);
    static_cast<void>(endpoint_.release());
    static_cast<void>(queue_.release());
    static_cast<void>(addresses_.release());
    abandoned_ = true;
    forget_endpoint();
    return failed;
}

RDMACORO_DECL device::opened device::open_endpoint() noexcept {
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
    if (const int failed = ::fi_enable(endpoint); failed != 0) {
        const std::string_view provider = info_->fabric_attr->prov_name;
        return {provider == "verbs;ofi_rxm"
                    ? "enable the endpoint (if the device's completion queues are short, as in software, set "
                      "FI_UNIVERSE_SIZE to the number of peers)"
                    : "enable the endpoint",
                failed};
    }
    own_address_.resize(connect_info::most_address);
    std::size_t bytes = own_address_.size();
    if (const int failed = ::fi_getname(&endpoint->fid, own_address_.data(), &bytes); failed != 0)
        return {"ask for the endpoint's address", failed};
    own_address_.resize(bytes);
    if (::getrandom(&nonce_, sizeof nonce_, 0) != static_cast<ssize_t>(sizeof nonce_))
        return {"draw a random number", -errno};
    return {"", 0};
}

RDMACORO_DECL const ofi_profile& device::choose(const ofi_profile& profile, const ofi_options& options) {
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
    throw error(errc::unsupported, "ofi: provider \"" + wanted + "\" is none that this toolkit describes (" +
                                       known + "); libfabric has here: " + providers_text());
}

RDMACORO_DECL std::string device::node() const {
    const char* const named = std::getenv("RDMACORO_OFI_NODE");
    if (!options_.node.empty() || named == nullptr || !profile_.tells_address_by_ip) return options_.node;
    return named;
}

RDMACORO_DECL unique_info device::ask() const {
    const unique_info hints = hints_of(profile_);
    hints->rx_attr->size = options_.receives;
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
        if (named(one->fabric_attr->name, options_.fabric) && named(one->domain_attr->name, options_.domain))
            return unique_info(::fi_dupinfo(one));
    }
    if (found != nullptr) refuse_names(*found);
    std::string text = name() + ": libfabric has no provider \"" + std::string(profile_.provider) + "\" here";
    unique_info bare(::fi_allocinfo());
    if (bare != nullptr) {
        bare->fabric_attr->prov_name = ::strdup(std::string(profile_.provider).c_str());
        bare->domain_attr->mr_mode = 0xffc;  // some answer only where what they require is offered
        fi_info* some = nullptr;
        const int none = ::fi_getinfo(spoken_version, nullptr, nullptr, 0, bare.get(), &some);
        const unique_info any(some);
        if (none == 0) text = why_not(*hints, node);
    }
    text += "; it has: " + providers_text();
    if (failed != -FI_ENODATA) text += " (fi_getinfo: " + text_of(failed) + ")";
    throw error(errc::unsupported, text);
}

RDMACORO_COLD unique_info device::ask_tagged() const {
    const unique_info hints = hints_of(profile_);
    hints->caps = FI_TAGGED;
    hints->addr_format = info_->addr_format;
    hints->fabric_attr->name = ::strdup(info_->fabric_attr->name);
    hints->domain_attr->name = ::strdup(info_->domain_attr->name);
    hints->tx_attr->msg_order = hints->rx_attr->msg_order = FI_ORDER_SAS;
    if (info_->src_addr != nullptr && profile_.tells_address_by_ip) {
        hints->src_addr = std::malloc(info_->src_addrlen);
        if (hints->src_addr == nullptr) return nullptr;
        std::memcpy(hints->src_addr, info_->src_addr, info_->src_addrlen);
        hints->src_addrlen = info_->src_addrlen;
    }
    fi_info* answer = nullptr;
    static_cast<void>(::fi_getinfo(spoken_version, nullptr, nullptr, 0, hints.get(), &answer));
    return unique_info(answer);
}

RDMACORO_COLD fi_info* device::tagged_info() noexcept {
    if (tagged_info_ == nullptr && ::fi_version() >= profile_.matches_from) {
        try {
            tagged_info_ = ask_tagged();
        } catch (const std::exception&) {
            return nullptr;
        }
    }
    return tagged_info_.get();
}

RDMACORO_COLD std::string device::why_no_matching() {
    if (tagged_info() != nullptr) return {};
    const std::string own = std::string(profile_.provider) + ": ";
    if (profile_.matches_from == ofi_profile::matches_never) return own + "its matching is not used";
    if (::fi_version() >= profile_.matches_from) return own + "it matches no messages (FI_TAGGED)";
    const auto version = [](std::uint32_t v) {
        return std::to_string(FI_MAJOR(v)) + '.' + std::to_string(FI_MINOR(v));
    };
    return own + "its matching is used from libfabric " + version(profile_.matches_from) +
           " on, and this is " + version(::fi_version());
}

RDMACORO_DECL void device::refuse_names(const fi_info& found) const {
    std::string text;
    for (const fi_info* one = &found; one != nullptr; one = one->next) {
        const std::string names =
            std::string("domain ") + one->domain_attr->name + " of fabric " + one->fabric_attr->name;
        if (text.find(names) == text.npos) text += (text.empty() ? "" : ", ") + names;
    }
    std::string wanted;
    if (!options_.domain.empty()) wanted += "domain \"" + options_.domain + '"';
    if (!options_.fabric.empty())
        wanted += (wanted.empty() ? "fabric \"" : " of fabric \"") + options_.fabric + '"';
    throw error(errc::unsupported, name() + ": there is no " + wanted + "; there is " + text);
}

RDMACORO_DECL std::string device::why_not(const fi_info& hints, const std::string& node) const {
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
    const std::string prefix(profile_.provider);
    if (options_.receives != 0 && answers([](fi_info& h) { h.rx_attr->size = 0; }, node))
        return prefix + ": rx_attr.size: options ask for " + std::to_string(options_.receives) +
               " receives, the provider takes fewer";
    if (!node.empty() && answers([](fi_info&) {}, std::string()))
        return prefix + ": node \"" + node + "\" is no address of an interface that it uses";
    const auto without = [&](char*& text) { std::free(std::exchange(text, nullptr)); };
    if (!options_.domain.empty() && answers([&](fi_info& h) { without(h.domain_attr->name); }, node))
        return prefix + ": it has no domain \"" + options_.domain + "\"";
    if (!options_.fabric.empty() && answers([&](fi_info& h) { without(h.fabric_attr->name); }, node))
        return prefix + ": it has no fabric \"" + options_.fabric + "\"";
    if (answers([](fi_info& h) { h.domain_attr->mr_mode = 0xffc; }, node))
        return prefix + ": domain_attr.mr_mode: the description says " +
               mr_mode_text(profile_.mr_mode | profile_.mr_optional) + ", the provider asks for more";
    if (answers([](fi_info& h) { h.tx_attr->msg_order = h.rx_attr->msg_order = 0; }, node))
        return prefix + ": msg_order: the description says " +
               flags_text(profile_.message_order, FI_TYPE_MSG_ORDER) + ", the provider offers less";
    if (answers([](fi_info& h) { h.caps = FI_MSG; }, node))
        return prefix + ": caps: the description says " + flags_text(hints.caps, FI_TYPE_CAPS) +
               ", the provider offers less";
    if (answers([](fi_info& h) { h.domain_attr->threading = FI_THREAD_UNSPEC; }, node))
        return prefix + ": domain_attr.threading: the description says one thread for each domain, the "
                        "provider does "
                        "not";
    return prefix + ": it does not do what the description says";
}

RDMACORO_DECL void device::check_delivery() const {
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

RDMACORO_DECL void device::check_atomics() {
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

RDMACORO_DECL void device::open_counters() {
    if (!profile_.counters)
        throw error(errc::unsupported, std::string(profile_.provider) +
                                           ": counters: options ask for them, the description says that "
                                           "the provider has none");
    if (const int failed = counters_.open(*domain_); failed != 0)
        throw_failure(std::string(profile_.provider) +
                          ": counters: the description says it has them, the provider refuses to open one",
                      failed);
}

RDMACORO_DECL int device::open_fabric() noexcept {
    fid_fabric* fabric = nullptr;
    const int failed = ::fi_fabric(info_->fabric_attr, &fabric, nullptr);
    fabric_.reset(fabric);
    return failed;
}

RDMACORO_DECL device::opened device::open_queue() noexcept {
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

RDMACORO_DECL bool device::forget_one() {
    if (profile_.remembers_peers) return peers_.size() < most_remembered_peers;
    const auto unused = [](const peer& p) { return p.users == 0; };
    if (std::count_if(peers_.begin(), peers_.end(), unused) < static_cast<std::ptrdiff_t>(most_unused_peers))
        return true;
    return forget_oldest();
}

RDMACORO_DECL bool device::forget_oldest() noexcept {
    const auto oldest =
        std::find_if(peers_.begin(), peers_.end(), [](const peer& p) { return p.users == 0; });
    if (profile_.remembers_peers || oldest == peers_.end()) return false;
    forget(oldest);
    return true;
}

RDMACORO_DECL void device::forget(std::vector<peer>::iterator one) noexcept {
    static_cast<void>(::fi_av_remove(addresses_.get(), &one->number, 1, 0));
    peers_.erase(one);
}

RDMACORO_DECL void device::forget_endpoint() noexcept {
    addresses_.reset();
    peers_.clear();
    wait_fd_ = -1;
}

}  // namespace rdmacoro::detail::fabric
