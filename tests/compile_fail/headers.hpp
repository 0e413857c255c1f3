// What the files of this folder include, to be compiled once for all of them.
#pragma once

#include <rdmacoro/rdmacoro.hpp>
#include <rdmacoro/service/calls.hpp>
#include <rdmacoro/service/codec.hpp>
#include <rdmacoro/service/group.hpp>
