// protocols<...>: an ordered list of policies; the first that admits a message carries it.
#pragma once

#include <rdmacoro/protocol/cooperative_rendezvous.hpp>
#include <rdmacoro/protocol/eager.hpp>
#include <rdmacoro/protocol/get_rendezvous.hpp>
#include <rdmacoro/protocol/policy.hpp>
#include <rdmacoro/protocol/provider_matched.hpp>
#include <rdmacoro/protocol/put_rendezvous.hpp>
#include <rdmacoro/protocol/reuse_aware_eager.hpp>
#include <rdmacoro/protocol/segmented.hpp>
#include <rdmacoro/protocol/speculative.hpp>
#include <rdmacoro/protocol/staged_get.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>

namespace rdmacoro {

namespace detail {
/// The engine of a policy; on links without the get and put that the policy needs, an engine that carries nothing.
template <class Policy, class Context, bool OneSided>
struct engine_of {
    using type = typename Policy::template engine<Context>;
};
template <class Policy, class Context>
    requires(Policy::needs_one_sided)
struct engine_of<Policy, Context, false> {
    using type = absent_engine<Context>;
};

// The engines of a list, side by side. A tuple of our own: std::tuple costs each unit that has a connection many small functions.
template <std::size_t Index, class Engine>
struct engine_at {
    template <class Context>
    explicit engine_at(Context& context) noexcept : engine(context) {}
    Engine engine;
};
template <class Indices, class... Engines>
struct engine_set;
template <std::size_t... I, class... Engines>
struct engine_set<std::index_sequence<I...>, Engines...> : engine_at<I, Engines>... {
    template <class Context>
    explicit engine_set(Context& context) noexcept : engine_at<I, Engines>(context)... {}
};
template <std::size_t Index, class Engine>
[[nodiscard, gnu::always_inline]] inline Engine& engine_in(engine_at<Index, Engine>& held) noexcept {
    return held.engine;
}

template <class Policy>
[[nodiscard]] constexpr std::size_t shortest(const capabilities& link) noexcept {
    if constexpr (requires { Policy::shortest(link); }) {
        return Policy::shortest(link);
    } else {
        static_cast<void>(link);
        return 0;
    }
}
template <class Policy>
inline constexpr bool is_speculative = false;
template <class Policy>
    requires(Policy::speculates)
inline constexpr bool is_speculative<Policy> = true;
template <class Policy>
inline constexpr bool is_delegating = false;
template <class Policy>
    requires(Policy::delegates)
inline constexpr bool is_delegating<Policy> = true;

// The policy at a place of a list, or the last. Lists are constrained by place: for a pack at once g++ names no reason.
template <std::size_t Index, class First, class... Rest>
struct policy_at_place : policy_at_place<Index - 1, Rest...> {};
template <std::size_t Index, class First>
struct policy_at_place<Index, First> {
    using type = First;
};
template <class First, class... Rest>
    requires(sizeof...(Rest) > 0)
struct policy_at_place<0, First, Rest...> {
    using type = First;
};
template <std::size_t Index, class... Policies>
using policy_at = typename policy_at_place<Index, Policies...>::type;
}  // namespace detail

/// How messages travel, as a type. The choice is made for each message by size and capabilities, in the order of the
/// list, and folded by the compiler; a policy that is not listed generates no code. Both ends of a link must have the
/// same list, and refuse each other when connecting if not.
template <class... Policies>
    requires(sizeof...(Policies) > 0) && protocol_policy<detail::policy_at<0, Policies...>> &&
            protocol_policy<detail::policy_at<1, Policies...>> &&
            protocol_policy<detail::policy_at<2, Policies...>> &&
            protocol_policy<detail::policy_at<3, Policies...>> &&
            protocol_policy<detail::policy_at<4, Policies...>> &&
            protocol_policy<detail::policy_at<5, Policies...>> && (protocol_policy<Policies> && ...)
struct protocols {
    /// The number of policies.
    static constexpr std::size_t count = sizeof...(Policies);
    static constexpr std::size_t none = count;  ///< the index of no policy
    /// The index of the policy that announces receives; `none` when none does. At most one may.
    static constexpr std::size_t speculative_index = [] {
        std::size_t index = 0;
        static_cast<void>(((detail::is_speculative<Policies> ? true : (++index, false)) || ...));
        return index;
    }();
    /// Whether a policy of the list announces receives.
    static constexpr bool speculates = speculative_index != none;
    static_assert((std::size_t{detail::is_speculative<Policies>} + ... + 0) <= 1,
                  "a protocol list has at most one speculative policy");
    /// Whether the link matches, and not the mailbox.
    static constexpr bool delegates = (detail::is_delegating<Policies> || ...);
    static_assert(!delegates || count == 1,
                  "provider_matched leaves all messages to a matching_link: it stands alone in its list");

