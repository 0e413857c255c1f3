// cereal: types that have cereal's functions as values of messages and calls. Needs cereal, 1.3 or newer.
#pragma once

#include <rdmacoro/service/codec.hpp>

#include <cereal/cereal.hpp>
#include <cereal/types/memory.hpp>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <limits>
#include <memory>
#include <new>
#include <ranges>
#include <span>
#include <string_view>
#include <type_traits>
#include <unordered_map>
#include <utility>

namespace rdmacoro {

namespace detail {

/// Bytes that end with the call that writes them.
struct passing_bytes {
    const void* data;
    std::size_t length;
};

/// Numbers that cereal's archives below take as their bytes.
template <class T>
concept cereal_number = std::is_arithmetic_v<T> && !std::is_same_v<T, long double>;  // that has padding

/// Pointers to the rows of `cereal::binary_data`: of these, and of what the user takes for bytes.
template <class T>
concept cereal_binary =
    !std::is_same_v<std::remove_cv_t<std::remove_pointer_t<std::remove_reference_t<T>>>, long double>;

template <class T>
inline constexpr bool is_cereal_size = false;
template <class T>
inline constexpr bool is_cereal_size<cereal::SizeTag<T>> = true;

/// What cereal reads a shared pointer into: the type of its object.
template <class T>
struct cereal_pointee {
    using type = void;
};
template <class T>
struct cereal_pointee<cereal::memory_detail::PtrWrapper<std::shared_ptr<T>&>> {
    using type = std::remove_const_t<T>;
};
/// Memory that is taken for the object of a pointer that is not shared, beside that of what is within; 0: it is no such pointer.
template <class T>
inline constexpr std::size_t cereal_unique_bytes = 0;
template <class T, class D>
inline constexpr std::size_t cereal_unique_bytes<cereal::memory_detail::PtrWrapper<std::unique_ptr<T, D>&>> =
    sizeof(T) + 2 * sizeof(void*);
template <class T>
inline constexpr bool is_weak_pointer = false;
template <class T>
inline constexpr bool is_weak_pointer<std::weak_ptr<T>> = true;
template <class T>
inline constexpr bool is_deferred = false;
template <class T>
inline constexpr bool is_deferred<cereal::DeferredData<T>> = true;
/// What is written or read behind the rest, in turn.
class cereal_deferments {
public:
    void add(std::function<void()> one) { waiting_.push_back(std::move(one)); }
    void run() {
        while (!waiting_.empty()) {
            const std::function<void()> next = std::move(waiting_.front());
            waiting_.pop_front();
            next();
        }
    }

private:
    std::deque<std::function<void()>> waiting_;
};
/// What holds the elements: for a part of an object that is written by the name of its base class, that one.
template <class T>
struct cereal_holder {
    using type = T;
};
template <class T>
struct cereal_holder<cereal::base_class<T>> : cereal_holder<std::remove_const_t<T>> {};
template <class T>
struct cereal_holder<cereal::virtual_base_class<T>> : cereal_holder<std::remove_const_t<T>> {};
/// Memory that a container takes when it has no element: a deque has its first block.
template <class T>
inline constexpr std::size_t cereal_empty_bytes = sizeof(T);
template <class T, class A>
inline constexpr std::size_t cereal_empty_bytes<std::deque<T, A>> = 1024;
/// Whether each of its values takes a byte of a message, at least. Those of a class that has functions of its own may take none.
template <class T>
inline constexpr bool cereal_takes_bytes = std::is_arithmetic_v<T> || std::is_enum_v<T> ||
                                           (std::ranges::range<T> && requires(T& row) { row.clear(); });
template <class T>
inline constexpr bool cereal_takes_bytes<std::shared_ptr<T>> = true;
template <class T>
inline constexpr bool cereal_takes_bytes<std::weak_ptr<T>> = true;
template <class T, class D>
inline constexpr bool cereal_takes_bytes<std::unique_ptr<T, D>> = true;
template <class A, class B>
inline constexpr bool cereal_takes_bytes<std::pair<A, B>> =
    cereal_takes_bytes<std::remove_const_t<A>> || cereal_takes_bytes<B>;
/// Its address stands for a type.
template <class T>
inline constexpr char cereal_type_tag = 0;

}  // namespace detail

/// Internal: how these travel.
template <>
struct codec<detail::passing_bytes> {
    static constexpr std::string_view name = "bytes";  ///< never part of a signature
    /// Appends them.
    static void write(encoder& to, const detail::passing_bytes& value) {
        to.row({static_cast<const std::byte*>(value.data), value.length});
    }
    /// They have no place of their own.
    static bool read(decoder& from, detail::passing_bytes&) { return from.refuse("bytes without a place"); }
};

/// An archive of cereal's that appends to a message. Everything is copied, as cereal lets a type write what ends with its function.
class cereal_output : public cereal::OutputArchive<cereal_output, cereal::AllowEmptyClassElision> {
    using base = cereal::OutputArchive<cereal_output, cereal::AllowEmptyClassElision>;

public:
    /// Into `to`, which is borrowed.
    explicit cereal_output(encoder& to) : base(this), to_(to) {}

