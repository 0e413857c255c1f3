// codec: values as bytes, and back, with every byte of a peer's checked.
//
// Belongs here: what is built from messaging alone: values as messages, and what will serve calls with them.
// Does not belong here: how a message is matched or travels (protocol/), what a single peer's operations are (messaging/).
#pragma once

#include <rdmacoro/coro/result.hpp>
#include <rdmacoro/memory/buffers.hpp>
#include <rdmacoro/service/signature.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <ranges>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <tuple>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

namespace rdmacoro {

/// The limits of a decoder.
struct decode_limits {
    /// Bytes that the decoded value may take, with the elements of all its ranges.
    std::size_t bytes = std::size_t{64} << 20;
    /// Ranges, optionals and variants within each other.
    unsigned depth = 32;
};

/// Makes bytes of values. Long rows of numbers are not copied but borrowed: the message is a list of pieces, some of which lie where the
/// value has them, so the values must live, unchanged, until the message is sent. For one thread.
class encoder {
public:
    /// `borrow_from`: rows of at least so many bytes are borrowed, shorter ones copied.
    explicit encoder(std::size_t borrow_from = 1024) noexcept : borrow_from_(borrow_from) {}
    encoder(const encoder&) = delete;
    encoder& operator=(const encoder&) = delete;
    ~encoder() = default;

    /// Appends the encoding of `value`. Of a temporary nothing is borrowed, unless it is a view such as `std::span`. Throws
    /// `std::bad_alloc`; what is there then is no message before `clear`.
    template <class T>
    void write(T&& value) {
        using type = std::remove_cvref_t<T>;
        static_assert(!std::is_array_v<type>,
                      "an array of C has no encoding: use std::array, std::string_view or std::span");
        if constexpr (!std::is_array_v<type> && detail::must_have_encoding<type>()) {
            constexpr bool ends_with_the_call =
                !std::is_lvalue_reference_v<T> && !std::ranges::borrowed_range<type>;
            const bool before = copies_;
            copies_ = before || ends_with_the_call;
            put(std::as_const(value));
            copies_ = before;
        }
    }

    /// Appends a number of things: 1 to 10 bytes.
    void write_length(std::uint64_t count) {
        for (; count >= 0x80; count >>= 7) write_byte(static_cast<unsigned char>(count | 0x80));
        write_byte(static_cast<unsigned char>(count));
    }

    /// Appends bytes: borrowed where they are many, and no temporary is being written.
    void row(std::span<const std::byte> bytes) {
        if (bytes.size() < borrow_from_ || bytes.empty() || copies_) return copy(bytes.data(), bytes.size());
        borrow(bytes);
    }

    /// The message, as a list of pieces. Valid until the next `write` or the encoder's end.
    [[nodiscard]] std::span<const std::span<const std::byte>> pieces();
    /// The whole message, copied together.
    [[nodiscard]] std::vector<std::byte> bytes() const;
    /// Of the message, in bytes.
    [[nodiscard]] std::size_t size() const noexcept { return used_ + borrowed_bytes_; }
    /// Bytes that were copied, of all that were written.
    [[nodiscard]] std::size_t copied() const noexcept { return used_; }
    /// Bytes of memory that it has for what is copied, and keeps.
    [[nodiscard]] std::size_t room() const noexcept { return room_; }
    /// Bytes that are written from now on can be taken back by `take_back`, as long as the message is not begun anew.
    void remember() noexcept {
        remembered_ = used_;
        remembered_rows_ = borrowed_.size();
    }
    /// The message is what it was at the last `remember`.
    void take_back() noexcept {
        copies_ = false;
        used_ = remembered_;
        for (; borrowed_.size() > remembered_rows_; borrowed_.pop_back())
            borrowed_bytes_ -= borrowed_.back().bytes.size();
    }
    /// Writes over the first bytes, which were written as many. Precondition: none of them was borrowed.
    void overwrite_front(std::span<const std::byte> bytes) noexcept {
        std::memcpy(own_.get(), bytes.data(), bytes.size());
    }
    /// Begins a new message. Keeps its memory.
    void clear() noexcept {
        copies_ = false;
        used_ = 0;
        borrowed_.clear();
        borrowed_bytes_ = 0;
    }

private:
    /// A row that lies elsewhere, and how many bytes of `own_` come before it.
    struct borrowed_row {
        std::span<const std::byte> bytes;
        std::size_t after;
    };

