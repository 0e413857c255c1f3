// kept_value: a value of any type, kept until its owner ends; short ones without allocation.
#pragma once

#include <cstddef>
#include <memory>
#include <new>
#include <type_traits>
#include <utility>

namespace rdmacoro::detail {

class kept_value {
public:
    kept_value() noexcept = default;
    kept_value(const kept_value&) = delete;
    kept_value& operator=(const kept_value&) = delete;
    ~kept_value() { clear(); }

    /// Keeps `value`, in place of the one before.
    template <class T>
    std::remove_cvref_t<T>& keep(T&& value) {
        using type = std::remove_cvref_t<T>;
        clear();
        if constexpr (sizeof(type) <= sizeof place_ && alignof(type) <= alignof(std::max_align_t)) {
            type* const made = ::new (static_cast<void*>(place_)) type(static_cast<T&&>(value));
            at_ = made;
            end_ = [](void* at) noexcept { std::destroy_at(static_cast<type*>(at)); };
            return *made;
        } else {
            auto* const made = new type(static_cast<T&&>(value));
            at_ = made;
            end_ = [](void* at) noexcept { delete static_cast<type*>(at); };
            return *made;
        }
    }
    /// Ends the value that it has.
    void clear() noexcept {
        if (end_ != nullptr) std::exchange(end_, nullptr)(at_);
    }

private:
    alignas(std::max_align_t) std::byte place_[64];
    void* at_ = nullptr;
    void (*end_)(void*) noexcept = nullptr;
};

}  // namespace rdmacoro::detail