    /// The index of the policy that carries such a message over a link with these capabilities; `none` when none does.
    [[nodiscard]] static constexpr std::size_t choose(const message_facts& m,
                                                      const capabilities& link) noexcept {
        std::size_t chosen = 0;
        static_cast<void>(((Policies::admits(m, link) ? true : (++chosen, false)) || ...));
        return chosen;
    }

    /// Whether a policy of the list carries such a message over a link with these capabilities.
    [[nodiscard]] static bool carries(const message_facts& m, const capabilities& link) noexcept {
        return choose(m, link) != none;
    }

    /// The wire number of `Policy`'s kind 0.
    template <class Policy>
    [[nodiscard]] static constexpr std::uint8_t first_kind() noexcept {
        std::uint8_t kind = detail::first_policy_kind;
        static_cast<void>(((std::is_same_v<Policies, Policy>
                                ? true
                                : (kind = static_cast<std::uint8_t>(kind + Policies::kinds), false)) ||
                           ...));
        return kind;
    }

    /// The index of a policy of the list.
    template <class Policy>
    [[nodiscard]] static constexpr std::size_t index_of() noexcept {
        std::size_t index = 0;
        static_cast<void>(((std::is_same_v<Policies, Policy> ? true : (++index, false)) || ...));
        return index;
    }

    /// The wire number of each policy's kind 0, and the first number behind the list.
    static constexpr std::array<std::uint8_t, count + 1> first_kinds = [] {
        std::array<std::uint8_t, count + 1> firsts{detail::first_policy_kind};
        std::size_t index = 0;
        ((firsts[index + 1] = static_cast<std::uint8_t>(firsts[index] + Policies::kinds), ++index), ...);
        return firsts;
    }();

    /// Names the list: equal for equal lists, different for different ones, on every machine.
    static constexpr std::uint64_t fingerprint = [] {
        std::uint64_t print = detail::fingerprint_of("rdmacoro protocols");
        ((print =
              detail::fingerprint_of(Policies::name, print ^ (Policies::parameter() * 31 + Policies::kinds))),
         ...);
        return print;
    }();

    /// The list for people, such as "eager, segmented".
    [[nodiscard, gnu::cold]] static std::string text() {
        std::string names;
        const auto add = [&](const std::string& text) {
            if (!names.empty()) names += ", ";
            names += text;
        };
        (add(detail::policy_text<Policies>()), ...);
        return names;
    }

    /// The name of policy number `index`.
    [[nodiscard]] static std::string_view name_of(std::size_t index) noexcept {
        std::string_view name = "none";
        std::size_t at = 0;
        static_cast<void>(((at++ == index ? (name = Policies::name, true) : false) || ...));
        return name;
    }
    /// The description of policy number `index`.
    [[nodiscard]] static std::string_view description_of(std::size_t index) noexcept {
        std::string_view text = "too long for every policy of the list";
        std::size_t at = 0;
        static_cast<void>(((at++ == index ? (text = Policies::description, true) : false) || ...));
        return text;
    }
    /// The longest message that the policy at `index` admits, in bytes.
    [[nodiscard]] static std::size_t longest_of(std::size_t index, const capabilities& link) noexcept {
        std::size_t bytes = 0;
        std::size_t at = 0;
        static_cast<void>(((at++ == index ? (bytes = Policies::longest(link), true) : false) || ...));
        return bytes;
    }

    /// The shortest message that the policy at `index` admits, in bytes; 0 where it has no such limit.
    [[nodiscard]] static std::size_t shortest_of(std::size_t index, const capabilities& link) noexcept {
        std::size_t bytes = 0;
        std::size_t at = 0;
        static_cast<void>(
            ((at++ == index ? (bytes = detail::shortest<Policies>(link), true) : false) || ...));
        return bytes;
    }

    /// The policies' engines of one connection. `OneSided`: its link has get and put.
    template <class Context, bool OneSided = true>
    class engines {
    public:
        /// One engine for each policy.
        explicit engines(Context& context) noexcept : all_(context) {}

