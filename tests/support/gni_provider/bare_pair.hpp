#pragma once

// Two endpoints of one provider in one process, by libfabric's own calls alone, and the stand-in's log.

#include <rdma/fabric.h>
#include <rdma/fi_atomic.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <rdma/fi_tagged.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <unistd.h>

namespace rdmacoro::test {

/// The deleter of anything that fi_close ends.
struct closing {
    template <class Object>
    void operator()(Object* object) const {
        fi_close(&object->fid);
    }
};
template <class Object>
using owned = std::unique_ptr<Object, closing>;

struct freeing_info {
    void operator()(fi_info* info) const { fi_freeinfo(info); }
};
using owned_info = std::unique_ptr<fi_info, freeing_info>;

inline void must(ssize_t result, const char* what) {
    if (result != 0)
        throw std::runtime_error(std::string(what) + ": " + fi_strerror(static_cast<int>(-result)));
}

/// The hints of a program that knows a provider's rules, on the loopback address.
inline owned_info hints_for(const std::string& provider) {
    owned_info hints(fi_allocinfo());
    hints->caps = FI_MSG | FI_TAGGED | FI_RMA | FI_ATOMIC | FI_DIRECTED_RECV;
    hints->ep_attr->type = FI_EP_RDM;
    hints->fabric_attr->prov_name = ::strdup(provider.c_str());
    hints->domain_attr->mr_mode =
        FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY | (provider == "cxi" ? FI_MR_ENDPOINT : 0);
    hints->tx_attr->msg_order = FI_ORDER_SAS;
    hints->rx_attr->msg_order = FI_ORDER_SAS;
    return hints;
}

/// 0, or fi_getinfo's error.
inline int ask(const fi_info& hints, owned_info* answer) {
    fi_info* found = nullptr;
    const int result = fi_getinfo(FI_VERSION(1, 17), "127.0.0.1", nullptr, FI_SOURCE, &hints, &found);
    if (result == 0) answer->reset(found);
    return result;
}

inline bool has_provider(const std::string& name) {
    owned_info answer;
    return ask(*hints_for(name), &answer) == 0;
}

/// The stand-in's log of this process, begun anew by each object.
class violation_log {
public:
    violation_log() {
        std::string name = "/tmp/rdmacoro-stand-in-XXXXXX";
        const int file = ::mkstemp(name.data());
        if (file < 0) throw std::runtime_error("no temporary file");
        ::close(file);
        name_ = name;
        ::setenv("RDMACORO_STAND_IN_LOG", name_.c_str(), 1);
    }
    violation_log(const violation_log&) = delete;
    violation_log& operator=(const violation_log&) = delete;
    ~violation_log() {
        ::unsetenv("RDMACORO_STAND_IN_LOG");
        ::unlink(name_.c_str());
    }
    /// The rules violated since the last call, one behind the other: "inject_size iov_limit".
    std::string take() {
        std::ifstream lines(name_);
        std::string all;
        for (std::string line; std::getline(lines, line);) {
            const std::size_t begin = line.find(": ") + 2;
            if (!all.empty()) all += ' ';
            all += line.substr(begin, line.find(": ", begin) - begin);
        }
        std::ofstream(name_, std::ios::trunc).flush();
        return all;
    }

private:
    std::string name_;
};

/// One endpoint with a domain and one completion queue of its own.
class bare_endpoint {
public:
    struct choices {
        std::uint64_t queue_flags = FI_TRANSMIT | FI_RECV;
        fi_wait_obj wait = FI_WAIT_NONE;
        std::function<void(fi_info&)> change_hints = [](fi_info&) {};
    };

    explicit bare_endpoint(const std::string& provider) : bare_endpoint(provider, choices()) {}
    bare_endpoint(const std::string& provider, const choices& chosen) {
        const owned_info hints = hints_for(provider);
        chosen.change_hints(*hints);
        must(ask(*hints, &info), "fi_getinfo");
        fid_fabric* opened_fabric = nullptr;
        must(fi_fabric(info->fabric_attr, &opened_fabric, nullptr), "fi_fabric");
        fabric.reset(opened_fabric);
        fid_domain* opened_domain = nullptr;
        must(fi_domain(fabric.get(), info.get(), &opened_domain, nullptr), "fi_domain");
        domain.reset(opened_domain);

        fi_av_attr av_attributes{};
        av_attributes.type = FI_AV_TABLE;
        fid_av* opened_av = nullptr;
        must(fi_av_open(domain.get(), &av_attributes, &opened_av, nullptr), "fi_av_open");
        addresses.reset(opened_av);
        fi_cq_attr cq_attributes{};
        cq_attributes.format = FI_CQ_FORMAT_DATA;
        cq_attributes.wait_obj = chosen.wait;
        fid_cq* opened_cq = nullptr;
        must(fi_cq_open(domain.get(), &cq_attributes, &opened_cq, nullptr), "fi_cq_open");
        queue.reset(opened_cq);
        fid_ep* opened_ep = nullptr;
        must(fi_endpoint(domain.get(), info.get(), &opened_ep, nullptr), "fi_endpoint");
        endpoint.reset(opened_ep);
        must(fi_ep_bind(opened_ep, &opened_av->fid, 0), "fi_ep_bind");
        must(fi_ep_bind(opened_ep, &opened_cq->fid, chosen.queue_flags), "fi_ep_bind");
        must(fi_enable(opened_ep), "fi_enable");
    }