    /// For cereal's functions: writes values, one after the other.
    template <class... T>
    cereal_output& operator()(T&&... from) {
        (one(from), ...);
        return *this;
    }
    /// The same for one.
    template <class T>
    cereal_output& operator&(T&& from) {
        one(from);
        return *this;
    }
    /// The same for one.
    template <class T>
    cereal_output& operator<<(T&& from) {
        one(from);
        return *this;
    }
    /// For cereal's functions: writes what was deferred, and what that defers. cereal's own runs through a list that grows meanwhile.
    void serializeDeferments() { deferred_.run(); }

    /// For cereal's functions: appends bytes.
    void save_bytes(const void* data, std::size_t length) { to_.write(detail::passing_bytes{data, length}); }

private:
    template <class T>
    void one(T& from) {
        if constexpr (detail::is_deferred<std::remove_const_t<T>>) {
            deferred_.add([this, from]() mutable { one(from.value); });
        } else {
            base::operator()(from);
        }
    }
    encoder& to_;
    detail::cereal_deferments deferred_;
};

/// An archive of cereal's that reads what a peer sent. Sizes of ranges are compared with what arrived and with `decode_limits` before
/// memory is taken, bools with their range, and the depth with its limit; what is wrong is a `cereal::Exception`.
class cereal_input : public cereal::InputArchive<cereal_input, cereal::AllowEmptyClassElision> {
    using base = cereal::InputArchive<cereal_input, cereal::AllowEmptyClassElision>;

public:
    /// Of `from`, which is borrowed.
    explicit cereal_input(decoder& from) : base(this), from_(from) {}

    /// For cereal's functions: reads values, one after the other.
    template <class... T>
    cereal_input& operator()(T&&... into) {
        (one(into), ...);
        return *this;
    }
    /// The same for one.
    template <class T>
    cereal_input& operator&(T&& into) {
        one(into);
        return *this;
    }
    /// The same for one.
    template <class T>
    cereal_input& operator>>(T&& into) {
        one(into);
        return *this;
    }

    /// For cereal's functions: reads what was deferred, and what that defers.
    void serializeDeferments() { deferred_.run(); }

