#!/bin/sh
# tune measures messages between two processes, fits costs to them, chooses algorithms by these, writes a header that compiles and
# means the same, and ends with the right status and message when it cannot.
# Usage: tune.sh PATH_OF_TUNE
set -eu
tune=${1:?usage: tune.sh PATH_OF_TUNE}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
here=$(cd "$(dirname "$0")/../.." && pwd)

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
    timeout 120 "$tune" "$@" >"$work/out" 2>"$work/err" || got=$?
    [ "$got" -eq "$wanted" ] || fail "tune $*: status $got, not $wanted"
}

# ---- measuring, over each transport of this build

transports=shm
if [ "${RDMACORO_WITH_TCP:-0}" = 1 ]; then transports="shm tcp"; fi
for transport in $transports; do
    runs 0 --transport "$transport" --sizes 0,8,1K,16K --rounds 2 --seconds 0.0001 --ranks 2,8 --json "$work/$transport.json"
    grep -q "^$transport: round 2 of 2" "$work/err" || fail "no progress is told"
    for word in 'link '"$transport" message exchange next combine difference allreduce alltoall 'per byte'; do
        grep -q "$word" "$work/out" || fail "the table has no $word"
    done
    python3 - "$work/$transport.json" "$transport" <<'PYTHON'
import json, sys
found = json.load(open(sys.argv[1]))
(link,) = found["links"]
assert link["transport"] == sys.argv[2], link
for kind in ("message", "exchange", "next"):
    cost = link[kind]
    assert cost["start_ns"] > 0 and cost["extra_ns"] >= 0 and cost["ns_per_byte"] >= 0, cost
    lengths = [sample["bytes"] for sample in cost["samples"]]
    assert set(lengths) <= {0, 8, 1024, 16384} and len(lengths) >= 3, lengths
# A message over a link of this machine takes between 50 ns and a second.
assert all(50 < s["ns"] < 1e9 for s in link["message"]["samples"]), link
names = {(c["collective"], c["ranks"]) for c in found["choices"]}
assert len(names) == 22, names
PYTHON
done

# Both processes on one CPU disturb each other all the time: a model of three sizes needs a cost of each.
cpu=$(python3 -c 'import os; print(min(os.sched_getaffinity(0)))')
for _ in 1 2 3 4 5 6 7 8 9 10; do
    runs 0 --transport shm --sizes 0,8,64 --rounds 4 --seconds 0.0001 --ranks 2 --cpus "$cpu,$cpu" --json "$work/three.json"
    python3 - "$work/three.json" <<'PYTHON'
import json, sys
(link,) = json.load(open(sys.argv[1]))["links"]
for kind in ("message", "exchange", "next"):
    samples = link[kind]["samples"]
    assert [one["bytes"] for one in samples] == [0, 8, 64] and all(one["ns"] > 0 for one in samples), link
PYTHON
done

# The other process is killed as soon as it is there, mostly before the two know of each other: that is said, and is a failure.
for transport in $transports; do
    python3 - "$tune" "$transport" <<'PYTHON' || fail "over $transport: the other process was killed"
