#!/bin/bash
# Every example does what it says: alone, or as two processes over each transport that was built.
# (copy_file has a test of its own.)
set -euo pipefail
examples=${RDMACORO_BUILD_ROOT:?}/examples
if [ ! -x "$examples/hello" ]; then
    echo "the examples were not built"
    exit 77
fi
work=$(mktemp -d)
running=
trap '[ -z "$running" ] || kill "$running" 2>/dev/null || :; rm -rf "$work"' EXIT

fail() {
    echo "$*" >&2
    exit 1
}

# says EXPECTED NAME [ARGUMENT]...: the program ends well and prints exactly that.
says() {
    local expected=$1 name=$2 said
    shift 2
    said=$(timeout 60 "$examples/$name" "$@") || fail "$name $*: exit status $?"
    [ "$said" = "$expected" ] || fail "$name $*: said \"$said\", not \"$expected\""
}

# refuses PATTERN NAME [ARGUMENT]...: the program fails and says so on stderr.
refuses() {
    local pattern=$1 name=$2
    shift 2
    if timeout 60 "$examples/$name" "$@" >"$work/out" 2>"$work/err"; then fail "$name $*: succeeded"; fi
    grep -q -e "$pattern" "$work/err" || fail "$name $*: no \"$pattern\" in: $(cat "$work/err")"
}

# serve NAME ARGUMENT...: starts it in the background; `url` is where it listens, with the real port.
serve() {
    local line
    mkfifo "$work/said"
    timeout 120 "$@" >"$work/said" &
    running=$!
    exec 3<"$work/said"
    rm "$work/said"
    read -r -t 60 line <&3 || fail "$*: did not start"
    [ "${line#listening at }" != "$line" ] || fail "$*: said \"$line\""
    url=${line#listening at }
}

says 'got 13 bytes: hello, world' hello
says $'after 20 ms: the operation did not end in the time it was given
stopped: the operation was canceled
first: the clock
asked: late, but here' deadline
says $'scattered: 3 x 4, 104 bytes, sum 78
lent: 104 bytes, sum 78
probed: 104 bytes, sum 78' gather
says 'sum 40002400000.000000' compute_meanwhile
says 'the squares of 1 to 100 add up to 338350' any_source
says "$(timeout 60 "$examples/own_transport" | head -n -1)
all bytes came back" own_transport
says "$(timeout 60 "$examples/custom_protocol" | head -n -4)
got 3 bytes: one
got 100000 bytes
got 3 bytes: two
ended: Bad message" custom_protocol
timeout 60 "$examples/custom_protocol" | grep -q 'protocols: checked_eager, segmented$'
timeout 60 "$examples/own_transport" | grep -q '^loopback (two ends in one scheduler), protocols: '

urls=("shm://examples-$$")
[ "${RDMACORO_WITH_TCP:?}" = 0 ] || urls+=(tcp://127.0.0.1:0)
[ "${RDMACORO_WITH_VERBS:?}" = 0 ] || [ -z "$(ls /sys/class/infiniband 2>/dev/null)" ] || urls+=("verbs://*:0")
[ "${RDMACORO_WITH_OFI:?}" = 0 ] || urls+=(ofi://127.0.0.1:0)
for from in "${urls[@]}"; do
    echo "over $from"

    serve "$examples/echo" serve "$from"
    asking=()
    for i in 1 2 3 4; do
        timeout 60 "$examples/echo" ask "$url" "question $i" >"$work/answer$i" &
        asking+=($!)
    done
    for i in 1 2 3 4; do
        wait "${asking[i - 1]}" || fail "echo ask $url: exit status $?"
        [ "$(cat "$work/answer$i")" = "question $i" ] || fail "echo said \"$(cat "$work/answer$i")\" to $i"
    done
    refuses 'another' echo serve "$url"
    kill "$running"
    wait "$running" || :
    running=

    serve "$examples/rdma" open "$from"
    # An adapter, or a library for it, tells of a refusal less than this toolkit does.
    past='the access goes past the end of the remote region'
    case $from in verbs://* | ofi://*) past='.*' ;; esac
    timeout 60 "$examples/rdma" use "$url" >"$work/out" || fail "rdma use $url: exit status $?"
    tr '\n' '|' <"$work/out" | grep -q -x -e "read 500|past the end: $past|" ||
        fail "rdma use $url: said $(cat "$work/out")"
    read -r -t 60 line <&3
    [ "$line" = "table[500] is now 1000" ] || fail "rdma open said \"$line\""
    wait "$running" || fail "rdma open: exit status $?"
    running=
done

refuses 'start the listening process first' echo ask "shm://nobody-$$" hello
[ "$RDMACORO_WITH_TCP" = 0 ] || refuses 'start the listener first' echo ask tcp://127.0.0.1:1 hello
refuses 'shm://NAME' echo ask ftp://nowhere hello
refuses 'usage' echo
refuses 'usage' rdma open
