// The table of a service's methods.
#pragma once

#include <rdmacoro/service/service.hpp>

#include <algorithm>
#include <span>
#include <string>
#include <string_view>

namespace rdmacoro {

namespace detail {
RDMACORO_COLD handler_base::~handler_base() = default;

RDMACORO_COLD void throw_malformed_request(const char* why) {
    throw error(make_error_code(call_errc::malformed_request), why);
}
}  // namespace detail

RDMACORO_COLD service::service(const service_options& options)
    : options_(options), running_(options.running), bytes_(options.bytes) {
    if (options.running == 0 || options.bytes == 0)
        detail::throw_error(errc::invalid_argument, "service: a limit of 0 lets no handler run");
}

RDMACORO_COLD service::~service() {
    if (running() != 0)
        detail::fatal("a service was destroyed while handlers of it run: its calls objects end first");
}

RDMACORO_COLD void service::add(detail::handler_base* given) {
    std::unique_ptr<detail::handler_base> made(given);
    const detail::method_facts& facts = made->facts;
    const std::string name(facts.name);
    if (!handlers_.empty() &&
        detail::service_part(facts.name) != detail::service_part(handlers_.front()->facts.name)) {
        detail::throw_error(errc::invalid_argument, "service: " + name + " has another prefix than " +
                                                        std::string(handlers_.front()->facts.name) +
                                                        ": make a service for each");
    }
    const auto at = std::ranges::lower_bound(handlers_, facts.number, {},
                                             [](const auto& one) { return one->facts.number; });
    if (at != handlers_.end() && (*at)->facts.number == facts.number)
        detail::throw_error(errc::invalid_argument, "service: " + name + " has a handler already");
    number_ = facts.service;
    handlers_.insert(at, std::move(made));
}

RDMACORO_DECL detail::handler_base* service::find(std::uint64_t method) const noexcept {
    if (last_ != nullptr && last_->facts.number == method) return last_;
    std::size_t first = 0;
    std::size_t last = handlers_.size();
    while (first < last) {
        const std::size_t middle = first + (last - first) / 2;
        detail::handler_base& one = *handlers_[middle];
        if (one.facts.number == method) return last_ = &one;
        if (one.facts.number < method) {
            first = middle + 1;
        } else {
            last = middle;
        }
    }
    return nullptr;
}

RDMACORO_COLD void service::check_beside(std::span<service* const> offered, const char* by) const {
    if (handlers_.empty())
        detail::throw_error(errc::invalid_argument,
                            std::string(by) + ": a service without methods: call its `on` first");
    const std::string_view prefix = detail::service_part(handlers_.front()->facts.name);
    for (const service* const one : offered) {
        if (one->number_ != number_) continue;
        const std::string_view other = detail::service_part(one->handlers_.front()->facts.name);
        if (other == prefix)
            detail::throw_error(errc::invalid_argument, std::string(by) + ": a service with the prefix of " +
                                                            std::string(handlers_.front()->facts.name) +
                                                            " is offered already");
        detail::throw_error(errc::invalid_argument, std::string(by) + ": the prefixes " +
                                                        std::string(prefix) + " and " + std::string(other) +
                                                        " have one number (of 32,768): rename one of them");
    }
}

}  // namespace rdmacoro
