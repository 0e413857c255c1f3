#!/bin/sh
# floor measures every floor it lists, or says why this machine forbids it; wrong options are refused.
# Usage: floor.sh PATH_OF_FLOOR. Ends with 77 (skipped) where there are not two CPUs.
set -eu
floor=${1:?usage: floor.sh PATH_OF_FLOOR}
if [ "$(nproc)" -lt 2 ]; then
    echo "needs two CPUs"
    exit 77
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

timeout 120 "$floor" --quick --json - >"$work/floors.json"
timeout 60 "$floor" --quick --only memcpy,cache_line --repeat 2 --json "$work/two.json" >"$work/table"
grep -q '^cache_line ' "$work/table"

python3 - "$work/floors.json" "$work/two.json" <<'PYTHON'
import json, sys

sizes = {64 << 10 << (2 * i) for i in range(6)}
stream_sizes = {64 << 10, 256 << 10, 1 << 20}
expected = {("cache_line", 0), ("core_handover", 0), ("ring_rate", 8), ("ring_latency", 8), ("tcp_polled", 8), ("tcp_blocking", 8),
            ("memcpy_behind", 64 << 10)}
expected |= {(name, b) for name in ("memcpy", "process_vm_readv", "half_and_half") for b in sizes}
expected |= {(name, b) for name in ("tcp_stream", "tcp_stream_reno") for b in stream_sizes}
may_be_forbidden = {"process_vm_readv", "half_and_half", "tcp_stream_reno"}

document = json.load(open(sys.argv[1]))
for key in ("cpu", "architecture", "kernel", "usable_cpus", "pinned_to", "compiler"):
    assert document["machine"][key], key
assert len(set(document["machine"]["pinned_to"])) == 2, document["machine"]

measured = set()
for floor in document["floors"]:
    assert floor["unit"] in ("ns", "M/s", "GB/s"), floor
    assert floor["value"] > 0 and len(floor["runs"]) == 1 and min(floor["runs"]) > 0, floor
    measured.add((floor["name"], floor.get("bytes", 0)))
skipped = set()
for floor in document["skipped"]:
    assert floor["name"] in may_be_forbidden and floor["reason"], floor
    skipped.add((floor["name"], floor.get("bytes", 0)))
assert not measured & skipped
assert measured | skipped == expected, expected ^ (measured | skipped)

two = json.load(open(sys.argv[2]))
assert {f["name"] for f in two["floors"]} == {"cache_line", "memcpy"}, two
assert all(len(f["runs"]) == 2 for f in two["floors"]), two
PYTHON

refused() {
    status=0
    timeout 30 "$floor" "$@" >"$work/out" 2>"$work/err" || status=$?
    if [ "$status" -ne 2 ] || [ ! -s "$work/err" ]; then
        echo "floor $*: exit status $status, expected 2 and a message"
        exit 1
    fi
}
refused --no-such-option
refused --only no_such_floor
refused --cpus 0
refused --cpus 0,0
refused --cpus 0,100000
refused --cpus zero,one
refused --repeat 0
refused --repeat many
refused surplus

status=0
timeout 30 "$floor" --quick --only memcpy --json "$work/no/such/folder/x" >"$work/out" 2>"$work/err" || status=$?
[ "$status" -eq 1 ]
grep -q 'cannot write' "$work/err"

status=0
timeout 30 "$floor" --quick --only memcpy >/dev/full 2>"$work/err" || status=$?
[ "$status" -eq 1 ]
grep -q '^floor: cannot write standard output' "$work/err"
