// verbs_counts: the cost of a message over verbs, counted at both ends: work requests, doorbells, completions, copies, for
// each protocol list and size. Counts hold on every device; times on an emulated one do not.
#include "../tools/pingpong/failure.hpp"
#include "../tools/pingpong/list_names.hpp"
#include "../tools/pingpong/program.hpp"
#include "../tools/pingpong/sizes.hpp"

#include <rdmacoro/rdmacoro.hpp>
#include <rdmacoro/transport/verbs_rc.hpp>

#include <CLI/CLI.hpp>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <functional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace {

namespace rc = rdmacoro;
using rc::verbs_rc;

struct options {
    std::string protocol;
    std::string sizes = "8,1K,7K,64K,1M";
    unsigned messages = 256;
};

/// Counts of both ends, of the device and above it.
struct sum {
    rc::verbs_counts device;
    std::uint64_t copies = 0;
    std::uint64_t copied = 0;

    template <class End>
    void add(rc::verbs_domain& domain, const End& end) {
        device += domain.counts();
        copies += end.counts().payload_copies;
        copied += end.counts().bytes_copied;
    }
};

template <class List>
using end_of = rc::endpoint<verbs_rc, List>;

template <class List>
rc::task<> send_all(end_of<List>& from, const std::vector<std::byte>& data, unsigned count) {
    for (unsigned n = 0; n < count; ++n) co_await from.send(data, 1);
}
template <class List>
rc::task<> receive_all(end_of<List>& at, std::vector<std::byte>& into, unsigned count) {
    for (unsigned n = 0; n < count; ++n) co_await at.recv(into, 1);
}

/// One after the other, each received into memory that waits for it.
template <class List>
rc::task<> stream(end_of<List>& a, end_of<List>& b, std::size_t bytes, unsigned count) {
    const std::vector<std::byte> data(bytes, std::byte{1});
    std::vector<std::byte> into(bytes);
    rc::task_group group;
    group.spawn(receive_all<List>, std::ref(b), std::ref(into), count);
    group.spawn(send_all<List>, std::ref(a), std::cref(data), count);
    co_await group.join();
}

template <class List>
rc::task<> measure(rc::verbs_domain& here, rc::verbs_domain& there, const options& asked,
                   const std::vector<std::size_t>& sizes, std::string_view name) {
    auto listening = co_await rc::listen<verbs_rc, List>(there, "*:0");
    auto accepting = rc::start(listening.accept());
    end_of<List> a = co_await rc::connect<verbs_rc, List>(here, listening.address());
    end_of<List> b = co_await accepting;
    for (const std::size_t bytes : sizes) {
        co_await stream<List>(a, b, bytes, asked.messages);  // lets adaptive parts adapt, registers memory
        sum before;
        before.add(here, a);
        before.add(there, b);
        co_await stream<List>(a, b, bytes, asked.messages);
        sum after;
        after.add(here, a);
        after.add(there, b);
        const auto each = [&](std::uint64_t later, std::uint64_t earlier) {
            return static_cast<double>(later - earlier) / asked.messages;
        };
        const rc::verbs_counts& x = after.device;
        const rc::verbs_counts& y = before.device;
        std::printf("%-12.*s %9zu %8.2f %8.2f %8.2f %8.2f %8.2f %8.2f %8.2f %8.2f %8.2f %12.0f\n",
                    static_cast<int>(name.size()), name.data(), bytes, each(x.work_requests, y.work_requests),
                    each(x.posts, y.posts), each(x.signalled, y.signalled),
                    each(x.receive_posts, y.receive_posts), each(x.inlined, y.inlined),
                    each(x.staged, y.staged), each(x.gets, y.gets), each(x.puts, y.puts),
                    each(after.copies, before.copies), each(after.copied, before.copied));
    }
    auto other = rc::start(b.close());
    co_await a.close();
    co_await other;
}

}  // namespace

int main(int argc, char** argv) {
    options asked;
    CLI::App app{"Counts what a message costs over verbs, at both ends together: work requests, doorbells "
                 "(calls that post "
                 "them), work requests that ask for a completion, calls that post receive slots, messages "
                 "inside their work "
                 "request and through a registered slot, gets, puts, copies above the transport and their "
                 "bytes. Each count "
                 "is for one message, received into memory that waits for it.\n"
                 "The device: RDMACORO_VERBS_DEVICE, or the first.",
                 "verbs_counts"};
    app.add_option("--protocol", asked.protocol, "One protocol list of those that pingpong has; default: all")
        ->type_name("NAME");
    app.add_option("--sizes", asked.sizes, "Of messages, in bytes; K, M are powers of 1024")
        ->type_name("SIZE,...")
        ->capture_default_str();
    app.add_option("--messages", asked.messages, "Of each size")
        ->type_name("N")
        ->capture_default_str()
        ->check(CLI::Range(1u, 1000000u));
    return pingpong::run_program("verbs_counts", [&] {
        try {
            app.parse(argc, argv);
        } catch (const CLI::Success& answered) {
            return app.exit(answered);
        } catch (const CLI::Error& wrong) {
            throw pingpong::usage_error(std::string(wrong.what()) + "; --help lists the options");
        }
        const std::vector<std::size_t> sizes = pingpong::parse_sizes(asked.sizes);
        rc::scheduler on;
        rc::verbs_domain here(on);
        rc::verbs_domain there(on);
        std::printf("# %s\n", here.describe().c_str());
        std::printf("%-12s %9s %8s %8s %8s %8s %8s %8s %8s %8s %8s %12s\n", "protocol", "bytes", "requests",
                    "doorbell", "signaled", "receives", "inline", "staged", "gets", "puts", "copies",
                    "bytes copied");
        bool found = false;
        pingpong::for_each_list<verbs_rc>([&]<class List>(pingpong::list_name named) {
            if (!asked.protocol.empty() && asked.protocol != named.name) return;
            found = true;
            on.run(measure<List>(here, there, asked, sizes, named.name));
        });
        if (!found) throw std::invalid_argument("there is no protocol list \"" + asked.protocol + "\"");
        return 0;
    });
}
