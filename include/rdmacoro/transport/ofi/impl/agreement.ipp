// Bodies of agreement.hpp.
#pragma once

#include <rdmacoro/transport/ofi/agreement.hpp>

#include <cstring>
#include <string_view>

namespace rdmacoro::detail::fabric {

RDMACORO_COLD unique_info hints_of(const ofi_profile& p) {
    unique_info hints(::fi_allocinfo());
    if (hints == nullptr) throw error(errc::no_resources, "libfabric: fi_allocinfo");
    hints->caps = FI_MSG | FI_RMA | (p.atomics ? FI_ATOMIC : 0);
    hints->mode = FI_CONTEXT | FI_CONTEXT2;
    hints->ep_attr->type = FI_EP_RDM;
    hints->fabric_attr->prov_name = ::strdup(std::string(p.provider).c_str());
    hints->domain_attr->mr_mode = static_cast<int>(p.mr_mode | p.mr_optional);
    hints->domain_attr->threading = FI_THREAD_DOMAIN;
    hints->domain_attr->resource_mgmt = FI_RM_ENABLED;
    hints->domain_attr->av_type = FI_AV_TABLE;
    hints->tx_attr->msg_order = p.message_order;
    hints->rx_attr->msg_order = p.message_order;
    return hints;
}

RDMACORO_COLD std::string flags_text(std::uint64_t flags, fi_type type) {
    const std::string text = ::fi_tostr(&flags, type);
    return text.empty() ? "none" : text;
}

RDMACORO_COLD std::string mr_mode_text(std::uint64_t flags) {
    const int mode = static_cast<int>(flags);
    const std::string text = ::fi_tostr(&mode, FI_TYPE_MR_MODE);
    return text.empty() ? "none" : text;
}

RDMACORO_COLD std::string disagreement(const ofi_profile& p, const fi_info& answer) {
    std::string first;
    const auto differs = [&](std::string_view field, const std::string& said, const std::string& answered) {
        if (first.empty())
            first =
                std::string(field) + ": the description says " + said + ", the provider answers " + answered;
    };
    const auto at_least = [&](std::string_view field, std::uint64_t said, std::uint64_t answered) {
        if (answered < said) differs(field, "at least " + std::to_string(said), std::to_string(answered));
    };
    const fi_domain_attr& domain = *answer.domain_attr;
    const fi_tx_attr& tx = *answer.tx_attr;
    const fi_rx_attr& rx = *answer.rx_attr;

    if (answer.ep_attr->type != FI_EP_RDM) {
        const auto type = answer.ep_attr->type;
        differs("ep_attr.type", "FI_EP_RDM", ::fi_tostr(&type, FI_TYPE_EP_TYPE));
    }
    const std::uint64_t wanted_caps = FI_MSG | FI_RMA | (p.atomics ? FI_ATOMIC : 0);
    if ((answer.caps & wanted_caps) != wanted_caps)
        differs("caps", flags_text(wanted_caps, FI_TYPE_CAPS), flags_text(answer.caps, FI_TYPE_CAPS));
    if ((answer.mode & ~(FI_CONTEXT | FI_CONTEXT2)) != 0)
        differs("mode", "FI_CONTEXT and FI_CONTEXT2 at most", flags_text(answer.mode, FI_TYPE_MODE));

    const auto mode = static_cast<std::uint64_t>(static_cast<unsigned>(domain.mr_mode));
    if ((mode & p.mr_mode) != p.mr_mode || (mode & ~(p.mr_mode | p.mr_optional)) != 0)
        differs("domain_attr.mr_mode",
                mr_mode_text(p.mr_mode) +
                    (p.mr_optional != 0 ? ", perhaps " + mr_mode_text(p.mr_optional) : ""),
                mr_mode_text(mode));
    if (domain.mr_key_size < p.key_bytes || domain.mr_key_size > 8)
        differs("domain_attr.mr_key_size", std::to_string(p.key_bytes) + " to 8 bytes",
                std::to_string(domain.mr_key_size));
    at_least("domain_attr.cq_data_size", p.remote_data_bytes, domain.cq_data_size);
    // FI_THREAD_SAFE or one of the models in which a thread that has the domain to itself needs no locks.
    if (domain.threading == FI_THREAD_UNSPEC)
        differs("domain_attr.threading", "one thread for each domain", "nothing");
    if (p.data_progress == ofi_progress::automatic && domain.data_progress != FI_PROGRESS_AUTO)
        differs("domain_attr.data_progress", "FI_PROGRESS_AUTO", "FI_PROGRESS_MANUAL");
    if (domain.resource_mgmt != FI_RM_ENABLED)
        differs("domain_attr.resource_mgmt", "FI_RM_ENABLED", "FI_RM_DISABLED");

    at_least("tx_attr.inject_size", p.inject_bytes, tx.inject_size);
    at_least("tx_attr.iov_limit", p.message_pieces, tx.iov_limit);
    at_least("tx_attr.rma_iov_limit", p.rma_pieces, tx.rma_iov_limit);
    at_least("rx_attr.iov_limit", p.message_pieces, rx.iov_limit);
    at_least("ep_attr.max_msg_size", p.longest_message, answer.ep_attr->max_msg_size);
    if ((tx.msg_order & p.message_order) != p.message_order)
        differs("tx_attr.msg_order", flags_text(p.message_order, FI_TYPE_MSG_ORDER),
                flags_text(tx.msg_order, FI_TYPE_MSG_ORDER));
    if ((rx.msg_order & p.message_order) != p.message_order)
        differs("rx_attr.msg_order", flags_text(p.message_order, FI_TYPE_MSG_ORDER),
                flags_text(rx.msg_order, FI_TYPE_MSG_ORDER));
    return first;
}

RDMACORO_COLD unique_info all_answers() {
    const unique_info hints(::fi_allocinfo());
    fi_info* list = nullptr;
    if (hints == nullptr) return nullptr;
    hints->ep_attr->type = FI_EP_RDM;
    hints->mode = ~std::uint64_t{0};
    hints->domain_attr->mode = ~std::uint64_t{0};
    hints->domain_attr->mr_mode = static_cast<int>(~std::uint64_t{0} & 0xfff & ~std::uint64_t{3});
    static_cast<void>(::fi_getinfo(spoken_version, nullptr, nullptr, 0, hints.get(), &list));
    return unique_info(list);
}

RDMACORO_COLD std::string providers_text() {
    const unique_info found = all_answers();
    std::string text;
    for (const fi_info* one = found.get(); one != nullptr; one = one->next) {
        const std::string name = one->fabric_attr->prov_name;
        if ((", " + text + ",").find(", " + name + ",") != std::string::npos) continue;
        text += (text.empty() ? "" : ", ") + name;
    }
    return text.empty() ? "none" : text;
}

}  // namespace rdmacoro::detail::fabric
