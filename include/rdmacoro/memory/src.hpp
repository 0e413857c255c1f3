// The bodies of memory/, for one unit of a program: see <rdmacoro/src.hpp>, which includes those of all rooms.
#pragma once

#if !defined(RDMACORO_SEPARATE_COMPILATION)
#error "define RDMACORO_SEPARATE_COMPILATION for the whole program before this is included"
#endif

#include <rdmacoro/memory/detail/impl/mapping_kind.ipp>
#include <rdmacoro/memory/detail/impl/unmap_watch.ipp>
#include <rdmacoro/memory/impl/buffers.ipp>
#include <rdmacoro/memory/impl/region_table.ipp>
#include <rdmacoro/memory/impl/registration_cache.ipp>
#include <rdmacoro/memory/impl/slab_pool.ipp>