    /// For cereal's functions: reads bytes.
    void load_bytes(void* into, std::size_t length) {
        check(from_.read_row({static_cast<std::byte*>(into), length}));
    }
    /// For cereal's functions: reads numbers that lie in a row.
    template <class T>
    void load_numbers(T* into, std::size_t bytes) {
        if constexpr (std::is_same_v<T, bool>) {
            for (bool* const end = into + bytes; into != end; ++into) check(from_.read(*into));
        } else {
            load_bytes(into, bytes);
        }
    }
    /// For cereal's functions: an object that later pointers of the message may refer to by `id`.
    void registerSharedPointer(std::uint32_t id, const std::shared_ptr<void>& object) {
        check(from_.take_room(1, pointee_.bytes));
        pointee_.id = id & ~cereal::detail::msb_32bit;
        shared_[pointee_.id] = {object, pointee_.type, false};
    }
    /// For cereal's functions: an object that was read before. cereal itself takes it for one of any type. One that is being read is
    /// refused, too, but to a weak pointer: it would own itself, and never be destroyed.
    [[nodiscard]] std::shared_ptr<void> getSharedPointer(std::uint32_t id) {
        if (id == 0) return nullptr;
        const auto found = shared_.find(id);
        if (found == shared_.end()) refuse("a pointer to an object that was not read");
        if (found->second.type != pointee_.type) refuse("a pointer to an object of another type");
        if (!found->second.whole && !pointee_.weak) refuse("a pointer to an object within itself");
        return found->second.object;
    }
    /// For cereal's functions: reads how many elements follow, for which memory is taken next.
    template <class Size>
    void load_size(Size& into) {
        cereal::size_type count = 0;
        load_bytes(&count, sizeof count);
        if (element_.takes_bytes && count > from_.left())
            refuse("a range that goes past the end of the message");
        check(from_.take_room(count, element_.bytes));
        if (!std::in_range<Size>(count)) refuse("a size that its type does not hold");
        into = static_cast<Size>(count);
    }

private:
    /// The element that the next size counts.
    struct element {
        std::size_t bytes = 1;    // each takes in memory, at least
        bool takes_bytes = true;  // of the message
    };
    template <class T>
    static constexpr element element_within() noexcept {
        using holder = typename detail::cereal_holder<T>::type;
        if constexpr (requires { typename holder::value_type; }) {
            using type = typename holder::value_type;
            return {detail::cereal_empty_bytes<type> +
                        (std::ranges::random_access_range<holder> ? 0 : 4 * sizeof(void*)),
                    detail::cereal_takes_bytes<type>};
        } else {
            return {};
        }
    }
    template <class T>
    void one(T& into) {
        if constexpr (detail::is_deferred<std::remove_const_t<T>>) {
            // As deep as it would be in its place.
            deferred_.add([this, into, depth = depth_]() mutable {
                const unsigned outside = std::exchange(depth_, depth);
                one(into.value);
                depth_ = outside;
            });
        } else {
            read(into);
        }
    }
    template <class T>
    void read(T& into) {
        if (depth_ == levels_each * from_.limits().depth) refuse("a value that is nested too deep");
        const element before = element_;
        if constexpr (!detail::is_cereal_size<T>) element_ = element_within<T>();
        ++depth_;
        using type = std::remove_const_t<T>;
        using pointed = typename detail::cereal_pointee<type>::type;
        if constexpr (!std::is_void_v<pointed>) {
            const pointee here{&detail::cereal_type_tag<pointed>, 0, sizeof(pointed) + 4 * sizeof(void*),
                               std::exchange(weak_, false)};
            const pointee outside = std::exchange(pointee_, here);
            base::operator()(into);
            if (pointee_.id != 0) shared_[pointee_.id].whole = true;
            pointee_ = outside;
        } else if constexpr (detail::is_weak_pointer<type>) {
            weak_ = true;
            base::operator()(into);
            weak_ = false;
        } else {
            base::operator()(into);
            // The levels of a value are limited, and with them what is taken before it is charged.
            if constexpr (detail::cereal_unique_bytes<type> != 0) {
                if (into.ptr) check(from_.take_room(1, detail::cereal_unique_bytes<type>));
            }
        }
        --depth_;
        element_ = before;
    }
    [[noreturn]] void refuse(const char* why) {
        from_.refuse(why);
        throw cereal::Exception(why);
    }
    void check(bool read) {
        if (!read) throw cereal::Exception(from_.why());
    }

    static constexpr unsigned levels_each = 8;  // of this archive, for a range or pointer within another

    /// Of the shared pointer that is being read.
    struct pointee {
        const char* type = nullptr;
        std::uint32_t id = 0;   // 0: its object is none, or was read before
        std::size_t bytes = 0;  // that the object takes
        bool weak = false;      // it is read for a weak pointer
    };
    struct shared_object {
        std::shared_ptr<void> object;
        const char* type = nullptr;
        bool whole = false;  // all of it was read
    };