import os, signal, subprocess, sys, time
for turn in range(8):
    first = subprocess.Popen([sys.argv[1], "--transport", sys.argv[2], "--rounds", "1000"],
                             stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    children = f"/proc/{first.pid}/task/{first.pid}/children"
    if not os.path.exists(children):
        first.kill()
        sys.exit(print("skipped: a kernel without CONFIG_PROC_CHILDREN does not say which process is the other"))
    until = time.monotonic() + 60
    other = ""
    while not other and time.monotonic() < until:
        with open(children) as listed:
            other, _, _ = listed.read().partition(" ")
    os.kill(int(other), signal.SIGKILL)
    try:
        said = first.communicate(timeout=30)[1].splitlines()
    except subprocess.TimeoutExpired:
        first.kill()
        sys.exit("it goes on")
    if first.returncode != 1 or not said or not said[-1].startswith("tune: "):
        sys.exit(f"status {first.returncode}, expected 1 and a message: {said}")
PYTHON
done

# ---- known costs instead of measurements: what is fitted, chosen and written is known too

python3 - "$work/known.json" <<'PYTHON'
import json, sys
def term(start, extra, per_byte, bytes):
    x = per_byte * bytes
    return start + extra * x / (start + x) + x
def samples(*cost):
    return {"samples": [{"bytes": b, "ns": term(*cost, b)} for b in [0] + [2**k for k in range(0, 22)]]}
link = lambda name, scale: {"transport": name, "touch_ns_per_byte": 0.1,
    "message": samples(1000 * scale, 500, 1), "exchange": samples(10000 * scale, 0, 10), "next": samples(1000 * scale, 0, 1)}
json.dump({"links": [link("shm", 1), link("tcp", 10)]}, open(sys.argv[1], "w"))
PYTHON
runs 0 --from "$work/known.json" --ranks 8 --json "$work/again.json" --header "$work/tuned.hpp" --name my_links
grep -q 'collectives that are faster as two others' "$work/out" || fail "no substitution is printed"
grep -q 'allreduce of 8 ranks, from 0.*reduce (spanning_tree) + broadcast (binomial) instead of recursive_doubling' "$work/out" ||
    fail "the substitution of allreduce is not printed"
python3 - "$work/again.json" <<'PYTHON'
import json, sys
all = json.load(open(sys.argv[1]))
near = lambda a, b: abs(a - b) <= 0.01 * b + 1e-6
for link, scale in zip(all["links"], (1, 10)):
    assert near(link["message"]["start_ns"], 1000 * scale), link["message"]
    assert near(link["message"]["ns_per_byte"], 1), link["message"]
    assert abs(link["message"]["extra_ns"] - 500) < 10, link["message"]
    assert near(link["exchange"]["start_ns"], 10000 * scale) and link["exchange"]["mean_error"] < 0.01
first = [c for c in all["choices"] if c["collective"] == "allreduce"][0]
assert first["algorithm"] == "by_root" and first["first"]["collective"] == "reduce" and first["direct_ns"] > first["ns"], first
PYTHON
cat >"$work/use.cpp" <<'CPP'
#include "tuned.hpp"
namespace rc = rdmacoro;
constexpr rc::collective_shape shape{.kind = rc::collective_kind::allreduce, .bytes = 64, .elements = 8, .ranks = 8};
static_assert(rc::cheapest_algorithm(shape, my_links::link::within, my_links::link::between).found->is_substitute());
static_assert(my_links::collectives::choose(shape)->name == "by_root");
static_assert(my_links::link::between.message.start_ns > 9900 && my_links::link::between.message.start_ns < 10100);
CPP
${CXX:-c++} -std=c++20 -fsyntax-only -DRDMACORO_SEPARATE_COMPILATION -I"$here/include" "$work/use.cpp" 2>"$work/err" ||
    fail "the header does not mean what it should"
runs 0 --from "$work/known.json" --header - --quiet
grep -q '^namespace tuned {' "$work/out" && ! grep -q 'choice for ranks' "$work/out" || fail "--header -"
runs 0 --from "$work/known.json" --json - --hosts 2
python3 -c 'import json, sys; assert json.load(open(sys.argv[1]))["hosts"] == 2' "$work/out" || fail "--json -"

# ---- measurements that the model does not follow are told, and the command line is checked

python3 - "$work/known.json" "$work/odd.json" <<'PYTHON'
import json, random, sys
all = json.load(open(sys.argv[1]))
random.seed(5)
for sample in all["links"][0]["message"]["samples"]:
    sample["ns"] *= random.choice([1, 3, 10, 30])
json.dump(all, open(sys.argv[2], "w"))
PYTHON
runs 0 --from "$work/odd.json"
grep -q 'shm, message: the model is off by .* measure again on an idle machine' "$work/err" || fail "bad measurements are not told"
echo '{"links": [{"transport": "shm"}]}' >"$work/bad.json"
runs 2 --from "$work/bad.json"
grep -q 'is no result of tune' "$work/err" || fail "a file of another kind"
echo 'nonsense' >"$work/bad.json"
runs 2 --from "$work/bad.json"
runs 2 --from "$work/no-such-file"
grep -q "^tune: --from: cannot read $work/no-such-file: No such file" "$work/err" || fail "no message about a file that is not there"
runs 2 --from "$work"
grep -q "^tune: --from: cannot read $work: Is a directory" "$work/err" || fail "no message about a folder"
# Neither the fit nor the header has what no measurement is.
python3 - "$work/known.json" "$work/wrong" <<'PYTHON'
import json, sys
wrong = [("bytes", -5), ("bytes", 8.7), ("bytes", 1e30), ("bytes", 2**26 + 1), ("ns", 1e308), ("ns", 0), ("ns", -1)]
for number, (field, value) in enumerate(wrong):
    all = json.load(open(sys.argv[1]))
    all["links"][0]["next"]["samples"][3][field] = value
    json.dump(all, open(f"{sys.argv[2]}{number}.json", "w"))
all = json.load(open(sys.argv[1]))
all["links"][0]["touch_ns_per_byte"] = 1e300
json.dump(all, open(f"{sys.argv[2]}7.json", "w"))
PYTHON
for number in 0 1 2 3 4 5 6 7; do
    runs 2 --from "$work/wrong$number.json" --header "$work/wrong.hpp"
    grep -q -e 'a number, 0 to 64 Mi' -e 'is no cost' "$work/err" || fail "$work/wrong$number.json: no message"
    [ ! -e "$work/wrong.hpp" ] || fail "a header of wrong numbers"
done
runs 2 --transport carrier-pigeon
grep -q 'this build has shm' "$work/err" || fail "the message does not say which transports there are"
runs 2 --sizes 8,16
runs 2 --name 'not a name'
for name in class co_await xor_eq; do
    runs 2 --from "$work/known.json" --header "$work/keyword.hpp" --name "$name"
    grep -q "^tune: --name: $name is a keyword" "$work/err" || fail "--name $name: no message"
    [ ! -e "$work/keyword.hpp" ] || fail "--name $name: a header that does not compile"
done
runs 2 --from "$work/known.json" --name std
runs 2 --from "$work/known.json" --json - --header -
grep -q 'cannot both have standard output' "$work/err" || fail "two documents in one output"
mkdir "$work/folder"
runs 2 --from "$work/known.json" --json "$work/both" --header "$work/folder/../both"
grep -q 'are one file' "$work/err" || fail "two documents in one file"
runs 0 --from "$work/known.json" --json /dev/null --header /dev/null
runs 0 --from "$work/known.json" --json "$work/one" --header "$work/other"
for number in nan -nan inf; do
    runs 2 "--seconds=$number" --transport shm
    grep -q '^tune: --seconds: ' "$work/err" || fail "--seconds $number: no message"
done
runs 2 --ranks 1
runs 1 --from "$work/known.json" --json /no/such/directory/file
for file in json header; do
    runs 1 --from "$work/known.json" "--$file" /dev/full
    grep -q '^tune: cannot write /dev/full: No space left' "$work/err" || fail "no message about a file that takes nothing"
done
for what in "" "--json -" "--header -" --help; do
    status=0
    # shellcheck disable=SC2086  # no word, or two
    timeout 120 "$tune" --from "$work/known.json" $what >/dev/full 2>"$work/err" || status=$?
    [ "$status" -eq 1 ] || fail "standard output that takes nothing, $what: status $status, not 1"
    grep -q '^tune: cannot write standard output: No space left' "$work/err" || fail "no message about standard output, $what"
done
runs 0 --help
grep -q -- '--header' "$work/out" || fail "--help names no options"
