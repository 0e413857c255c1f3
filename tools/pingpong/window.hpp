// Many operations of one kind under way at a time, without an allocation for each.
#pragma once

#include <rdmacoro/coro/start.hpp>

#include <cstddef>
#include <memory>
#include <new>
#include <utility>

namespace pingpong {

/// Places for started operations. Each is begun, awaited and ended in turn:
///     window.begin(k, peer.send(bytes));
///     co_await window[k];
///     window.end(k);
/// An exception that unwinds the window cancels those that were begun.
template <class Op>
class operation_window {
public:
    explicit operation_window(std::size_t places)
        : places_(std::make_unique<place[]>(places)), count_(places) {}
    operation_window(const operation_window&) = delete;
    operation_window& operator=(const operation_window&) = delete;
    ~operation_window() {
        for (std::size_t k = 0; k < count_; ++k) {
            if (places_[k].used) end(k);
        }
    }

    void begin(std::size_t k, Op&& operation) {
        std::construct_at(&places_[k].operation, std::move(operation));
        places_[k].used = true;
    }
    [[nodiscard]] rdmacoro::started<Op>& operator[](std::size_t k) noexcept { return places_[k].operation; }
    void end(std::size_t k) noexcept {
        places_[k].used = false;
        std::destroy_at(&places_[k].operation);
    }

private:
    struct alignas(64) place {
        place() noexcept {}
        ~place() {}
        union {
            rdmacoro::started<Op> operation;
        };
        bool used = false;
    };

    std::unique_ptr<place[]> places_;
    std::size_t count_;
};

}  // namespace pingpong
