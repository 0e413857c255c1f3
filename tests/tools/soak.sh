#!/bin/sh
# soak ends well where all is well, after it has killed, stopped and restarted processes, and had rounds over every transport; it notices a wrong byte, a link that is lost without a cause, and a listener that is gone; and a wrong command
# line ends with 2.
# Usage: soak.sh PATH_OF_SOAK
set -eu
soak=${1:?usage: soak.sh PATH_OF_SOAK}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

fail() {
    echo "FAILED: $*"
    for file in out err; do
        if [ -s "$work/$file" ]; then sed "s/^/  $file: /" "$work/$file"; fi
    done
    exit 1
}
# runs STATUS ARGUMENT...: within two minutes, with this status.
runs() {
    wanted=$1
    shift
    got=0
    timeout 150 "$soak" "$@" >"$work/out" 2>"$work/err" || got=$?
    [ "$got" -eq "$wanted" ] || fail "soak $*: status $got, not $wanted"
}
# counted NAME LEAST: the summary has at least so many.
counted() {
    value=$(python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))[sys.argv[2]])' "$work/out" "$1")
    [ "$value" -ge "$2" ] || fail "$1 is $value, less than $2"
}

runs 0 --minutes 0.2 --workers 3 --links 2 --kill-every 2 --stop-every 1 --longest-stop 1 --json -
counted rounds 10
python3 - "$work/out" <<'PYTHON' || fail "a transport had no round"
import json, sys
over = json.load(open(sys.argv[1]))["rounds_over"]
assert over and all(over.values()), over
PYTHON
counted messages 50
counted gets_and_puts 1
counted kills 1
counted stops 1
counted restarts 1

runs 0 --minutes 0.2 --workers 3 --links 100 --transports shm --kill-every 4 --stop-every 2 --longest-stop 1 --json -
counted most_open 300
counted rounds 100

runs 1 --minutes 0.05 --workers 2 --links 2 --transports shm --kill-every 0 --stop-every 0 --corrupt 10
grep -q '^fault: .*wrong bytes in a message' "$work/out" || fail "a wrong byte was not noticed"

# Also where other links of the two workers ended rightly, since one was killed.
runs 1 --minutes 0.1 --workers 2 --links 4 --transports shm --kill-every 1 --stop-every 0 --drop 20
grep -q '^fault: worker 0 lost worker 1 over shm, which was not killed' "$work/out" || fail "a link that was lost without a cause was not noticed"

runs 1 --minutes 0.05 --workers 2 --links 2 --transports shm --kill-every 0 --stop-every 0 --deafen 5
grep -q '^fault: worker [01]: accepts no more over shm: ' "$work/out" || fail "a listener that is gone was not noticed"

# An overseer that gets no core until the workers have ended on time by themselves takes that for no fault.
timeout 150 "$soak" --minutes 0.05 --workers 2 --links 2 --transports shm --kill-every 0 --stop-every 0 >"$work/out" 2>"$work/err" &
late=$!
overseer=
for n in $(seq 3000); do
    overseer=$(cat "/proc/$late/task/$late/children" 2>/dev/null || true)
    overseer=${overseer%% *}
    workers=$(cat "/proc/$overseer/task/$overseer/children" 2>/dev/null || true)
    [ "$(echo "$workers" | wc -w)" -lt 2 ] || break
    sleep 0.02
done
kill -STOP "$overseer" || fail "the overseer does not begin, or ends before its workers"
for n in $(seq 600); do
    ended=0
    for one in $workers; do case $(cat "/proc/$one/stat") in *") Z "*) ended=$((ended + 1)) ;; esac; done
    [ $ended -lt 2 ] || break
    sleep 0.1
done
kill -CONT "$overseer"
got=0
wait $late || got=$?
[ $ended -eq 2 ] || fail "the workers do not end by themselves"
[ $got -eq 0 ] || fail "with an overseer that is late: status $got"

# ---- a summary that cannot be written

few="--minutes 0.03 --workers 2 --links 2 --transports shm --kill-every 0 --stop-every 0"
# shellcheck disable=SC2086  # a list of options
runs 1 $few --json "$work/no/such/folder/x"
grep -q "^soak: cannot write $work/no/such/folder/x: No such file" "$work/err" || fail "no message about a folder that is not there"
! grep -q 'workers with' "$work/err" || fail "it began before it looked whether the summary can be written"
# shellcheck disable=SC2086
runs 1 $few --json /dev/full
grep -q '^soak: cannot write /dev/full: No space left' "$work/err" || fail "no message about a file that takes nothing"
grep -q '^faults  *0$' "$work/out" || fail "the table is lost with the file"
for json in "" "--json -"; do
    status=0
    # shellcheck disable=SC2086
    timeout 150 "$soak" $few $json >/dev/full 2>"$work/err" || status=$?
    [ "$status" -eq 1 ] || fail "standard output that takes nothing: status $status, not 1"
    grep -q '^soak: cannot write standard output: No space left' "$work/err" || fail "no message about standard output"
done

# ---- the command line

runs 2 --transports carrier-pigeon
grep -q '^soak: --transports: this build has shm' "$work/err" || fail "the message does not say which transports there are"
runs 2 --workers 1
grep -q '^soak: --workers: ' "$work/err" || fail "the message does not begin with the program's name"
runs 2 --links 0
# Rounds that only stood still would be told as hung.
runs 2 --minutes 0.02 --workers 2 --longest-stop 16
grep -q '^soak: --longest-stop: longer than a quarter of --round-limit' "$work/err" || fail "a stop as long as a round's limit: no message"
for option in minutes kill-every stop-every longest-stop round-limit; do
    for number in nan -nan inf; do
        runs 2 "--$option=$number"
        grep -q "^soak: --$option: " "$work/err" || fail "--$option $number: no message"
    done
done
runs 0 --help
grep -q -- '--kill-every' "$work/out" || fail "--help names no options"
