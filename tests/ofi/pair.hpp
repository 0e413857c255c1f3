#pragma once

// Two libfabric domains on one scheduler, with links between them.

#include <rdmacoro/coro/coro.hpp>
#include <rdmacoro/transport/ofi.hpp>

#include "support/catch.hpp"
#include "support/recording_sink.hpp"
#include "support/run.hpp"

#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace rdmacoro::test {

using ofi_any = ofi<provider::any>;
using ofi_any_domain = ofi_any::domain;
using ofi_recorded_link = ofi_any::link<recording_sink>;

/// Options for a provider that runs on this machine alone.
inline ofi_options ofi_here(const std::string& provider) {
    ofi_options o;
    o.provider = provider;
    if (provider::find(provider) != nullptr && provider::find(provider)->tells_address_by_ip)
        o.node = "127.0.0.1";
    return o;
}

/// One end of a link, and the sink that records its events.
struct ofi_end {
    recording_sink sink;
    std::unique_ptr<ofi_recorded_link> link;
};

/// A scheduler in real time that gives up when nothing moves for long, with two domains, as two processes would have.
struct ofi_world {
    explicit ofi_world(const ofi_options& options) : ofi_world(options, options) {}
    ofi_world(const ofi_options& client_options, const ofi_options& server_options)
        : client(on, client_options), server(on, server_options) {}

    scheduler on{impatient{}};
    ofi_any_domain client;
    ofi_any_domain server;

    template <class Done>
    void until(Done done) {
        on.run_until(done);
    }
    void turns(unsigned count) {
        for (unsigned i = 0; i < count; ++i) on.turn();
    }

    struct connected {
        ofi_connection client;
        ofi_connection server;
    };
    connected connect() { return on.run(connect_both(*this)); }

    /// Both ends of a new link, after the provider has made its own connection.
    void link(ofi_end& a, ofi_end& b) {
        connected made = connect();
        a.link = std::make_unique<ofi_recorded_link>(std::move(made.client), a.sink);
        b.link = std::make_unique<ofi_recorded_link>(std::move(made.server), b.sink);
        for (ofi_end* from : {&a, &b}) {
            ofi_end* const to = from == &a ? &b : &a;
            recording_completion none;
            until([&] { return from->link->post(header_of(0), {}, none) == post_result::done; });
            until([&] { return to->sink.count == 1; });
        }
        for (ofi_end* one : {&a, &b}) {
            one->sink.messages.clear();
            one->sink.count = 0;
        }
    }

    /// Until both sides have heard the last of it.
    void until_all_gone() {
        until([&] { return client.connections() == 0 && server.connections() == 0; });
    }

private:
    static task<connected> connect_both(ofi_world& w) {
        ofi_listener listening = co_await w.server.listen("127.0.0.1:0");
        auto accepting = start(listening.accept());
        connected made;
        made.client = co_await w.client.connect(listening.address());
        made.server = co_await accepting;
        co_return made;
    }
};

/// Posts until it is taken.
inline void post_for_sure(ofi_world& w, ofi_end& from, std::uint64_t number,
                          std::span<const std::byte> payload = {}) {
    recording_completion none;
    w.until([&] {
        return from.link->post(header_of(number), const_buffers(payload), none) == post_result::done;
    });
}

}  // namespace rdmacoro::test
