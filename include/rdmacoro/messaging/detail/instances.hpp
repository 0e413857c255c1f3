// The templates that a program with a transport and its default list needs, by name: <rdmacoro/src.hpp> and its like
// instantiate them once when RDMACORO_SEPARATE_COMPILATION is defined, and every other unit declares them `extern`.
#pragma once

#include <rdmacoro/messaging/detail/any_operations.hpp>
#include <rdmacoro/messaging/messaging.hpp>

namespace rdmacoro::detail {
template <class T>
using default_connection = connection<T, default_protocols<T>>;
template <class T>
using default_mailbox_state = mailbox_state<T, default_protocols<T>>;
}  // namespace rdmacoro::detail

/// The operations of endpoints or mailboxes; `Poller` is a connection or the state of a mailbox.
#define RDMACORO_RECEIVE_INSTANCES(Template, Poller)                                                         \
    Template class receive_operation<Poller>;                                                                \
    Template class detail::receive_base<receive_operation<Poller>, received, Poller>;                        \
    Template class basic_operation<receive_operation<Poller>, received, detail::receive_request>;            \
    Template class lent_receive_operation<Poller>;                                                           \
    Template class detail::receive_base<lent_receive_operation<Poller>, message, Poller>;                    \
    Template class basic_operation<lent_receive_operation<Poller>, message, detail::receive_request>;        \
    Template class probe_operation<Poller>;                                                                  \
    Template class basic_operation<probe_operation<Poller>, received, detail::probe_request>;

/// `Template`: `template` or `extern template`. `Transport`: a transport's type; its list is the default one.
#define RDMACORO_MESSAGING_INSTANCES(Template, Transport)                                                    \
    namespace rdmacoro {                                                                                     \
    Template class detail::eager_engine<detail::default_connection<Transport>, eager<>>;                     \
    Template class eager<>::engine<detail::default_connection<Transport>>;                                   \
    Template class detail::connection<Transport, default_protocols<Transport>>;                              \
    Template class detail::endpoint_state<Transport, default_protocols<Transport>>;                          \
    Template class send_operation<detail::default_connection<Transport>>;                                    \
    Template class basic_operation<send_operation<detail::default_connection<Transport>>, void,              \
                                   detail::send_request>;                                                    \
    RDMACORO_RECEIVE_INSTANCES(Template, detail::default_connection<Transport>)                              \
    Template class endpoint<Transport, default_protocols<Transport>>;                                        \
    Template struct detail::functions_of<detail::default_connection<Transport>>;                             \
    Template class detail::listener_state<Transport, default_protocols<Transport>>;                          \
    Template class listener<Transport, default_protocols<Transport>>;                                        \
    Template class detail::mailbox_state<Transport, default_protocols<Transport>>;                           \
    RDMACORO_RECEIVE_INSTANCES(Template, detail::default_mailbox_state<Transport>)                           \
    Template class mailbox<Transport, default_protocols<Transport>>;                                         \
    Template class detail::task_promise<endpoint<Transport, default_protocols<Transport>>>;                  \
    Template class detail::task_promise<listener<Transport, default_protocols<Transport>>>;                  \
    Template class task<endpoint<Transport, default_protocols<Transport>>>;                                  \
    Template class task<listener<Transport, default_protocols<Transport>>>;                                  \
    Template task<endpoint<Transport, default_protocols<Transport>>>                                         \
    detail::connect_in<Transport, default_protocols<Transport>>(Transport::domain*, std::string,             \
                                                                mailbox_options);                            \
    Template task<listener<Transport, default_protocols<Transport>>>                                         \
    detail::listen_in<Transport, default_protocols<Transport>>(Transport::domain*, std::string,              \
                                                               mailbox_options);                             \
    }

/// The coroutines that all transports and lists share.
#define RDMACORO_SHARED_MESSAGING_INSTANCES(Template)                                                        \
    namespace rdmacoro::detail {                                                                             \
    Template task<> listener_base::find_place<void>(listener_base*, std::uint8_t);                           \
    Template child listener_base::admit<void>(child_owner&, listener_base*, endpoint_owner, std::uint8_t);   \
    Template task<> mailbox_state_base::close_all<void>(mailbox_state_base*);                                \
    Template task<> mailbox_state_base::close_one<void>(mailbox_state_base*, peer_id);                       \
    }

#if defined(RDMACORO_SEPARATE_COMPILATION)
RDMACORO_SHARED_MESSAGING_INSTANCES(extern template)
#endif
