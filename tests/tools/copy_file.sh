#!/bin/bash
# copy_file copies a file of more than 256 MB between two processes over each transport, and keeps no damaged copy.
# Usage: copy_file.sh PATH_OF_COPY_FILE
set -euo pipefail
copy_file=${1:?usage: copy_file.sh PATH_OF_COPY_FILE}
work=$(mktemp -d)
receiver= sender=
trap 'kill $receiver $sender 2>/dev/null || :; rm -rf "$work"' EXIT

fail() {
    echo "$*" >&2
    exit 1
}

# receive URL DESTINATION: starts a receiver in the background; `url` is where it listens, with the real port.
receive() {
    local line
    mkfifo "$work/said"
    timeout 120 "$copy_file" receive "$1" "$2" >"$work/said" 2>"$work/receiver.err" &
    receiver=$!
    exec 3<"$work/said"
    rm "$work/said"
    read -r -t 60 line <&3 || fail "the receiver did not start: $(cat "$work/receiver.err")"
    url=${line#listening at }
}

# Not a multiple of any buffer's size.
bytes=$((256 * 1024 * 1024 + 12345))
head -c "$bytes" /dev/urandom >"$work/large"
: >"$work/empty"
truncate -s 1T "$work/endless"  # takes no room

urls=("shm://copy-file-$$")
[ "${RDMACORO_WITH_TCP:?}" = 0 ] || urls+=(tcp://127.0.0.1:0)
for from in "${urls[@]}"; do
    for name in large empty; do
        receive "$from" "$work/copy"
        said=$(timeout 120 "$copy_file" send "$url" "$work/$name") || fail "sending $name over $url failed"
        read -r -t 60 line <&3
        wait "$receiver" || fail "receiving $name over $url failed: $(cat "$work/receiver.err")"
        receiver=
        [ "$line" = "$said" ] || fail "the sender said \"$said\", the receiver \"$line\""
        [ "${said%% *}" = "$(stat -c %s "$work/$name")" ] || fail "$name: \"$said\""
        cmp "$work/$name" "$work/copy" || fail "the copy of $name over $url differs"
        [ ! -e "$work/copy.part" ] || fail "a partial copy was left behind"
        rm "$work/copy"
        echo "$from: $said"
    done

    # The sender dies in the middle: the receiver says so, and nothing is called a copy.
    receive "$from" "$work/copy"
    "$copy_file" send "$url" "$work/endless" >/dev/null 2>&1 &
    sender=$!
    for _ in $(seq 6000); do
        [ ! -s "$work/copy.part" ] || break
        sleep 0.01
    done
    [ -s "$work/copy.part" ] || fail "nothing arrived over $url"
    kill -KILL "$sender"
    wait "$sender" || :
    sender=
    status=0
    wait "$receiver" || status=$?
    receiver=
    [ "$status" -eq 1 ] || fail "the receiver ended with $status after the sender's death"
    grep -q 'the peer is gone' "$work/receiver.err" || fail "it said: $(cat "$work/receiver.err")"
    [ ! -e "$work/copy" ] || fail "a damaged copy was kept"
    rm -f "$work/copy.part"
done

# refuses PATTERN ARGUMENT...: it fails and says so.
refuses() {
    local pattern=$1
    shift
    if timeout 60 "$copy_file" "$@" >/dev/null 2>"$work/err"; then fail "copy_file $*: succeeded"; fi
    grep -q -e "$pattern" "$work/err" || fail "copy_file $*: no \"$pattern\" in: $(cat "$work/err")"
}
refuses 'No such file' send "${urls[0]}" "$work/absent"
refuses 'start the listening process first' send "${urls[0]}" "$work/large"
refuses 'shm://NAME' send nowhere "$work/large"
refuses 'usage' send

# A destination that cannot be written: both sides fail.
receive "${urls[0]}" "$work/no/such/folder/copy"
refuses 'the peer is gone' send "$url" "$work/large"
status=0
wait "$receiver" || status=$?
receiver=
[ "$status" -eq 1 ] || fail "a receiver that cannot write ended with $status"
grep -q 'cannot be written' "$work/receiver.err" || fail "it said: $(cat "$work/receiver.err")"
