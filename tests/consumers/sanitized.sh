#!/bin/sh
# A user's program compiles with the flags of sanitizers, which change what a compiler takes for a constant.
# Usage: sanitized.sh
set -eu
compiles() {
    # shellcheck disable=SC2086
    $RDMACORO_CXX -std=c++20 -fsyntax-only "$1" "-I$RDMACORO_SOURCE_ROOT/include" "$RDMACORO_SOURCE_ROOT/examples/$2.cpp"
}
for program in hello node_calls dot_product; do compiles -fsanitize=address,undefined "$program"; done
compiles -fsanitize=undefined node_calls
