// fi_getinfo: the answers of the hardware's provider, for each network that the layer below reaches.

#include "objects.hpp"

#include <algorithm>
#include <cstring>

namespace stand_in {

namespace {

// Their names are deprecated in libfabric 2; the provider below still knows them by their numbers.
constexpr int mr_basic = 1 << 0;
constexpr int mr_scalable = 1 << 1;
constexpr std::uint64_t internal_flags = std::uint64_t{0xf}
                                         << 58;    // a utility provider looks for one to stand on
constexpr std::uint64_t settled_above = FI_FENCE;  // capabilities that need nothing from below

/// The layer below is never asked for more than version 1.17 has.
std::uint32_t version_below(std::uint32_t version) {
    const std::uint32_t known = FI_VERSION(1, 17);
    return FI_VERSION_LT(version, known) ? version : known;
}

char* copy_of(const char* text) { return ::strdup(text); }

template <class Pointer>
void copy_address(Pointer& to, std::size_t& to_bytes, const void* from, std::size_t bytes) {
    if (from == nullptr || bytes == 0) return;
    to = std::malloc(bytes);
    if (to == nullptr) return;
    std::memcpy(to, from, bytes);
    to_bytes = bytes;
}

/// The hints for the layer below, from the application's hints or an answer given to it.
owned_info question_below(const fi_info* asked) {
    owned_info question(fi_allocinfo());
    if (question == nullptr) return question;
    const std::uint64_t caps = asked != nullptr && asked->caps != 0 ? asked->caps : enforced.caps;
    question->caps = caps & ~settled_above;
    question->mode = FI_CONTEXT | FI_CONTEXT2;
    question->ep_attr->type = FI_EP_RDM;
    question->tx_attr->msg_order = FI_ORDER_SAS;
    question->rx_attr->msg_order = FI_ORDER_SAS;
    question->domain_attr->mr_mode = enforced.virtual_addresses ? mr_basic : mr_scalable;
    question->fabric_attr->prov_name = copy_of(read_settings().over.c_str());
    if (asked == nullptr) return question;
    if (asked->addr_format != FI_ADDR_GNI && asked->addr_format != FI_ADDR_CXI &&
        asked->addr_format != FI_ADDR_EFA)
        question->addr_format = asked->addr_format;
    copy_address(question->src_addr, question->src_addrlen, asked->src_addr, asked->src_addrlen);
    copy_address(question->dest_addr, question->dest_addrlen, asked->dest_addr, asked->dest_addrlen);
    if (asked->fabric_attr != nullptr && asked->fabric_attr->name != nullptr)
        question->fabric_attr->name = copy_of(asked->fabric_attr->name);
    return question;
}

bool has_all(std::uint64_t of, std::uint64_t bits) { return (of & bits) == bits; }

/// Whether this provider can be what the hints ask for.
bool admits(const fi_info* hints) {
    if (hints == nullptr) return true;
    if (!has_all(enforced.caps, hints->caps)) return false;
    if (const fi_ep_attr* ep = hints->ep_attr) {
        if (ep->type != FI_EP_UNSPEC && ep->type != FI_EP_RDM) return false;
        if (ep->max_msg_size > enforced.max_msg_size) return false;
    }
    if (const fi_tx_attr* tx = hints->tx_attr) {
        if (tx->inject_size > enforced.inject_size || tx->size > enforced.tx_size ||
            tx->iov_limit > enforced.iov_limit || tx->rma_iov_limit > enforced.rma_iov_limit)
            return false;
        if (!has_all(enforced.msg_order, tx->msg_order) || tx->comp_order != 0) return false;
    }
    if (const fi_rx_attr* rx = hints->rx_attr) {
        if (rx->size > enforced.rx_size || rx->iov_limit > enforced.iov_limit) return false;
        if (!has_all(enforced.msg_order, rx->msg_order) || rx->comp_order != 0) return false;
    }
    if (const fi_domain_attr* domain = hints->domain_attr) {
        if (domain->name != nullptr && std::strcmp(domain->name, enforced.domain_name) != 0) return false;
        const int offered = domain->mr_mode == mr_basic ? FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY
                                                        : domain->mr_mode;
        if ((offered & enforced.mr_required) != enforced.mr_required) return false;
        if (domain->cq_data_size > enforced.cq_data_size || domain->mr_key_size > enforced.mr_key_size ||
            domain->mr_iov_limit > enforced.mr_iov_limit || domain->mr_cnt > enforced.mr_cnt)
            return false;
        if (domain->data_progress == FI_PROGRESS_AUTO && enforced.data_progress == FI_PROGRESS_MANUAL)
            return false;
    } else {
        return false;  // no word of memory registration: the required bits were not offered
    }
    return true;
}

/// Turns the layer below's account into this provider's.
void retell(fi_info& told, const fi_info* hints) {
    if (hints != nullptr && hints->caps != 0)
        told.caps |= hints->caps;
    else
        told.caps = (told.caps | settled_above) & enforced.caps;
    told.mode = 0;

    fi_tx_attr& tx = *told.tx_attr;
    tx.mode = 0;
    tx.op_flags = hints != nullptr && hints->tx_attr != nullptr ? hints->tx_attr->op_flags : 0;
    tx.msg_order = enforced.msg_order;
    tx.comp_order = 0;
    tx.inject_size = enforced.inject_size;
    tx.size = enforced.tx_size;
    tx.iov_limit = enforced.iov_limit;
    tx.rma_iov_limit = enforced.rma_iov_limit;

    fi_rx_attr& rx = *told.rx_attr;
    rx.mode = 0;
    rx.op_flags = hints != nullptr && hints->rx_attr != nullptr ? hints->rx_attr->op_flags : 0;
    rx.msg_order = enforced.msg_order;
    rx.comp_order = 0;
    rx.size = hints != nullptr && hints->rx_attr != nullptr && hints->rx_attr->size != 0
                  ? hints->rx_attr->size
                  : enforced.rx_size;
    rx.iov_limit = enforced.iov_limit;

    fi_ep_attr& ep = *told.ep_attr;
    ep.max_msg_size = enforced.max_msg_size;
    ep.mem_tag_format &= tag_mask;
    ep.max_order_raw_size = 0;
    ep.max_order_war_size = 0;
    ep.max_order_waw_size = (enforced.msg_order & FI_ORDER_RMA_WAW) != 0 ? static_cast<std::size_t>(-1) : 0;

    fi_domain_attr& domain = *told.domain_attr;
    std::free(domain.name);
    domain.name = copy_of(enforced.domain_name);
    const fi_domain_attr* wish = hints != nullptr ? hints->domain_attr : nullptr;
    domain.threading =
        wish != nullptr && wish->threading != FI_THREAD_UNSPEC ? wish->threading : FI_THREAD_SAFE;
    domain.control_progress = enforced.data_progress;
    domain.data_progress = enforced.data_progress;
    if (wish != nullptr && wish->control_progress != FI_PROGRESS_UNSPEC)
        domain.control_progress = wish->control_progress;
    if (wish != nullptr && wish->data_progress != FI_PROGRESS_UNSPEC)
        domain.data_progress = wish->data_progress;
    domain.resource_mgmt = FI_RM_ENABLED;
    domain.mr_mode = enforced.mr_required | (wish != nullptr ? wish->mr_mode & enforced.mr_optional : 0);
    domain.mr_key_size = enforced.mr_key_size;
    domain.mr_cnt = enforced.mr_cnt;
    domain.mr_iov_limit = enforced.mr_iov_limit;
    domain.cq_data_size = enforced.cq_data_size;
    domain.mode = 0;

    // The core writes the provider's name.
    std::free(told.fabric_attr->prov_name);
    told.fabric_attr->prov_name = nullptr;
}

}  // namespace

int answer_getinfo(std::uint32_t version, const char* node, const char* service, std::uint64_t flags,
                   const fi_info* hints, fi_info** info) {
    if ((flags & internal_flags) != 0 || !admits(hints)) return -FI_ENODATA;
    const owned_info question = question_below(hints);
    if (question == nullptr) return -FI_ENOMEM;
    fi_info* found = nullptr;
    const int result = fi_getinfo(version_below(version), node, service, flags, question.get(), &found);
    if (result != 0) return result;
    for (fi_info* each = found; each != nullptr; each = each->next) retell(*each, hints);
    *info = found;
    return 0;
}

owned_info below(std::uint32_t version, const fi_info& shown) {
    const owned_info question = question_below(&shown);
    if (question == nullptr) return {};
    question->caps &= ~(FI_LOCAL_COMM | FI_REMOTE_COMM);
    fi_info* found = nullptr;
    if (fi_getinfo(version_below(version), nullptr, nullptr, 0, question.get(), &found) != 0) return {};
    owned_info all(found);
    fi_freeinfo(found->next);
    found->next = nullptr;
    return all;
}

}  // namespace stand_in
