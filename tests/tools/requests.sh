#!/bin/bash
# The server of examples/requests ends in good order when it is told to in the middle of a request, and its links go on after
# thousands of answers that came too late, over each transport that was built.
# Usage: requests.sh PATH_OF_KEY_VALUE.
set -euo pipefail
requests=${1:?usage: requests.sh PATH_OF_KEY_VALUE}
work=$(mktemp -d)
running=
trap '[ -z "$running" ] || kill -9 "$running" 2>/dev/null || :; rm -rf "$work"' EXIT

fail() {
    echo "$*" >&2
    sed 's/^/  server: /' "$work/log" | cut -c1-200 | tail -n 5 >&2
    exit 1
}

# serve URL [MS]: starts a server; `url` is where it listens, its log is $work/log, what it prints comes from descriptor 3.
serve() {
    local line
    mkfifo "$work/said"
    "$requests" serve "$@" >"$work/said" 2>"$work/log" &
    running=$!
    exec 3<"$work/said"
    rm "$work/said"
    read -r -t 60 line <&3 || fail "serve $*: did not start"
    url=${line#listening at }
}

# stops TEXT: told to stop, it ends well and says so last.
stops() {
    local line
    read -r -t 60 line <&3 || fail "did not stop"
    [ "$line" = "$1" ] || fail "said \"$line\", not \"$1\""
    wait "$running" || fail "ended with status $?"
    running=
}

ask() { timeout 60 "$requests" ask "$url" "$@" || fail "ask ${1:0:40}: status $?"; }

# What a server ends with that has $1 values.
stopped() { echo "stopped with $1 values"; }

urls=("shm://requests-$$")
[ "${RDMACORO_WITH_TCP:?}" = 0 ] || urls+=(tcp://127.0.0.1:0)
for from in "${urls[@]}"; do
    echo "over $from"
    for signal in TERM INT; do
        serve "$from" 300
        [ "$(ask "put colour red")" = "done" ] || fail "the value was not stored"
        : >"$work/log"
        ask "get colour" >"$work/answer" &
        asking=$!
        # The request is being worked on.
        for _ in $(seq 600); do
            ! grep -q "get colour" "$work/log" || break
            read -r -t 0.1 <> <(:) || :
        done
        grep -q "get colour" "$work/log" || fail "the request did not come"
        kill "-$signal" "$running"
        wait "$asking" || fail "SIG$signal: the request was not finished"
        [ "$(cat "$work/answer")" = red ] || fail "SIG$signal: answered \"$(cat "$work/answer")\""
        stops "$(stopped 1)"
    done

    # A hundred times more bytes than a link stores: each answer is dropped when it comes, and the last is there.
    serve "$from" 0
    [ "$(ask "put big $(head -c 100000 /dev/zero | tr '\0' x)")" = "done" ] || fail "the value was not stored"
    late=$(ask "get big" 8000 | sed -n 's/ answers were late$//p')
    [ "${late:-0}" -gt 1000 ] || fail "only ${late:-0} of 8000 answers were late"
    [ "$(ask "get small")" = "there is no small" ] || fail "no answer after the late ones"
    kill "$running"
    stops "$(stopped 1)"
done