    std::vector<char> name() const {
        std::vector<char> text(256);
        std::size_t bytes = text.size();
        must(fi_getname(&endpoint->fid, text.data(), &bytes), "fi_getname");
        text.resize(bytes);
        return text;
    }
    fi_addr_t know(const bare_endpoint& other) {
        fi_addr_t address = FI_ADDR_UNSPEC;
        if (fi_av_insert(addresses.get(), other.name().data(), 1, &address, 0, nullptr) != 1)
            throw std::runtime_error("fi_av_insert");
        return address;
    }

    /// Registers memory for everything, and makes it reachable where that takes more.
    owned<fid_mr> expose(std::span<std::byte> memory) {
        fid_mr* made = nullptr;
        constexpr std::uint64_t all =
            FI_SEND | FI_RECV | FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE;
        must(fi_mr_reg(domain.get(), memory.data(), memory.size(), all, 0, 0, 0, &made, nullptr),
             "fi_mr_reg");
        owned<fid_mr> registered(made);
        if ((info->domain_attr->mr_mode & FI_MR_ENDPOINT) != 0) {
            must(fi_mr_bind(made, &endpoint->fid, 0), "fi_mr_bind");
            must(fi_mr_enable(made), "fi_mr_enable");
        }
        return registered;
    }
    /// What a peer names `at` by, which lies in registered `memory`.
    std::uint64_t address_of(const std::byte* at, std::span<const std::byte> memory) const {
        return (info->domain_attr->mr_mode & FI_MR_VIRT_ADDR) != 0
                   ? reinterpret_cast<std::uintptr_t>(at)
                   : static_cast<std::uint64_t>(at - memory.data());
    }

    owned_info info;
    owned<fid_fabric> fabric;
    owned<fid_domain> domain;
    owned<fid_av> addresses;
    owned<fid_cq> queue;
    owned<fid_ep> endpoint;
};

/// Two endpoints that know each other.
class bare_pair {
public:
    explicit bare_pair(const std::string& provider) : bare_pair(provider, bare_endpoint::choices()) {}
    bare_pair(const std::string& provider, const bare_endpoint::choices& chosen)
        : here(provider, chosen),
          there(provider, chosen),
          to_there(here.know(there)),
          to_here(there.know(here)) {}

    /// Polls both ends until `condition()`; throws when it does not come true within ten seconds.
    template <class Condition>
    void until(Condition condition) {
        const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
        while (!condition()) {
            poll(here, done_here);
            poll(there, done_there);
            if (std::chrono::steady_clock::now() > end) throw std::runtime_error("nothing came within 10 s");
        }
    }
    /// Posts until there is room, polling both ends; the result otherwise.
    template <class Post>
    ssize_t posted(Post post) {
        ssize_t result = -FI_EAGAIN;
        until([&] { return (result = post()) != -FI_EAGAIN; });
        return result;
    }
    void poll(bare_endpoint& end, std::vector<fi_cq_data_entry>& into) {
        fi_cq_data_entry entries[4];
        const ssize_t count = fi_cq_read(end.queue.get(), entries, 4);
        if (count > 0) into.insert(into.end(), entries, entries + count);
        if (count == -FI_EAVAIL) {
            fi_cq_err_entry error{};
            if (fi_cq_readerr(end.queue.get(), &error, 0) == 1) errors.push_back(error);
        }
    }

    bare_endpoint here;
    bare_endpoint there;
    fi_addr_t to_there;
    fi_addr_t to_here;
    std::vector<fi_cq_data_entry> done_here;
    std::vector<fi_cq_data_entry> done_there;
    std::vector<fi_cq_err_entry> errors;
};

}  // namespace rdmacoro::test
