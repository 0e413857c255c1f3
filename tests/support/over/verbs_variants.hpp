#pragma once

// Ways to open a verbs domain.

#include <rdmacoro/transport/verbs_rc.hpp>

#include <cstdlib>
#include <memory>
#include <stdexcept>
#include <string>

namespace rdmacoro::test {

/// A RoCE or InfiniBand device: that of the address in RXE_IP, or whichever there is. Other options are those of the environment.
struct verbs_as_it_comes {
    using transport_type = verbs_rc;
    static constexpr const char* variable = "RXE_IP";
    template <class Variant>
    static verbs_options options_of() {
        verbs_options o = verbs_options::from_environment();
        if (const char* ip = std::getenv(Variant::variable)) o.address = ip;
        return o;
    }
    static std::unique_ptr<verbs_rc::domain> open(scheduler& on) {
        return std::make_unique<verbs_rc::domain>(on, options_of<verbs_as_it_comes>());
    }
    static std::string address() { return "*:0"; }
    static constexpr bool crosses_threads = true;
};

/// An iWARP device: that of the address in SIW_IP. Without one it fails, lest another device passes for it.
struct verbs_over_iwarp : verbs_as_it_comes {
    static constexpr const char* variable = "SIW_IP";
    static std::unique_ptr<verbs_rc::domain> open(scheduler& on) {
        if (std::getenv(variable) == nullptr)
            throw std::runtime_error("SIW_IP does not name an iWARP device");
        return std::make_unique<verbs_rc::domain>(on, options_of<verbs_over_iwarp>());
    }
};

/// A RoCE or InfiniBand device without the connection manager.
struct verbs_by_exchange : verbs_as_it_comes {
    static std::unique_ptr<verbs_rc::domain> open(scheduler& on) {
        verbs_options o = options_of<verbs_by_exchange>();
        o.connect_by = verbs_connect::tcp;
        return std::make_unique<verbs_rc::domain>(on, o);
    }
};

}  // namespace rdmacoro::test
