// recycled_pool: objects that are allocated once and used again and again, such as the transfers of a link.
#pragma once

#include <rdmacoro/coro/detail/config.hpp>
#include <rdmacoro/coro/intrusive_list.hpp>

#include <concepts>
#include <cstddef>
#include <new>
#include <vector>

namespace rdmacoro::detail {

/// An object of a `recycled_pool`:
///  1. it is made without arguments;
///  2. its list node links it into the pool's free list while it is unused, and into any list of its user's otherwise.
template <class T>
concept recyclable = std::default_initializable<T> && std::derived_from<T, list_node<T>>;

/// Addresses of a pool's objects, in the order in which they were made.
class pool_addresses {
public:
    [[nodiscard]] std::size_t size() const noexcept { return addresses_.size(); }
    [[nodiscard]] void* at(std::size_t place) const noexcept { return addresses_[place]; }
    /// False: there is no memory.
    [[nodiscard]] bool add(void* object) noexcept;

private:
    std::vector<void*> addresses_;
};

/// Owns its objects. Each has a place, the number of those made before it. Allocates when all objects are in use; frees when
/// it is destroyed, also the objects that are in use.
template <recyclable T>
class recycled_pool {
public:
    recycled_pool() noexcept = default;
    recycled_pool(const recycled_pool&) = delete;
    recycled_pool& operator=(const recycled_pool&) = delete;
    ~recycled_pool() {
        for (std::size_t place = 0; place < made_.size(); ++place) {
            T* object = &(*this)[place];
            object->unlink();
            delete object;
        }
    }

    /// An unused object, in no list; nullptr: there is no memory. `prepare(object, place)` is called for a new one.
    template <class Prepare>
    [[nodiscard]] T* take(Prepare prepare) noexcept {
        if (T* recycled = free_.pop_front()) return recycled;
        T* made = new (std::nothrow) T;
        if (made == nullptr || !made_.add(made)) {
            delete made;
            return nullptr;
        }
        prepare(*made, made_.size() - 1);
        return made;
    }
    [[nodiscard]] T* take() noexcept {
        return take([](T&, std::size_t) noexcept {});
    }
    /// Takes `object` out of its list and keeps it for the next `take`.
    void give(T& object) noexcept {
        object.unlink();
        free_.push_back(object);
    }

    /// Objects made so far, used or not.
    [[nodiscard]] std::size_t size() const noexcept { return made_.size(); }
    /// Whether `take` allocates.
    [[nodiscard]] bool exhausted() const noexcept { return free_.empty(); }
    [[nodiscard]] T& operator[](std::size_t place) const noexcept {
        return *static_cast<T*>(made_.at(place));
    }

private:
    pool_addresses made_;
    intrusive_list<T> free_;
};

}  // namespace rdmacoro::detail

#if !defined(RDMACORO_SEPARATE_COMPILATION)
#include <rdmacoro/transport/detail/impl/recycled_pool.ipp>
#endif