        /// The engine of one policy.
        template <std::size_t Index>
        [[nodiscard, gnu::always_inline]] auto& at() noexcept {
            return detail::engine_in<Index>(all_);
        }

        /// Calls `visit(engine)` for policy `index`.
        template <class Visit>
        [[gnu::always_inline]] void with(std::size_t index, Visit visit) noexcept {
            with_indices(index, visit, std::make_index_sequence<count>{});
        }

        /// Calls `visit(engine, kind)` for the policy that `wire_kind` belongs to; false when there is none.
        template <class Visit>
        [[gnu::always_inline]] bool dispatch(std::uint8_t wire_kind, Visit visit) noexcept {
            return dispatch_indices(wire_kind, visit, std::make_index_sequence<count>{});
        }

        /// As `dispatch`, for the policies behind the first.
        template <class Visit>
        [[gnu::always_inline]] bool dispatch_others(std::uint8_t wire_kind, Visit visit) noexcept {
            return dispatch_behind_first(wire_kind, visit, std::make_index_sequence<count - 1>{});
        }

        /// Calls `visit` with each engine.
        template <class Visit>
        void each(Visit visit) noexcept {
            each_index(visit, std::make_index_sequence<count>{});
        }

    private:
        template <class Visit, std::size_t... I>
        [[gnu::always_inline]] void each_index(Visit& visit, std::index_sequence<I...>) noexcept {
            (visit(at<I>()), ...);
        }
        template <class Visit, std::size_t... I>
        [[gnu::always_inline]] void with_indices(std::size_t index, Visit& visit,
                                                 std::index_sequence<I...>) noexcept {
            static_cast<void>(((I == index ? (visit(at<I>()), true) : false) || ...));
        }
        template <class Visit, std::size_t... I>
        [[gnu::always_inline]] bool dispatch_indices(std::uint8_t wire_kind, Visit& visit,
                                                     std::index_sequence<I...>) noexcept {
            return (dispatch_one<I>(wire_kind, visit) || ...);
        }
        template <class Visit, std::size_t... I>
        [[gnu::always_inline]] bool dispatch_behind_first([[maybe_unused]] std::uint8_t wire_kind,
                                                          [[maybe_unused]] Visit& visit,
                                                          std::index_sequence<I...>) noexcept {
            return (dispatch_one<I + 1>(wire_kind, visit) || ... || false);
        }
        template <std::size_t I, class Visit>
        [[gnu::always_inline]] bool dispatch_one(std::uint8_t wire_kind, Visit& visit) noexcept {
            constexpr std::uint8_t first = first_kinds[I];
            if (wire_kind < first || wire_kind >= first_kinds[I + 1]) return false;
            visit(at<I>(), static_cast<unsigned>(wire_kind - first));
            return true;
        }

        detail::engine_set<std::make_index_sequence<count>,
                           typename detail::engine_of<Policies, Context, OneSided>::type...>
            all_;
    };
};

namespace detail {
template <class Transport>
struct default_list {
    using type = protocols<eager<>, segmented<>>;
};
/// Where both ends' processors copy, they copy long messages together.
template <class Transport>
    requires shared_copy_link<typename Transport::template link<sink_archetype>>
struct default_list<Transport> {
    using type = protocols<eager<>, cooperative_rendezvous<up_to_transport, from_transport>, segmented<>>;
};
/// Where a get or put is better than pieces, long messages go by them; `get_rendezvous` handles the alignment that gets
/// may need.
template <class Transport>
    requires(Transport::static_capabilities.one_sided &&
             Transport::static_capabilities.rendezvous_bytes != never_by_rendezvous &&
             !shared_copy_link<typename Transport::template link<sink_archetype>>)
struct default_list<Transport> {
    using type = protocols<eager<>, get_rendezvous<up_to_transport, from_transport>,
                           put_rendezvous<up_to_transport, from_transport>, segmented<>>;
};
}  // namespace detail

/// The list that endpoints use when given none, with limits that were measured for the transport.
template <class Transport>
using default_protocols = typename detail::default_list<typename detail::header_check<Transport>::type>::type;

namespace detail {
template <class T>
inline constexpr bool is_protocols = false;
template <class... Ps>
inline constexpr bool is_protocols<protocols<Ps...>> = true;
}  // namespace detail

/// A list of protocol policies.
template <class P>
concept protocol_list = detail::is_protocols<P>;

}  // namespace rdmacoro
