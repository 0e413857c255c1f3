// domains: the verbs domains of one scheduler, of which an address chooses one.
#pragma once

#include <rdmacoro/coro/detail/config.hpp>
#include <rdmacoro/transport/verbs_rc/domain.hpp>

#include <memory>
#include <string>
#include <vector>

namespace rdmacoro::detail::verbs {

/// This host's address that what is sent to `to` comes from; `to` itself where it is this host's. No bytes: there is no route.
[[nodiscard]] RDMACORO_DECL inet_endpoint source_towards(const inet_endpoint& to) noexcept;

/// A service of the scheduler. The device is the one that has the address to listen on, or that reaches the address to connect
/// to, unless the options of the environment name one. Where an address chooses none, the domain is
/// `scheduler::service<verbs_domain>()`, or another one of the same options when the device of that one was taken away.
class domains {
public:
    explicit domains(scheduler& owner) noexcept : owner_(owner) {}

    /// Whether to look up the name of this host: it is no number, and there is a choice.
    [[nodiscard]] bool asks_for(const inet_address& address) const;
    /// Of the first of these addresses, of one host, that chooses a device. Throws what the constructor of `verbs_domain` does.
    [[nodiscard]] verbs_domain& towards(const std::vector<inet_endpoint>& addresses);

private:
    /// A choice that was made, by an address of this host.
    struct choice {
        inet_endpoint address;
        verbs_domain* domain;
    };

    [[nodiscard]] verbs_domain* chosen_by(const inet_endpoint& asked);
    [[nodiscard]] verbs_domain& of_port(const device_address& at);
    [[nodiscard]] verbs_domain& standard();

    scheduler& owner_;
    verbs_domain* standard_ = nullptr;  // in place of the scheduler's service, when that is broken
    std::vector<choice> chosen_;
    std::vector<std::unique_ptr<verbs_domain>> made_;
};

/// Throws what the constructor of `verbs_domain` does, and `errc::address_invalid`. Canceling it ends the look-up of a name.
[[nodiscard]] task<verbs_domain*> choose_domain(domains& of, std::string address);

}  // namespace rdmacoro::detail::verbs

#if !defined(RDMACORO_SEPARATE_COMPILATION)
#include <rdmacoro/transport/verbs_rc/impl/domains.ipp>
#endif
