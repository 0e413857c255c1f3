// ofi_floor: the speed that two processes reach by libfabric's own calls alone.
//
// Reliable datagram endpoints, untagged messages into receives that were posted beforehand, completions polled without
// sleeping, short messages injected. A figure of the toolkit over a provider means something only beside the bare
// loop over the same provider, in the same minutes: bench/ofi_peers takes both in turn.
#include "../tools/pingpong/cpus.hpp"
#include "../tools/pingpong/failure.hpp"
#include "../tools/pingpong/listening_process.hpp"
#include "../tools/pingpong/machine.hpp"
#include "../tools/pingpong/output.hpp"
#include "../tools/pingpong/program.hpp"
#include "../tools/pingpong/samples.hpp"
#include "../tools/pingpong/sizes.hpp"
#include "../tools/pingpong/ticks.hpp"
#include "../tools/pingpong/watch.hpp"

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <exception>
#include <functional>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include <sys/mman.h>

namespace {

using pingpong::now_ticks;
using pingpong::run_error;
using pingpong::tick_count;
using pingpong::usage_error;
using pingpong::watch;

struct settings {
    std::string provider = "tcp;ofi_rxm";
    std::string host = "127.0.0.1";
    std::string tests = "latency,bandwidth";
    std::string sizes = "8";
    std::uint64_t iterations = 0;  ///< 0: so many as take a good second
    std::size_t window = 64;
    bool descriptor = false;  ///< of the completion queue; a queue that has one pays for it at each poll
    std::uint64_t repeat = 1;
    std::string cpus;
    std::string json;
    std::uint64_t timeout_seconds = 60;
};

void must(ssize_t result, const char* what) {
    if (result < 0) throw run_error(std::string(what) + ": " + fi_strerror(static_cast<int>(-result)));
}

struct closing {
    template <class Object>
    void operator()(Object* object) const {
        fi_close(&object->fid);
    }
};
template <class Object>
using owned = std::unique_ptr<Object, closing>;

struct freeing_info {
    void operator()(fi_info* info) const { fi_freeinfo(info); }
};
using owned_info = std::unique_ptr<fi_info, freeing_info>;

/// Throws with libfabric's text of the error.
owned_info ask(const fi_info& hints, const char* host) {
    fi_info* found = nullptr;
    const int result =
        fi_getinfo(FI_VERSION(1, 17), host, nullptr, host != nullptr ? FI_SOURCE : 0, &hints, &found);
    if (result != 0)
        throw run_error(std::string("provider \"") + hints.fabric_attr->prov_name +
                        "\": " + fi_strerror(-result) + "; fi_info -l lists the providers");
    return owned_info(found);
}

owned_info find_provider(const std::string& provider, const std::string& host) {
    const owned_info hints(fi_allocinfo());
    if (hints == nullptr) throw std::bad_alloc();
    hints->caps = FI_MSG;
    hints->mode = FI_CONTEXT | FI_CONTEXT2;
    hints->ep_attr->type = FI_EP_RDM;
    hints->domain_attr->mr_mode =
        FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY | FI_MR_ENDPOINT;
    hints->domain_attr->threading = FI_THREAD_DOMAIN;
    hints->tx_attr->msg_order = FI_ORDER_SAS;
    hints->rx_attr->msg_order = FI_ORDER_SAS;
    hints->fabric_attr->prov_name = ::strdup(provider.c_str());
    owned_info found = ask(*hints, nullptr);
    // Elsewhere an endpoint's name is the provider's affair, and a host is none.
    const std::uint32_t format = found->addr_format;
    if (format == FI_SOCKADDR || format == FI_SOCKADDR_IN || format == FI_SOCKADDR_IN6)
        found = ask(*hints, host.c_str());
    return found;
}

/// Memory whose operations each have a context of their own; registered where the provider asks for it.
struct slots {
    std::vector<std::byte> memory;
    std::vector<fi_context2> contexts;
    std::size_t stride = 0;
    std::size_t places = 0;  ///< in memory: fewer than operations where those are many and long
    owned<fid_mr> registered;
    void* descriptor = nullptr;

