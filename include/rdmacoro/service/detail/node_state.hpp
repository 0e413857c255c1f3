// node_state: a node with the types of its transports.
#pragma once

#include <rdmacoro/service/detail/node_connections.hpp>
#include <rdmacoro/service/detail/node_record_over.hpp>
#include <rdmacoro/service/detail/node_transport.hpp>
#include <rdmacoro/service/detail/node_transport_over.hpp>

#include <cstddef>
#include <memory>
#include <tuple>
#include <type_traits>
#include <utility>

namespace rdmacoro::detail {

/// Whether no type is there twice.
template <class... Ts>
inline constexpr bool all_differ = true;
template <class T, class... Rest>
inline constexpr bool all_differ<T, Rest...> = (... && !std::is_same_v<T, Rest>) && all_differ<Rest...>;

/// A node over the transports `Ts`.
template <transport... Ts>
class node_state final : public node_connections {
public:
    using domains = std::tuple<typename Ts::domain*...>;

    node_state(scheduler& on, node_id id, const node_options& given, domains in)
        : node_connections(on, id, given) {
        (..., transports_.push_back(make_node_transport<Ts>(*this, static_cast<unsigned>(transports_.size()),
                                                            std::get<typename Ts::domain*>(in))));
    }

    /// `f(endpoint)` of the transport that carries the connection.
    template <class F, std::size_t I = 0>
    [[gnu::always_inline]] static decltype(auto) with_endpoint(node_record& of, F&& f) {
        using T = std::tuple_element_t<I, std::tuple<Ts...>>;
        if constexpr (I + 1 < sizeof...(Ts)) {
            if (of.index != I) return with_endpoint<F, I + 1>(of, static_cast<F&&>(f));
        }
        return f(static_cast<node_record_over<T>&>(of).end);
    }

    [[nodiscard]] domains in() const noexcept { return in(std::index_sequence_for<Ts...>()); }

    /// `f` becomes the function for connections over each transport. `receives`: what `node_transport_of::handler_receives` says.
    template <class F>
    void handle(F f, bool receives) {
        handle(std::make_shared<F>(std::move(f)), receives, std::index_sequence_for<Ts...>());
    }

private:
    template <std::size_t... Is>
    [[nodiscard]] domains in(std::index_sequence<Is...>) const noexcept {
        return {static_cast<node_transport_of<Ts>&>(*transports_[Is]).domain...};
    }
    template <class F, std::size_t... Is>
    void handle(const std::shared_ptr<F>& shared, bool receives, std::index_sequence<Is...>) {
        (..., handle_over(static_cast<node_transport_of<Ts>&>(*transports_[Is]), shared, receives));
    }
    template <class T, class F>
    static void handle_over(node_transport_of<T>& over, const std::shared_ptr<F>& shared, bool receives) {
        over.handler = [shared](endpoint<T>& end, node_id id, generation born) {
            return (*shared)(end, id, born);
        };
        over.handler_receives = receives;
    }
};

}  // namespace rdmacoro::detail
