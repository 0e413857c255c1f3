// counted_ptr: shared ownership on one thread.
#pragma once

#include <cstdint>
#include <utility>

namespace rdmacoro::detail {

/// Counts its owners. For one thread.
class counted {
public:
    counted() noexcept = default;
    counted(const counted&) = delete;
    counted& operator=(const counted&) = delete;
    /// How many `counted_ptr` refer to it.
    [[nodiscard]] std::uint32_t owners() const noexcept { return owners_; }

protected:
    virtual ~counted() = default;  // protected: only a counted_ptr deletes it

private:
    template <class T>
    friend class counted_ptr;

    static void drop(counted* last) noexcept { delete last; }

    std::uint32_t owners_ = 0;
};

/// One of the owners of a `counted`; the last one deletes it.
template <class T>
class counted_ptr {
public:
    counted_ptr() noexcept = default;
    explicit counted_ptr(T* to) noexcept : to_(to) {
        if (to_ != nullptr) ++count();
    }
    counted_ptr(const counted_ptr& other) noexcept : counted_ptr(other.to_) {}
    counted_ptr(counted_ptr&& other) noexcept : to_(std::exchange(other.to_, nullptr)) {}
    counted_ptr& operator=(counted_ptr other) noexcept {
        std::swap(to_, other.to_);
        return *this;
    }
    ~counted_ptr() {
        if (to_ != nullptr && --count() == 0) counted::drop(static_cast<counted*>(to_));
    }

    [[nodiscard]] T* get() const noexcept { return to_; }
    [[nodiscard]] T& operator*() const noexcept { return *to_; }
    [[nodiscard]] T* operator->() const noexcept { return to_; }
    [[nodiscard]] explicit operator bool() const noexcept { return to_ != nullptr; }
    void reset() noexcept { counted_ptr().swap(*this); }
    void swap(counted_ptr& other) noexcept { std::swap(to_, other.to_); }

private:
    [[nodiscard]] std::uint32_t& count() const noexcept { return static_cast<counted*>(to_)->owners_; }

    T* to_ = nullptr;
};

}  // namespace rdmacoro::detail
