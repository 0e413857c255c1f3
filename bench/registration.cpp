// registration: the cost of registering memory with a transport, without and with the registration cache.
//
// One process, no peer. For each size the same memory, mapped and touched before, is registered and deregistered; then
// acquired from a registration cache that is empty (a miss: registers, and watches the memory for unmapping) and from one
// that holds it (a hit), given back, and dropped by the cache. Each time is the median of --repeat.

#include "common/report.hpp"
#include "common/statistics.hpp"

#include "../tools/pingpong/cpus.hpp"

#include <rdmacoro/memory/registration_cache.hpp>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include <sys/mman.h>

namespace {

using namespace bench;
using pingpong::now_ticks;

/// The registrar of the cache: a transport's domain.
class device {
public:
    using handle = rc::region;
    explicit device(registrar& with) noexcept : with_(with) {}

    [[nodiscard]] std::optional<rc::region> register_memory(std::span<std::byte> pages,
                                                            rc::access_rights) noexcept {
        try {
            return with_.register_memory(pages);
        } catch (const std::exception&) {
            return std::nullopt;
        }
    }
    void deregister(rc::region& registered) noexcept { registered.reset(); }

private:
    registrar& with_;
};

class mapping {
public:
    explicit mapping(std::size_t bytes) : bytes_(bytes) {
        void* const got = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (got == MAP_FAILED) throw std::system_error(errno, std::system_category(), "mmap");
        memory_ = static_cast<std::byte*>(got);
        std::memset(memory_, 0x5a, bytes);
    }
    mapping(const mapping&) = delete;
    mapping& operator=(const mapping&) = delete;
    ~mapping() { ::munmap(memory_, bytes_); }
    [[nodiscard]] std::span<std::byte> memory() const noexcept { return {memory_, bytes_}; }

private:
    std::size_t bytes_;
    std::byte* memory_ = nullptr;
};

/// Times of one kind.
class timing {
public:
    explicit timing(double ns_per_tick) noexcept : ns_per_tick_(ns_per_tick) {}
    template <class What>
    void take(What&& what) {
        const pingpong::tick_count begin = now_ticks();
        what();
        times_.push_back(static_cast<double>(now_ticks() - begin) * ns_per_tick_);
    }
    [[nodiscard]] double typical() { return median(times_); }

private:
    double ns_per_tick_;
    std::vector<double> times_;
};

void measure(registrar& domain, const transport_entry& transport, std::size_t bytes, const settings& asked,
             report& out) {
    const mapping memory(bytes);
    const double ns = out.ns_per_tick();
    timing registering(ns);
    timing deregistering(ns);
    for (std::uint64_t i = 0; i < asked.repeat; ++i) {
        rc::region region;
        registering.take([&] { region = domain.register_memory(memory.memory()); });
        if (!region) throw run_error("no memory of " + size_text(bytes) + " could be registered");
        deregistering.take([&] { region.reset(); });
    }

    device with(domain);
    rc::registration_cache<device> cache(with);
    timing missing(ns);
    timing hitting(ns);
    timing releasing(ns);
    timing dropping(ns);
    for (std::uint64_t i = 0; i < asked.repeat; ++i) {
        rc::registration_cache<device>::lease lease;
        const auto acquire = [&] { lease = cache.acquire(memory.memory(), rc::access_rights::all); };
        missing.take(acquire);
        if (!lease) throw run_error("the cache could not register " + size_text(bytes));
        lease.reset();
        if (cache.keeps()) {
            hitting.take(acquire);
            releasing.take([&] { lease.reset(); });
            dropping.take([&] { cache.clear(); });
        }
    }
    const rc::registration_cache_statistics counts = cache.statistics();
    if (counts.misses != asked.repeat || counts.hits != (cache.keeps() ? asked.repeat : 0))
        throw run_error("the cache did not hit and miss as it should");
    const auto text = [&](timing& of) { return cache.keeps() ? time_text(of.typical()) : std::string("-"); };
    nlohmann::ordered_json fields = {{"transport", transport.name},
                                     {"bytes", bytes},
                                     {"register_ns", rounded(registering.typical())},
                                     {"deregister_ns", rounded(deregistering.typical())},
                                     {"cache_miss_ns", rounded(missing.typical())}};
    if (cache.keeps()) {
        fields["cache_hit_ns"] = rounded(hitting.typical());
        fields["cache_release_ns"] = rounded(releasing.typical());
        fields["cache_drop_ns"] = rounded(dropping.typical());
    }
    out.row({size_text(bytes), time_text(registering.typical()), time_text(deregistering.typical()),
             time_text(missing.typical()), text(hitting), text(releasing), text(dropping)},
            std::move(fields));
}

void run(int argc, char** argv) {
    command_line line("registration",
                      "Measures what it costs to register memory with a transport, with and without the "
                      "registration cache.",
                      {.pair = false,
                       .sizes = "4K,64K,1M,16M",
                       .repeat = "200",
                       .repeat_help = "Times that each is done, whose median counts",
                       .rounds = ""});
    if (!line.parse(argc, argv)) return;
    pingpong::pin_to(line.asked.cpus.front());
    report out(line.asked, {{"size", 6},
                            {"register", 10},
                            {"deregister", 10},
                            {"miss", 10},
                            {"hit", 10},
                            {"release", 10},
                            {"drop", 10}});
    for (const transport_entry* transport : line.asked.transports) {
        out.section(std::string(transport->name));
        transport->with_domain([&](registrar& domain) {
            for (const std::size_t bytes : line.asked.sizes)
                measure(domain, *transport, bytes, line.asked, out);
        });
    }
    out.finish();
}

}  // namespace

int main(int argc, char** argv) { return bench::run_program("registration", argc, argv, run); }