    template <class T>
    void put(const T& value) {
        using detail::encoding_kind;
        constexpr encoding_kind kind = detail::kind_of<T>();
        if constexpr (kind == encoding_kind::codec) {
            codec<T>::write(*this, value);
        } else if constexpr (kind == encoding_kind::flag) {
            write_byte(value ? 1 : 0);
        } else if constexpr (detail::bytes_are_value<T>()) {
            copy(std::addressof(value), sizeof value);
        } else if constexpr (kind == encoding_kind::duration) {
            put(value.count());
        } else if constexpr (kind == encoding_kind::optional) {
            write_byte(value ? 1 : 0);
            if (value) put(*value);
        } else if constexpr (kind == encoding_kind::variant) {
            if (value.valueless_by_exception())
                detail::throw_error(errc::invalid_argument, "encoder: a variant without a value");
            write_length(value.index());
            std::visit([&](const auto& held) { put(held); }, value);
        } else if constexpr (kind == encoding_kind::array) {
            for (const auto& one : value) put(one);
        } else if constexpr (kind == encoding_kind::tuple) {
            std::apply([&](const auto&... each) { (put(each), ...); }, value);
        } else if constexpr (kind == encoding_kind::aggregate) {
            std::apply([&](const auto&... each) { (put(each), ...); }, detail::members_of(value));
        } else if constexpr (detail::row_of_values<const T&>) {
            begin_range(std::ranges::size(value), detail::element_alignment<detail::element_of<T>>());
            row(std::as_bytes(std::span(std::ranges::data(value), std::ranges::size(value))));
        } else {
            begin_range(std::ranges::size(value), detail::element_alignment<detail::element_of<T>>());
            // Where the range makes its elements as it goes, they are temporaries.
            if constexpr (std::is_same_v<detail::element_of<T>, bool>) {
                for (const bool one : value) put(one);
            } else {
                for (auto&& one : value) write(std::forward<decltype(one)>(one));
            }
        }
    }
    /// How many elements follow. The first begins where a reader may read it in place.
    void begin_range(std::uint64_t count, std::size_t alignment) {
        write_length(count);
        if (count != 0 && alignment > 1) {
            for (; size() % alignment != 0;) write_byte(0);
        }
    }
    void write_byte(unsigned char byte) { copy(&byte, 1); }
    void copy(const void* from, std::size_t bytes) {
        if (bytes > room_ - used_) [[unlikely]]
            grow(bytes);
        detail::copy_long(own_.get() + used_, static_cast<const std::byte*>(from), bytes);
        used_ += bytes;
    }
    void borrow(std::span<const std::byte> bytes);
    void grow(std::size_t bytes);

    std::unique_ptr<std::byte[]> own_;
    std::size_t used_ = 0;
    std::size_t remembered_ = 0;
    std::size_t remembered_rows_ = 0;
    std::size_t room_ = 0;
    std::size_t borrow_from_;
    std::size_t borrowed_bytes_ = 0;
    bool copies_ = false;  // what is being written ends with the call
    std::vector<borrowed_row> borrowed_;
    std::vector<std::span<const std::byte>> list_;
};

/// Rows that a decoder had to copy, as they did not lie in the message as their elements must: views of them are valid as long as
/// this lives.
class copied_rows {
public:
    copied_rows() noexcept = default;
    copied_rows(const copied_rows&) = delete;
    copied_rows& operator=(const copied_rows&) = delete;
    ~copied_rows() = default;

    /// Of all of them.
    [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }

private:
    friend class decoder;
    /// Throws `std::bad_alloc`.
    const std::byte* add(std::span<const std::byte> row);

