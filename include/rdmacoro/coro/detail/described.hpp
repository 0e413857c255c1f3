// described: an object that describes the pending operations it holds, such as a connection.
#pragma once

#include <rdmacoro/coro/intrusive_list.hpp>

namespace rdmacoro {

class description;

namespace detail {

/// A node of its scheduler's list of objects that hold pending operations; a member of the object. Costs nothing until the scheduler
/// is asked to describe.
struct described : list_node<described> {
    /// Adds what `self` holds.
    using function = void (*)(void* self, description& into) noexcept;

    described(void* of, function call) noexcept : self(of), describe(call) {}
    ~described() { unlink(); }

    void* self;
    function describe;
};

}  // namespace detail
}  // namespace rdmacoro
