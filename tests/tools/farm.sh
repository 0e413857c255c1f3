#!/bin/bash
# Workers of examples/farm are killed in the middle of their work and new ones come: each job is done once, whatever happens.
# Usage: farm.sh PATH_OF_FARM.
set -euo pipefail
farm=${1:?usage: farm.sh PATH_OF_FARM}
work=$(mktemp -d)
running=()
trap 'kill -9 "${running[@]}" 2>/dev/null || :; rm -rf "$work"' EXIT

fail() {
    echo "$*" >&2
    tail -n 5 "$work"/log* >&2
    exit 1
}

# hand_out URL JOBS: the office in the background; `url` is where it listens, `office` its process.
hand_out() {
    local line
    mkfifo "$work/said"
    "$farm" hand_out "$@" >"$work/said" 2>"$work/log-office" &
    office=$!
    running+=("$office")
    exec 3<"$work/said"
    rm "$work/said"
    read -r -t 60 line <&3 || fail "hand_out $*: did not start"
    url=${line#listening at }
}

# worker NAME: one more of them.
worker() {
    "$farm" work "$url" 2>"$work/log-$1" &
    eval "$1=\$!"
    running+=("$!")
}

# has NAME COUNT: until the worker has begun so many jobs.
has() {
    for _ in $(seq 600); do
        [ "$(grep -c '^job' "$work/log-$1")" -lt "$2" ] || return 0
        read -r -t 0.1 <> <(:) || :
    done
    fail "$1 has not begun $2 jobs"
}

# rests PID: until the process sleeps, which one that has work does not.
rests() {
    local about
    for _ in $(seq 600); do
        read -r about <"/proc/$1/stat"
        [[ $about != *') S '* ]] || return 0
        read -r -t 0.1 <> <(:) || :
    done
    fail "it works on"
}

# ends: the office ends; `said` is what it said last.
ends() {
    read -r -t 100 said <&3 || fail "the office said nothing"
    wait "$office" || fail "the office ended with status $?"
}

jobs=200
hand_out "shm://jobs-$$" $jobs
worker alone
ends
expected=$said
wait "$alone" || fail "a worker ended with status $?"
if timeout 60 "$farm" hand_out "shm://jobs-$$" 0 2>"$work/log-none"; then fail "no jobs were handed out"; fi
grep -q 'JOBS: at least 1' "$work/log-none" || fail "no message about 0 jobs"

urls=("shm://jobs-$$")
[ "${RDMACORO_WITH_TCP:?}" = 0 ] || urls+=(tcp://127.0.0.1:0)
for from in "${urls[@]}"; do
    echo "over $from"
    hand_out "$from" $jobs
    worker first
    worker second
    worker lost
    # Stopped, a worker has a job: that in which it was stopped, or the next. The others go on.
    has lost 1
    kill -STOP "$lost"
    has first 3
    kill -KILL "$lost"
    worker late
    ends
    [ "$said" = "$expected" ] || fail "\"$said\", not \"$expected\""
    grep -q '^job .* again' "$work/log-office" || fail "no job was lost"
    for name in first second late; do wait "${!name}" || fail "$name ended with status $?"; done

    # An office that dies is none that has closed: its worker, which awaits the next job, says so.
    hand_out "$from" 100000
    worker left
    has left 1
    kill -STOP "$office"
    rests "$left"
    kill -KILL "$office"
    if wait "$left"; then fail "a worker took a killed office for a closed one"; fi
    [ "$(grep -vc '^job' "$work/log-left")" -eq 1 ] || fail "a worker does not say that its office has died"
done
