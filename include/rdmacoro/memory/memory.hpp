// The whole memory room.
//
// Belongs here: types that describe, hold or register memory: gathered buffers, regions, pools, the registration cache.
// Does not belong here: anything that moves bytes between processes.
#pragma once

#include <rdmacoro/memory/buffers.hpp>
#include <rdmacoro/memory/bytes.hpp>
#include <rdmacoro/memory/lent_buffer.hpp>
#include <rdmacoro/memory/region.hpp>
#include <rdmacoro/memory/region_table.hpp>
#include <rdmacoro/memory/registration_cache.hpp>
#include <rdmacoro/memory/slab_pool.hpp>