    [[nodiscard]] std::byte* at(std::size_t i) { return memory.data() + i % places * stride; }
    [[nodiscard]] bool has(const void* context) const {
        return context >= contexts.data() && context < contexts.data() + contexts.size();
    }
    [[nodiscard]] std::size_t index_of(const void* context) const {
        return static_cast<std::size_t>(static_cast<const fi_context2*>(context) - contexts.data());
    }
};

constexpr std::size_t most_memory = std::size_t{64} << 20;

/// One side: an endpoint, its peer's address, and one completion queue that is polled.
class bare_side {
public:
    explicit bare_side(const settings& asked) : info_(find_provider(asked.provider, asked.host)) {
        fid_fabric* fabric = nullptr;
        must(fi_fabric(info_->fabric_attr, &fabric, nullptr), "fi_fabric");
        fabric_.reset(fabric);
        fid_domain* domain = nullptr;
        must(fi_domain(fabric, info_.get(), &domain, nullptr), "fi_domain");
        domain_.reset(domain);
        fi_av_attr av_attributes{};
        av_attributes.type = FI_AV_TABLE;
        fid_av* av = nullptr;
        must(fi_av_open(domain, &av_attributes, &av, nullptr), "fi_av_open");
        addresses_.reset(av);
        fi_cq_attr cq_attributes{};
        cq_attributes.format = FI_CQ_FORMAT_MSG;
        cq_attributes.wait_obj = asked.descriptor ? FI_WAIT_FD : FI_WAIT_NONE;
        fid_cq* cq = nullptr;
        must(fi_cq_open(domain, &cq_attributes, &cq, nullptr), "fi_cq_open");
        queue_.reset(cq);
        fid_ep* ep = nullptr;
        must(fi_endpoint(domain, info_.get(), &ep, nullptr), "fi_endpoint");
        endpoint_.reset(ep);
        must(fi_ep_bind(ep, &av->fid, 0), "fi_ep_bind");
        must(fi_ep_bind(ep, &cq->fid, FI_TRANSMIT | FI_RECV), "fi_ep_bind");
        must(fi_enable(ep), "fi_enable");
    }

    [[nodiscard]] std::string name() const {
        std::string raw(512, '\0');
        std::size_t bytes = raw.size();
        must(fi_getname(&endpoint_->fid, raw.data(), &bytes), "fi_getname");
        raw.resize(bytes);
        return raw;
    }
    void know(const std::string& name) {
        if (fi_av_insert(addresses_.get(), name.data(), 1, &peer_, 0, nullptr) != 1)
            throw run_error("fi_av_insert: the provider does not take the other side's address");
    }

    /// Memory and receives for messages of at most so many bytes, so many under way at a time.
    void prepare(std::size_t bytes, std::size_t window) {
        const std::size_t receives = 2 * window;
        size(sends_, bytes, window);
        size(receives_, bytes, receives);
        in_use_.assign(window, false);
        free_sends_ = window;
        arrived_.reserve(receives);
        for (std::size_t i = 0; i != receives; ++i) post_receive(i);
    }

    [[nodiscard]] std::size_t inject_bytes() const { return info_->tx_attr->inject_size; }

    /// The memory of the next send: free.
    [[nodiscard]] std::byte* outgoing() {
        while (in_use_[next_send_]) poll();
        return sends_.at(next_send_);
    }
    void send(std::size_t bytes) {
        std::byte* const from = outgoing();
        ssize_t result = 0;
        if (bytes <= inject_bytes()) {
            while ((result = fi_inject(endpoint_.get(), from, bytes, peer_)) == -FI_EAGAIN) poll();
            must(result, "fi_inject");
        } else {
            while ((result = fi_send(endpoint_.get(), from, bytes, sends_.descriptor, peer_,
                                     &sends_.contexts[next_send_])) == -FI_EAGAIN)
                poll();
            must(result, "fi_send");
            in_use_[next_send_] = true;
            --free_sends_;
        }
        next_send_ = next_send_ + 1 == in_use_.size() ? 0 : next_send_ + 1;
    }
    void flush() {
        while (free_sends_ != in_use_.size()) poll();
    }

