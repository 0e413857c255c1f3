// Chooses the transport at run time: the scheme of a URL picks the type that the rest of the program is made for.
#pragma once

#include <rdmacoro/rdmacoro.hpp>
#if RDMACORO_WITH_TCP
#include <rdmacoro/transport/tcp.hpp>
#endif
#if RDMACORO_WITH_VERBS
#include <rdmacoro/transport/verbs_rc.hpp>
#endif
#if RDMACORO_WITH_OFI
#include <rdmacoro/transport/ofi.hpp>
#endif

#include <exception>
#include <iostream>
#include <string>
#include <string_view>

/// For `task_group::on_error`: the text of an error, on stderr.
inline void print_error(std::exception_ptr failure) {
    try {
        std::rethrow_exception(std::move(failure));
    } catch (const std::exception& error) {
        std::cerr << error.what() << '\n';
    }
}

/// Runs the task that `program.template operator()<Transport>()` gives, and prints errors on stderr. Gives the
/// program's exit status.
template <class Program>
int run_by_url(std::string_view url, Program program) {
    try {
        rdmacoro::scheduler scheduler;
        if (url.starts_with("shm://")) {
            scheduler.run(program.template operator()<rdmacoro::shm>());
#if RDMACORO_WITH_TCP
        } else if (url.starts_with("tcp://")) {
            scheduler.run(program.template operator()<rdmacoro::tcp>());
#endif
#if RDMACORO_WITH_VERBS
        } else if (url.starts_with("verbs://")) {
            scheduler.run(program.template operator()<rdmacoro::verbs_rc>());
#endif
#if RDMACORO_WITH_OFI
        } else if (url.starts_with("ofi://")) {  // RDMACORO_OFI_PROVIDER selects libfabric's provider
            scheduler.run(program.template operator()<rdmacoro::ofi<rdmacoro::provider::any>>());
#endif
        } else {
            throw rdmacoro::error(
                rdmacoro::errc::address_invalid,
                std::string(url) +
                    ": write shm://NAME, or tcp://HOST:PORT, with verbs:// or ofi:// likewise");
        }
        return 0;
    } catch (...) {
        print_error(std::current_exception());
        return 1;
    }
}

/// Listens at the URL, prints its address on stdout (with the real port, if that of the URL is 0), and takes one peer in.
template <rdmacoro::transport T>
rdmacoro::task<rdmacoro::endpoint<T>> accept_one(std::string_view url) {
    auto listener = co_await rdmacoro::listen<T>(url);
    std::cout << "listening at " << listener.address() << std::endl;
    co_return co_await listener.accept();
}
