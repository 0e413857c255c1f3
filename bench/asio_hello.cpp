// The conversation of examples/hello.cpp with standalone Asio: what bench/compile_cost compares compile times with.
// Two coroutines of one program, one message over a Unix socket, and the end of the connection seen by both sides.
#define ASIO_STANDALONE
#define ASIO_NO_DEPRECATED
#include <asio.hpp>
#include <asio/experimental/as_tuple.hpp>

#include <array>
#include <cstring>
#include <iostream>
#include <string_view>

#include <unistd.h>

using asio::awaitable;
using asio::use_awaitable;
using stream = asio::local::stream_protocol;

awaitable<void> greet(stream::endpoint where) {
    stream::socket peer(co_await asio::this_coro::executor);
    co_await peer.async_connect(where, use_awaitable);
    constexpr std::string_view text("hello, world", 13);
    const std::uint64_t length = text.size();
    co_await asio::async_write(peer, std::array{asio::buffer(&length, sizeof length), asio::buffer(text)},
                               use_awaitable);
    peer.shutdown(stream::socket::shutdown_send);
    char seen;
    const auto [error, bytes] =
        co_await peer.async_read_some(asio::buffer(&seen, 1), asio::experimental::as_tuple(use_awaitable));
    if (error != asio::error::eof || bytes != 0) throw std::runtime_error("the peer did not close");
}

awaitable<void> listen(stream::endpoint where) {
    const auto executor = co_await asio::this_coro::executor;
    stream::acceptor acceptor(executor, where);
    asio::co_spawn(executor, greet(where), [](std::exception_ptr failed) {
        if (failed) std::rethrow_exception(failed);
    });
    stream::socket peer = co_await acceptor.async_accept(use_awaitable);
    std::uint64_t length = 0;
    char text[64];
    co_await asio::async_read(peer, asio::buffer(&length, sizeof length), use_awaitable);
    if (length > sizeof text) throw std::runtime_error("too long");
    co_await asio::async_read(peer, asio::buffer(text, length), use_awaitable);
    std::cout << "got " << length << " bytes: " << text << '\n';
}

int main() {
    const std::string path = "/tmp/asio_hello." + std::to_string(::getpid());
    asio::io_context context;
    asio::co_spawn(context, listen(stream::endpoint(path)), [](std::exception_ptr failed) {
        if (failed) std::rethrow_exception(failed);
    });
    context.run();
    ::unlink(path.c_str());
}