    struct message {
        std::size_t slot;
        std::size_t bytes;
    };
    /// The next message; its memory stays until `give_back`.
    [[nodiscard]] message receive() {
        while (taken_ == arrived_.size()) {
            arrived_.clear();
            taken_ = 0;
            poll();
        }
        return arrived_[taken_++];
    }
    [[nodiscard]] const std::byte* payload(const message& of) { return receives_.at(of.slot); }
    void give_back(const message& done) { post_receive(done.slot); }

    void poll() {
        std::array<fi_cq_msg_entry, 16> entries;
        const ssize_t count = fi_cq_read(queue_.get(), entries.data(), entries.size());
        if (count == -FI_EAGAIN) return;
        if (count == -FI_EAVAIL) failed();
        must(count, "fi_cq_read");
        for (std::size_t i = 0; i != static_cast<std::size_t>(count); ++i)
            settle(entries[i].op_context, entries[i].len);
    }

private:
    void size(slots& of, std::size_t bytes, std::size_t operations) {
        of.registered.reset();
        of.stride = (bytes + 63) / 64 * 64;
        of.places = std::clamp<std::size_t>(most_memory / of.stride, 1, operations);
        of.memory.assign(of.stride * of.places, std::byte{0});
        of.contexts.assign(operations, fi_context2{});
        if ((info_->domain_attr->mr_mode & FI_MR_LOCAL) == 0) return;
        fid_mr* made = nullptr;
        must(fi_mr_reg(domain_.get(), of.memory.data(), of.memory.size(), FI_SEND | FI_RECV, 0,
                       &of == &sends_ ? 1 : 2, 0, &made, nullptr),
             "fi_mr_reg");
        of.registered.reset(made);
        if ((info_->domain_attr->mr_mode & FI_MR_ENDPOINT) != 0) {
            must(fi_mr_bind(made, &endpoint_->fid, 0), "fi_mr_bind");
            must(fi_mr_enable(made), "fi_mr_enable");
        }
        of.descriptor = fi_mr_desc(made);
    }

    void post_receive(std::size_t slot) {
        ssize_t result = 0;
        while ((result = fi_recv(endpoint_.get(), receives_.at(slot), receives_.stride, receives_.descriptor,
                                 FI_ADDR_UNSPEC, &receives_.contexts[slot])) == -FI_EAGAIN)
            poll();
        must(result, "fi_recv");
    }

    void settle(const void* context, std::size_t bytes) {
        if (receives_.has(context)) {
            arrived_.push_back({receives_.index_of(context), bytes});
        } else if (sends_.has(context)) {
            in_use_[sends_.index_of(context)] = false;
            ++free_sends_;
        }
    }

    [[noreturn]] void failed() {
        fi_cq_err_entry error{};
        must(fi_cq_readerr(queue_.get(), &error, 0), "fi_cq_readerr");
        throw run_error(std::string("a completion failed: ") + fi_strerror(error.err));
    }

    owned_info info_;
    owned<fid_fabric> fabric_;
    owned<fid_domain> domain_;
    owned<fid_av> addresses_;
    owned<fid_cq> queue_;
    slots sends_;
    slots receives_;
    owned<fid_ep> endpoint_;
    fi_addr_t peer_ = FI_ADDR_UNSPEC;
    std::vector<bool> in_use_;
    std::size_t free_sends_ = 0;
    std::size_t next_send_ = 0;
    std::vector<message> arrived_;
    std::size_t taken_ = 0;  ///< of those that arrived
};

// ------------------------------------------------------------------------------------------ the measurements

enum class test_kind { latency, bandwidth };

/// One measurement: two processes of its own, so that libfabric is never used on both sides of a fork.
struct measurement {
    test_kind test;
    std::size_t bytes;
    std::uint64_t count;
    std::uint64_t warm_up;
    std::size_t window;

