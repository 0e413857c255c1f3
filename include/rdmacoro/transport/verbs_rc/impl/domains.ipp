// Bodies of domains.hpp.
#pragma once

#include <rdmacoro/transport/verbs_rc/domains.hpp>

#include <algorithm>
#include <string>
#include <utility>

#include <sys/socket.h>
#include <unistd.h>

namespace rdmacoro::detail::verbs {

RDMACORO_COLD inet_endpoint source_towards(const inet_endpoint& to) noexcept {
    inet_endpoint target = to;
    set_port(target, 9);  // any: connecting a datagram socket sends nothing
    const int fd = ::socket(to.address.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0) return {};
    inet_endpoint source;
    if (::connect(fd, target.get(), target.bytes) == 0) source = inet_endpoint::local(fd);
    ::close(fd);
    return source;
}

RDMACORO_COLD bool domains::asks_for(const inet_address& address) const {
    const verbs_options options = verbs_options::from_environment();
    if (address.host.empty() || !options.device.empty() || !options.address.empty()) return false;
    if (!inet_resolved::ask(address, AI_NUMERICHOST).endpoints.empty()) return false;
    const std::vector<device_address> all = device_addresses();
    return std::any_of(all.begin(), all.end(), [&](const device_address& one) {
        return one.device != all.front().device || one.port != all.front().port;
    });
}

RDMACORO_COLD verbs_domain& domains::towards(const std::vector<inet_endpoint>& addresses) {
    const verbs_options options = verbs_options::from_environment();
    if (!options.device.empty() || !options.address.empty()) return standard();
    for (const inet_endpoint& asked : addresses) {
        if (verbs_domain* const found = chosen_by(asked); found != nullptr) return *found;
    }
    return standard();
}

RDMACORO_COLD verbs_domain* domains::chosen_by(const inet_endpoint& asked) {
    // An address of this host is compared first: the routes do not know a link-local one without its interface.
    const inet_endpoint source = source_towards(asked);
    const auto either = [&](const inet_endpoint& one) {
        return same_address(one, asked) || (source.bytes != 0 && same_address(one, source));
    };
    for (const choice& one : chosen_) {
        if (either(one.address) && !one.domain->broken()) return one.domain;
    }
    for (const device_address& one : device_addresses()) {
        if (!either(one.address)) continue;
        verbs_domain& domain = of_port(one);
        std::erase_if(chosen_, [](const choice& made) { return made.domain->broken(); });
        chosen_.push_back({one.address, &domain});
        return &domain;
    }
    return nullptr;
}

RDMACORO_COLD task<verbs_domain*> choose_domain(domains& of, std::string address) {
    const inet_address parsed = parse_address(address);
    inet_resolved found;
    if (of.asks_for(parsed)) {
        found = co_await inet_resolve(parsed, 0);
    } else if (!parsed.host.empty()) {
        found = inet_resolved::ask(parsed, AI_NUMERICHOST);
    }
    co_return &of.towards(found.endpoints);
}

/// The domain without a choice by an address. Broken ones stay, as links and regions may refer to them.
RDMACORO_COLD verbs_domain& domains::standard() {
    if (standard_ == nullptr) standard_ = &owner_.service<verbs_domain>();
    if (standard_->broken()) standard_ = made_.emplace_back(std::make_unique<verbs_domain>(owner_)).get();
    return *standard_;
}

RDMACORO_COLD verbs_domain& domains::of_port(const device_address& at) {
    const auto fits = [&](verbs_domain& one) {
        return !one.broken() && one.device_name() == at.device && one.port() == at.port;
    };
    if (verbs_domain& first = owner_.service<verbs_domain>(); fits(first)) return first;
    for (const auto& one : made_) {
        if (fits(*one)) return *one;
    }
    verbs_options options = verbs_options::from_environment();
    options.device = at.device;
    options.port = at.port;
    return *made_.emplace_back(std::make_unique<verbs_domain>(owner_, options));
}

}  // namespace rdmacoro::detail::verbs
