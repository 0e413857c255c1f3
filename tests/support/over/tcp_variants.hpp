#pragma once

// Ways to open a TCP domain.

#include <rdmacoro/transport/tcp.hpp>

#include <memory>
#include <string>

namespace rdmacoro::test {

struct tcp_as_it_comes {
    using transport_type = tcp;
    static std::unique_ptr<tcp::domain> open(scheduler& on) { return std::make_unique<tcp::domain>(on); }
    static std::string address() { return "127.0.0.1:0"; }
    static constexpr bool crosses_threads = true;
};

struct tcp_of_an_old_kernel : tcp_as_it_comes {
    static std::unique_ptr<tcp::domain> open(scheduler& on) {
        tcp_options o;
        o.features = tcp_feature::none;
        return std::make_unique<tcp::domain>(on, o);
    }
};

}  // namespace rdmacoro::test