    [[nodiscard]] std::uint64_t all() const { return count + warm_up; }
    /// An acknowledgement is due after so many messages of a stream.
    [[nodiscard]] std::uint64_t often() const { return std::max<std::uint64_t>(window / 2, 1); }
};

/// Seen by all processes: the measuring side has its result.
class shared_flag {
public:
    shared_flag()
        : flag_(::mmap(nullptr, sizeof(std::atomic<bool>), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
                       -1, 0)) {
        if (flag_ == MAP_FAILED) throw run_error("mmap of a flag");
        new (flag_) std::atomic<bool>(false);
    }
    shared_flag(const shared_flag&) = delete;
    shared_flag& operator=(const shared_flag&) = delete;
    ~shared_flag() { ::munmap(flag_, sizeof(std::atomic<bool>)); }
    [[nodiscard]] std::atomic<bool>& operator*() const { return *static_cast<std::atomic<bool>*>(flag_); }

private:
    void* flag_;
};

constexpr std::byte mark_of(std::uint64_t index) { return static_cast<std::byte>(1 + index % 255); }

void check(const bare_side::message& got, std::size_t bytes) {
    if (got.bytes != bytes)
        throw run_error("a message of " + std::to_string(got.bytes) + " bytes instead of " +
                        std::to_string(bytes));
}

/// The other side: learns the measuring side's address from the first message, and answers.
void serve(const settings& asked, const measurement& what, int cpu, const std::atomic<bool>& over,
           const std::function<void(const std::string&)>& listening) {
    pingpong::pin_to(cpu);
    bare_side side(asked);
    const std::string mine = side.name();
    side.prepare(std::max(what.bytes, mine.size()), what.window);
    listening(mine);
    const bare_side::message first = side.receive();
    side.know(std::string(reinterpret_cast<const char*>(side.payload(first)), first.bytes));
    side.give_back(first);
    side.send(1);  // ready
    for (std::uint64_t i = 0; i != what.all(); ++i) {
        const bare_side::message got = side.receive();
        check(got, what.bytes);
        if (what.test == test_kind::latency) {
            side.outgoing()[what.bytes - 1] = side.payload(got)[what.bytes - 1];
            side.give_back(got);
            side.send(what.bytes);
        } else {
            side.give_back(got);
            if ((i + 1) % what.often() == 0 || i + 1 == what.all()) side.send(1);
        }
        watch::reached(i);
    }
    // The messages injected last might still have to be moved.
    while (!over.load(std::memory_order_relaxed)) side.poll();
}

/// Half round trips, in ticks. One's end is the next one's begin, as in pingpong.
void ping(bare_side& side, const measurement& what, pingpong::sample_log& into) {
    tick_count last = now_ticks();
    for (std::uint64_t i = 0; i != what.all(); ++i) {
        side.outgoing()[what.bytes - 1] = mark_of(i);
        side.send(what.bytes);
        const bare_side::message got = side.receive();
        const tick_count now = now_ticks();
        if (i >= what.warm_up) into.put(now - last);
        last = now;
        check(got, what.bytes);
        if (side.payload(got)[what.bytes - 1] != mark_of(i)) throw run_error("a reply is not what was sent");
        side.give_back(got);
        watch::reached(i);
    }
}

/// Ticks from the first message behind the warm-up to the last acknowledgement.
tick_count stream(bare_side& side, const measurement& what) {
    std::uint64_t acknowledged = 0;
    const auto take = [&] {
        side.give_back(side.receive());
        acknowledged = std::min(acknowledged + what.often(), what.all());
    };
    tick_count from = now_ticks();
    for (std::uint64_t i = 0; i != what.all(); ++i) {
        if (i == what.warm_up) from = now_ticks();
        while (i - acknowledged >= what.window) take();
        side.send(what.bytes);
        watch::reached(i);
    }
    while (acknowledged != what.all()) take();
    return now_ticks() - from;
}

/// The measuring side; prints its result as JSON.
void measure(const settings& asked, const measurement& what, int cpu, const std::string& other,
             const std::function<void(const std::string&)>& publish) {
    pingpong::pin_to(cpu);
    const pingpong::tick_facts ticks = pingpong::calibrate_ticks();
    bare_side side(asked);
    side.know(other);
    const std::string mine = side.name();
    side.prepare(std::max(what.bytes, mine.size()), what.window);
    std::memcpy(side.outgoing(), mine.data(), mine.size());
    side.send(mine.size());
    side.give_back(side.receive());  // it is ready

    nlohmann::ordered_json result{{"injected", what.bytes <= side.inject_bytes()}};
    if (what.test == test_kind::latency) {
        pingpong::sample_log samples;
        samples.prepare(what.count);
        ping(side, what, samples);
        const pingpong::summary times = pingpong::summarize(samples.all(), ticks.ns / 2);
        result["median_ns"] = pingpong::rounded(times.median);
        result["mean_ns"] = pingpong::rounded(times.mean);
        result["min_ns"] = pingpong::rounded(times.min);
        result["p99_ns"] = pingpong::rounded(times.p99);
    } else {
        const double seconds = static_cast<double>(stream(side, what)) * ticks.ns / 1e9;
        const double messages = static_cast<double>(what.count);
        result["messages_per_s"] = pingpong::rounded(messages / seconds);
        result["bytes_per_s"] = pingpong::rounded(messages * static_cast<double>(what.bytes) / seconds);
    }
    side.flush();
    publish(result.dump());
}

nlohmann::json run(const settings& asked, const measurement& what, const std::vector<int>& cpus) {
    const auto watched = [&](const char* name) {
        watch::begin(name, asked.timeout_seconds, false);
        watch::expect(pingpong::size_text(what.bytes) + " bytes", what.all());
    };
    const shared_flag over;
    pingpong::listening_process other("ofi_floor", [&](const auto& listening) {
        watched("ofi_floor, other side");
        serve(asked, what, cpus[1], *over, listening);
    });
    if (other.address().empty()) throw run_error("the other side did not begin");
    pingpong::listening_process measuring("ofi_floor", [&](const auto& publish) {
        watched("ofi_floor");
        measure(asked, what, cpus[0], other.address(), publish);
    });
    if (measuring.address().empty()) throw run_error("no result");
    const bool measured = measuring.ends_well();
    (*over).store(true, std::memory_order_relaxed);
    if (!measured || !other.ends_well()) throw run_error("a side did not end well");
    return nlohmann::json::parse(measuring.address());
}

/// So many that a measurement takes about a second over a network within one machine.
std::uint64_t usual_count(test_kind test, std::size_t bytes) {
    const double ns =
        test == test_kind::latency ? 4000 + static_cast<double>(bytes) : 300 + static_cast<double>(bytes) / 2;
    return std::clamp<std::uint64_t>(static_cast<std::uint64_t>(1e9 / ns), 50, 1'000'000);
}

struct row {
    measurement what;
    std::vector<nlohmann::json> runs;