    std::vector<std::unique_ptr<std::byte[]>> rows_;
    std::size_t bytes_ = 0;
};

/// Makes values of bytes that a peer sent. Nothing is trusted: lengths are compared with what arrived, bools, optionals and variants with
/// their range, and the size of the result and its depth with the limits. After the first refusal nothing more is read.
class decoder {
public:
    /// `from` is borrowed, and so is it by each view that is read: `std::string_view`, and `std::span<const T>` of elements that are
    /// their encoding. A span of elements that do not lie there as they must, which only happens where `from` does not begin at
    /// a multiple of 8, is a view of `copies`, and is refused where there are none.
    explicit decoder(std::span<const std::byte> from, decode_limits limits = {},
                     copied_rows* copies = nullptr) noexcept
        : from_(from), limits_(limits), room_(limits.bytes), copies_(copies) {}

    /// Another value of the same message follows, which may take as much memory as the first.
    void begin_value() noexcept { room_ = limits_.bytes; }

    /// Reads one value into `into`; what a refused one holds is not said. Throws `std::bad_alloc`.
    template <class T>
    [[nodiscard]] bool read(T& into) {
        if constexpr (detail::must_have_encoding<T>()) {
            return why_ == nullptr && take(into);
        } else {
            return false;
        }
    }

    /// Reads what `encoder::write_length` wrote.
    [[nodiscard]] bool read_length(std::uint64_t& count) noexcept {
        count = 0;
        for (unsigned shift = 0; shift < 64; shift += 7) {
            unsigned char byte = 0;
            if (!copy(&byte, 1)) return false;
            if (shift == 63 && byte > 1) break;
            count |= static_cast<std::uint64_t>(byte & 0x7f) << shift;
            if (byte < 0x80)
                return (byte != 0 || shift == 0) || refuse("a length in more bytes than it needs");
        }
        return refuse("a length of more than 64 bits");
    }

    /// Reads so many bytes as `encoder::row` wrote, which does not say how many they are.
    [[nodiscard]] bool read_row(std::span<std::byte> into) noexcept { return copy(into.data(), into.size()); }

    /// To be asked before memory is taken for `count` things of `each` bytes: refuses where it is more than the limits allow.
    [[nodiscard]] bool take_room(std::uint64_t count, std::size_t each) noexcept {
        return why_ == nullptr && charge(count, each);
    }

    /// The value does not hold what its type promises. Answers false.
    bool refuse(const char* why) noexcept {
        if (why_ == nullptr) why_ = why;
        return false;
    }

    /// Why a value was refused; nullptr: none was.
    [[nodiscard]] const char* why() const noexcept { return why_; }
    /// As it was made with.
    [[nodiscard]] const decode_limits& limits() const noexcept { return limits_; }
    /// Bytes that are not read yet.
    [[nodiscard]] std::size_t left() const noexcept { return from_.size() - at_; }
    /// Bytes that were read.
    [[nodiscard]] std::size_t at() const noexcept { return at_; }
    /// Goes on behind what `at` said of the same bytes.
    void skip_to(std::size_t at) noexcept { at_ = at < from_.size() ? at : from_.size(); }
    /// Bytes of rows that were copied, of those that were read.
    [[nodiscard]] std::size_t copied() const noexcept { return copied_; }

private:
    /// While it lives, what is read is one level deeper.
    class level {
    public:
        explicit level(decoder& of) noexcept : of_(of), fits_(of.depth_ < of.limits_.depth) {
            ++of.depth_;
            if (!fits_) of.refuse("a value that is nested too deep");
        }
        level(const level&) = delete;
        level& operator=(const level&) = delete;
        ~level() { --of_.depth_; }
        explicit operator bool() const noexcept { return fits_; }

    private:
        decoder& of_;
        bool fits_;
    };

