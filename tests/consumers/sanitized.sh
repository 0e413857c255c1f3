#!/bin/sh
# A user's program compiles with the flags of sanitizers, which change what a compiler takes for a constant.
# Usage: sanitized.sh
set -eu
for flags in -fsanitize=undefined -fsanitize=address,undefined; do
    for program in hello node_calls dot_product; do
        # shellcheck disable=SC2086
        $RDMACORO_CXX -std=c++20 -fsyntax-only $flags "-I$RDMACORO_SOURCE_ROOT/include" "$RDMACORO_SOURCE_ROOT/examples/$program.cpp"
    done
done