    decoder& from_;
    element element_;
    pointee pointee_;
    bool weak_ = false;  // the next pointer is what a weak one is made of
    std::unordered_map<std::uint32_t, shared_object> shared_;  // by the ids of the message
    detail::cereal_deferments deferred_;
    unsigned depth_ = 0;
};

/// Whether values of `T` travel by cereal's functions: where `serialize`, or `save` and `load`, are members of it. Specialize it as true for a
/// type with functions that are not members; types of the standard library keep their own encoding.
template <class T>
inline constexpr bool travels_by_cereal =
    std::is_class_v<T> && (cereal::traits::has_member_serialize<T, cereal_output>::value ||
                           cereal::traits::has_member_versioned_serialize<T, cereal_output>::value ||
                           cereal::traits::has_member_save<T, cereal_output>::value ||
                           cereal::traits::has_member_versioned_save<T, cereal_output>::value);

/// Part of the signature of such a type. What the functions write is not looked at: specialize it with a name of its own for each type that
/// two programs might take for another.
template <class T>
inline constexpr std::string_view cereal_name = "cereal";

/// Types with cereal's functions as values of messages and calls.
template <class T>
    requires(travels_by_cereal<T>)
struct codec<T> {
    static constexpr std::string_view name = cereal_name<T>;  ///< in signatures
    /// By `serialize` or `save`.
    static void write(encoder& to, const T& value) {
        cereal_output archive(to);
        archive(value);
        archive.serializeDeferments();
    }
    /// By `serialize` or `load`. An exception refuses the value, but for `std::bad_alloc`.
    static bool read(decoder& from, T& into) {
        try {
            cereal_input archive(from);
            archive(into);
            archive.serializeDeferments();
            return true;
        } catch (const std::bad_array_new_length&) {  // by a length of the peer's
        } catch (const std::bad_alloc&) {
            throw;
        } catch (...) {}
        return from.refuse("a value that its type's function for cereal does not take");
    }
};

}  // namespace rdmacoro

/// cereal looks for these in its own namespace.
namespace cereal {

/// Internal: a number is its bytes.
template <rdmacoro::detail::cereal_number T>
void CEREAL_SAVE_FUNCTION_NAME(rdmacoro::cereal_output& to, const T& value) {
    to.save_bytes(&value, sizeof value);
}
/// Internal: a number is its bytes.
template <rdmacoro::detail::cereal_number T>
void CEREAL_LOAD_FUNCTION_NAME(rdmacoro::cereal_input& from, T& into) {
    from.load_numbers(&into, sizeof into);
}
/// Internal: names do not travel.
template <class Archive, class T>
    requires(std::is_same_v<Archive, rdmacoro::cereal_output> ||
             std::is_same_v<Archive, rdmacoro::cereal_input>)
void CEREAL_SERIALIZE_FUNCTION_NAME(Archive& archive, NameValuePair<T>& pair) {
    archive(pair.value);
}
/// Internal: a size, in 8 bytes.
template <class T>
void CEREAL_SAVE_FUNCTION_NAME(rdmacoro::cereal_output& to, const SizeTag<T>& size) {
    const auto count = static_cast<size_type>(size.size);
    to.save_bytes(&count, sizeof count);
}
/// Internal: a size, checked.
template <class T>
void CEREAL_LOAD_FUNCTION_NAME(rdmacoro::cereal_input& from, SizeTag<T>& size) {
    from.load_size(size.size);
}
/// Internal: a row of numbers.
template <rdmacoro::detail::cereal_binary T>
void CEREAL_SAVE_FUNCTION_NAME(rdmacoro::cereal_output& to, const BinaryData<T>& row) {
    to.save_bytes(row.data, static_cast<std::size_t>(row.size));
}
/// Internal: a row of numbers.
template <rdmacoro::detail::cereal_binary T>
void CEREAL_LOAD_FUNCTION_NAME(rdmacoro::cereal_input& from, BinaryData<T>& row) {
    using number = std::remove_pointer_t<std::remove_reference_t<T>>;
    from.load_numbers(static_cast<number*>(row.data), static_cast<std::size_t>(row.size));
}

}  // namespace cereal

CEREAL_REGISTER_ARCHIVE(rdmacoro::cereal_output)
CEREAL_REGISTER_ARCHIVE(rdmacoro::cereal_input)
CEREAL_SETUP_ARCHIVE_TRAITS(rdmacoro::cereal_input, rdmacoro::cereal_output)