    template <class T>
    bool take(T& into) {
        using detail::encoding_kind;
        constexpr encoding_kind kind = detail::kind_of<T>();
        if constexpr (kind == encoding_kind::codec) {
            const level inner(*this);
            return inner && codec<T>::read(*this, into) && why_ == nullptr;
        } else if constexpr (kind == encoding_kind::flag) {
            return read_flag(into);
        } else if constexpr (detail::bytes_are_value<T>()) {
            return copy(std::addressof(into), sizeof into);
        } else if constexpr (kind == encoding_kind::duration) {
            typename T::rep count{};
            if (!take(count)) return false;
            into = T(count);
            return true;
        } else if constexpr (kind == encoding_kind::optional) {
            return read_optional(into);
        } else if constexpr (kind == encoding_kind::variant) {
            return read_variant(into);
        } else if constexpr (kind == encoding_kind::array) {
            for (auto& one : into) {
                if (!take(one)) return false;
            }
            return true;
        } else if constexpr (kind == encoding_kind::tuple) {
            return std::apply([&](auto&... each) { return (... && take(each)); }, into);
        } else if constexpr (kind == encoding_kind::aggregate) {
            return std::apply([&](auto&... each) { return (... && take(each)); }, detail::members_of(into));
        } else if constexpr (detail::is_view<T>) {
            return read_view(into);
        } else {
            return read_range(into);
        }
    }

    bool copy(void* into, std::size_t bytes) noexcept {
        if (why_ != nullptr) return false;
        if (bytes > left()) return refuse("a value that goes past the end of the message");
        detail::copy_long(static_cast<std::byte*>(into), from_.data() + at_, bytes);
        at_ += bytes;
        return true;
    }
    /// `count` elements of so many bytes are about to be kept.
    bool charge(std::uint64_t count, std::size_t each) noexcept {
        if (each != 0 && count > room_ / each)
            return refuse("a value that takes more memory than is allowed");
        room_ -= static_cast<std::size_t>(count) * each;
        return true;
    }
    bool read_flag(bool& into) noexcept {
        unsigned char byte = 0;
        if (!copy(&byte, 1)) return false;
        if (byte > 1) return refuse("a flag that is neither 0 nor 1");
        into = byte == 1;
        return true;
    }
    /// Not inlined: g++ 12 takes the value of an optional that is known to be empty for one that is read uninitialized.
    template <class T>
    [[gnu::noinline]] bool read_optional(std::optional<T>& into) {
        const level inner(*this);
        bool there = false;
        if (!inner || !read_flag(there)) return false;
        into.reset();
        return !there || take(into.emplace());
    }
    template <class... T>
    bool read_variant(std::variant<T...>& into) {
        const level inner(*this);
        std::uint64_t index = 0;
        if (!inner || !read_length(index)) return false;
        if (index >= sizeof...(T)) return refuse("an alternative that the variant does not have");
        return read_alternative(into, index, std::index_sequence_for<T...>());
    }
    template <class Variant, std::size_t... I>
    bool read_alternative(Variant& into, std::uint64_t index, std::index_sequence<I...>) {
        return (... || (I == index && take(into.template emplace<I>())));
    }
    /// Passes what stands before the first element of a range.
    bool skip_to_element(std::uint64_t count, std::size_t alignment) noexcept {
        if (count == 0 || alignment <= 1) return true;
        for (; at_ % alignment != 0; ++at_) {
            if (left() == 0) return refuse("a range that goes past the end of the message");
            if (from_[at_] != std::byte{}) return refuse("padding before a range that is not zero");
        }
        return true;
    }
    template <class View>
    bool read_view(View& into) {
        using element = typename View::value_type;
        std::uint64_t count = 0;
        if (!read_length(count) || !skip_to_element(count, detail::element_alignment<element>()))
            return false;
        if (count > left() / sizeof(element)) return refuse("a range that goes past the end of the message");
        const auto length = static_cast<std::size_t>(count);
        const std::byte* begin = from_.data() + at_;
        if constexpr (alignof(element) > 1) {
            if (reinterpret_cast<std::uintptr_t>(begin) % alignof(element) != 0) {
                if (!copy_row(begin, length * sizeof(element))) return false;
            }
        }
        into = View(reinterpret_cast<const element*>(begin), length);
        at_ += length * sizeof(element);
        return true;
    }
    /// `begin` points from now on to a copy of the row, where elements lie as they must.
    bool copy_row(const std::byte*& begin, std::size_t bytes);

