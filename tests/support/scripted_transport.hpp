#pragma once

// A transport of a node whose attempts end as a test wants.

#include <rdmacoro/coro/yield.hpp>
#include <rdmacoro/service/detail/node_transport.hpp>

#include <cstddef>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

namespace rdmacoro::test {

class scripted_transport final : public detail::node_transport {
public:
    scripted_transport(detail::node_core& of, unsigned at, std::string_view called) noexcept
        : node_transport(of, at, called) {}

    task<> listen(std::string url, std::string& as) override {
        heard.push_back(url);
        if (as.empty()) as = url + ":1";
        co_return;
    }
    task<detail::node_try> try_to_connect(detail::node_peer&, std::string url, detail::node_place&) override {
        tried.push_back(url);
        co_await yield();
        co_return detail::node_try{outcome, "because of " + url};
    }
    task<> close(detail::node_record&, std::byte, duration) override { co_return; }

    std::vector<std::string> heard;
    std::vector<std::string> tried;
    std::error_code outcome = make_error_code(errc::connection_refused);
};

}  // namespace rdmacoro::test