    [[nodiscard]] double median(const char* field) const {
        std::vector<double> values;
        for (const nlohmann::json& one : runs) values.push_back(one.at(field).get<double>());
        std::sort(values.begin(), values.end());
        return values[values.size() / 2];
    }
};

std::vector<row> rows_of(const settings& asked) {
    std::vector<row> rows;
    for (const std::string& name : CLI::detail::split(asked.tests, ',')) {
        if (name != "latency" && name != "bandwidth")
            throw usage_error("--test: there is no \"" + name + "\"; there are latency, bandwidth");
        const test_kind test = name == "latency" ? test_kind::latency : test_kind::bandwidth;
        for (const std::size_t bytes : pingpong::parse_sizes(asked.sizes)) {
            if (bytes == 0) throw usage_error("--sizes: a message of 0 bytes has no last byte to look at");
            const std::uint64_t count = asked.iterations != 0 ? asked.iterations : usual_count(test, bytes);
            rows.push_back(
                {{test, bytes, count, count / 10, test == test_kind::latency ? 1 : asked.window}, {}});
        }
    }
    return rows;
}

void measure_all(const settings& asked) {
    std::vector<row> rows = rows_of(asked);
    std::vector<int> cpus = asked.cpus.empty() ? pingpong::usable_cpus() : pingpong::parse_cpus(asked.cpus);
    if (cpus.size() < 2 || cpus[0] == cpus[1]) throw usage_error("--cpus: two different CPUs, such as 0,1");
    pingpong::check_writable(asked.json);
    for (std::uint64_t i = 0; i != asked.repeat; ++i)
        for (row& one : rows) one.runs.push_back(run(asked, one.what, cpus));

    nlohmann::ordered_json results = nlohmann::ordered_json::array();
    if (asked.json != "-")
        std::printf("%s, one way\n%10s %12s %12s %12s\n", asked.provider.c_str(), "bytes", "median",
                    "M msg/s", "GB/s");
    for (const row& one : rows) {
        nlohmann::ordered_json fields{{"test", one.what.test == test_kind::latency ? "latency" : "bandwidth"},
                                      {"bytes", one.what.bytes},
                                      {"iterations", one.what.count},
                                      {"window", one.what.window},
                                      {"injected", one.runs.front().at("injected")}};
        std::string cells;
        if (one.what.test == test_kind::latency) {
            for (const char* field : {"median_ns", "mean_ns", "min_ns", "p99_ns"})
                fields[field] = one.median(field);
            cells = pingpong::time_text(one.median("median_ns"));
        } else {
            for (const char* field : {"messages_per_s", "bytes_per_s"}) fields[field] = one.median(field);
        }
        if (asked.json != "-") {
            const bool streams = cells.empty();
            std::printf("%10s %12s %12s %12s\n", pingpong::size_text(one.what.bytes).c_str(), cells.c_str(),
                        streams ? pingpong::number_text(one.median("messages_per_s") / 1e6, 4).c_str() : "",
                        streams ? pingpong::number_text(one.median("bytes_per_s") / 1e9, 3).c_str() : "");
        }
        results.push_back(std::move(fields));
    }
    if (asked.json.empty()) return;
    const pingpong::machine_facts machine = pingpong::describe_machine();
    const nlohmann::ordered_json document{
        {"program", "ofi_floor"},          {"provider", asked.provider},   {"cpu", machine.cpu},
        {"kernel", machine.kernel},        {"compiler", machine.compiler}, {"date", machine.date},
        {"pinned_to", {cpus[0], cpus[1]}}, {"repeat", asked.repeat},       {"results", std::move(results)}};
    pingpong::write_to(asked.json, document.dump(2) + "\n");
}

}  // namespace