    template <class Range>
    bool read_range(Range& into) {
        static_assert(
            requires {
                into.clear();
                into.end();
            }, "a view has no place for the elements that are read: read a range that owns them");
        using element = detail::element_of<Range>;
        const level inner(*this);
        std::uint64_t count = 0;
        if (!inner || !read_length(count) || !skip_to_element(count, detail::element_alignment<element>()))
            return false;
        constexpr std::size_t least = detail::least_bytes<element>();
        if constexpr (least != 0) {
            if (count > left() / least) return refuse("a range that goes past the end of the message");
        }
        constexpr bool in_nodes = !std::ranges::random_access_range<Range>;
        constexpr bool in_blocks = !in_nodes && !requires { into.reserve(std::size_t{}); };  // as a deque
        if (in_blocks && !charge(1, 1024)) return false;
        if (!charge(count, sizeof(element) + (in_nodes ? 4 * sizeof(void*) : 0))) return false;
        const auto length = static_cast<std::size_t>(count);
        if constexpr (detail::row_of_values<Range&> && requires { into.resize(length); }) {
            copied_ += length * sizeof(element);
            if constexpr (requires(const element* at) { into.assign(at, at); }) {
                const std::byte* const begin = from_.data() + at_;
                if (reinterpret_cast<std::uintptr_t>(begin) % alignof(element) ==
                    0) {  // not filled with zeros before
                    const auto* const first = reinterpret_cast<const element*>(begin);
                    into.assign(first, first + length);
                    at_ += length * sizeof(element);
                    return true;
                }
            }
            into.resize(length);
            return copy(std::ranges::data(into), length * sizeof(element));
        } else {
            into.clear();
            if constexpr (requires { into.reserve(length); }) into.reserve(length);
            for (std::size_t n = 0; n < length; ++n) {
                if (!read_element<element>(into)) return false;
            }
            return true;
        }
    }
    /// In its place, or in memory of its own before that: never on the stack, where a few levels of long elements would not fit.
    template <class Element, class Range>
    bool read_element(Range& into) {
        if constexpr (std::is_same_v<Element, bool> && requires { into.push_back(true); }) {
            bool one = false;
            if (!read_flag(one)) return false;
            into.push_back(one);
            return true;
        } else if constexpr (requires { take(into.emplace_back()); }) {
            return take(into.emplace_back());
        } else {
            const auto one = std::make_unique<Element>();
            if (!take(*one)) return false;
            const std::size_t before = std::ranges::size(into);
            into.insert(std::move(*one));
            return std::ranges::size(into) != before || refuse("an element that its set or map has already");
        }
    }

    std::span<const std::byte> from_;
    decode_limits limits_;
    std::size_t room_;
    copied_rows* copies_;
    std::size_t at_ = 0;
    std::size_t copied_ = 0;
    unsigned depth_ = 0;
    const char* why_ = nullptr;
};

/// The encoding of `value`, in one piece. An `encoder` copies less.
template <class T>
[[nodiscard]] std::vector<std::byte> encode(const T& value) {
    encoder to(static_cast<std::size_t>(-1));
    to.write(value);
    return to.bytes();
}

/// The value that all of `bytes` encode, or `std::errc::bad_message`. Views refer to `bytes`; those of elements with an alignment need
/// bytes that begin at a multiple of 8.
template <class T>
[[nodiscard]] result<T> decode(std::span<const std::byte> bytes, decode_limits limits = {}) {
    decoder from(bytes, limits);
    result<T> value(T{});
    if (!from.read(*value) || from.left() != 0) return std::make_error_code(std::errc::bad_message);
    return value;
}

}  // namespace rdmacoro

#if !defined(RDMACORO_SEPARATE_COMPILATION)
#include <rdmacoro/service/impl/codec.ipp>
#endif
