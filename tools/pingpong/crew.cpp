#include "crew.hpp"

#include <algorithm>
#include <utility>

namespace pingpong {

namespace {
/// The steps that this member has taken.
thread_local std::uint64_t steps_seen = 0;
}  // namespace

crew::~crew() { end(); }

void crew::start(const std::function<void(std::size_t)>& body) {
    for (std::size_t index = 1; index <= members_; ++index) {
        threads_.emplace_back([this, body, index] {
            steps_seen = 0;
            try {
                body(index);
            } catch (...) {
                fail(std::current_exception());
            }
        });
    }
}

void crew::begin(const step& next) {
    std::unique_lock holding(mutex_);
    check();
    step_ = next;
    done_ = 0;
    found_ = {};
    ++steps_;
    changed_.notify_all();
}

crew::findings crew::collect() {
    std::unique_lock holding(mutex_);
    changed_.wait(holding, [this] { return done_ == members_ || failed_; });
    check();
    return std::move(found_);
}

void crew::end() {
    {
        const std::unique_lock holding(mutex_);
        over_ = true;
        changed_.notify_all();
    }
    for (std::thread& one : threads_) one.join();
    threads_.clear();
}

std::optional<crew::step> crew::next() {
    std::unique_lock holding(mutex_);
    changed_.wait(holding, [this] { return steps_ != steps_seen || over_ || failed_; });
    check();
    if (steps_ == steps_seen) return std::nullopt;
    steps_seen = steps_;
    return step_;
}

void crew::done(tick_count took, std::span<const tick_count> samples,
                const std::vector<carried_by>& carried) {
    const std::unique_lock holding(mutex_);
    found_.longest = std::max(found_.longest, took);
    found_.samples.insert(found_.samples.end(), samples.begin(), samples.end());
    add_carried(found_.carried, carried);
    ++done_;
    changed_.notify_all();
}

void crew::meet() {
    std::unique_lock holding(mutex_);
    check();
    const std::uint64_t meeting = meetings_;
    if (++met_ == members_ + 1) {
        met_ = 0;
        ++meetings_;
        changed_.notify_all();
        return;
    }
    changed_.wait(holding, [&] { return meetings_ != meeting || failed_; });
    check();
}

void crew::fail(std::exception_ptr why) {
    const std::unique_lock holding(mutex_);
    if (!failed_) failed_ = std::move(why);
    changed_.notify_all();
}

void crew::check() const {
    if (failed_) std::rethrow_exception(failed_);
}

}  // namespace pingpong
