// What nodes need of each transport, by name: compiled once where RDMACORO_SEPARATE_COMPILATION is defined, and declared `extern` in every
// other unit by service/compiled/.
#pragma once

#include <memory>

namespace rdmacoro::detail {

class node_core;
class node_transport;

/// A `node_transport_over<T>`. `at`: the place of the transport in the node's list. `in`: nullptr for the scheduler's own domain.
template <class T>
[[nodiscard]] std::unique_ptr<node_transport> make_node_transport(node_core& of, unsigned at,
                                                                  typename T::domain* in);

}  // namespace rdmacoro::detail

/// `Template`: `template` or `extern template`. `Transport`: a transport's type.
#define RDMACORO_NODE_INSTANCES(Template, Transport)                                                         \
    namespace rdmacoro::detail {                                                                             \
    Template std::unique_ptr<node_transport> make_node_transport<Transport>(node_core&, unsigned,            \
                                                                            Transport::domain*);             \
    }