int main(int argc, char** argv) {
    settings asked;
    CLI::App app("Measures what two processes reach by libfabric's own calls.", "ofi_floor");
    app.add_option("--provider", asked.provider, "As libfabric names it. Default: tcp;ofi_rxm")
        ->type_name("NAME");
    app.add_option("--host", asked.host, "This machine's address to use. Default: 127.0.0.1")
        ->type_name("HOST");
    app.add_option("--test", asked.tests, "latency, bandwidth, or both. Default: both")
        ->type_name("NAME,...");
    app.add_option("--sizes", asked.sizes, "Sizes: 8,1K,1M, or a range of powers of two, 1:1M. Default: 8")
        ->type_name("SIZE,...");
    app.add_option("--iterations", asked.iterations, "Messages of one measurement. Default: about a second's")
        ->type_name("N");
    app.add_option("--window", asked.window, "Messages under way in the bandwidth test. Default: 64")
        ->check(CLI::Range(1, 200).description(""))
        ->type_name("N");
    app.add_flag(
        "--descriptor", asked.descriptor,
        "Open the completion queue with a descriptor to sleep on, as what may sleep does; it is polled all "
        "the same");
    app.add_option("--repeat", asked.repeat,
                   "Measure everything so often, in turn, and show medians. Default: 1")
        ->check(CLI::Range(1, 1000).description(""))
        ->type_name("N");
    app.add_option("--cpus", asked.cpus, "Pin to these two CPUs: the measuring side's, then the other's")
        ->type_name("A,B");
    app.add_option("--timeout", asked.timeout_seconds,
                   "Give up when nothing moves for so long; 0: never. Default: 60")
        ->type_name("SECONDS");
    app.add_option("--json", asked.json, "Write the results as JSON; - is standard output")
        ->type_name("FILE");
    return pingpong::run_program("ofi_floor", [&] {
        try {
            app.parse(argc, argv);
        } catch (const CLI::Success& answered) {
            return app.exit(answered);
        } catch (const CLI::Error& wrong) {
            throw usage_error(std::string(wrong.what()) + "; --help lists the options");
        }
        measure_all(asked);
        return 0;
    });
}
