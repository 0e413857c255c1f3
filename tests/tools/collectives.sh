#!/bin/sh
# collectives measures every operation among processes over each transport, other libraries' programs take its turns with the ranks and the
# transport that they are for, wrong options are refused, and a rank that is killed ends the program.
# Usage: collectives.sh PATH. Ends with 77 (skipped) where there are not two CPUs.
. "$(dirname "$0")/../support/program.sh" "$@"
needs_two_cpus

moved=allreduce,started,broadcast,reduce,gather,allgather,reduce_scatter,alltoall,scan,scatter,exscan,scatterv,gatherv,allgatherv,reduce_scatterv,alltoallv
succeeds --op exchange,barrier,turns,$moved --sizes 8,32K --ranks 2,3 --rounds 2 --seconds 0.0002 --json "$work/all.json"
grep -q '2 ranks over shm' "$work/out"
MOVED=$moved python3 - "$work/all.json" <<'PYTHON'
import json, os, sys

rows = json.load(open(sys.argv[1]))["results"]
transports = ["shm"] + (["tcp"] if os.environ.get("RDMACORO_WITH_TCP") == "1" else [])
wanted = {(op, n, p, t) for op in os.environ["MOVED"].split(",") for n in (8, 32 << 10) for p in (2, 3) for t in transports}
wanted |= {(op, 0, p, t) for op in ("barrier", "turns") for p in (2, 3) for t in transports}
wanted |= {("exchange", n, 2, t) for n in (8, 32 << 10) for t in transports}
assert {(r["op"], r["bytes"], r["ranks"], r["transport"]) for r in rows} == wanted
assert len(rows) == len(wanted)
for r in rows:
    assert r["library"] == "rdmacoro" and 0 < r["min_ns"] <= r["median_ns"] <= r["max_ns"], r
PYTHON

# A peer that says what it was asked for.
cat >"$work/peer" <<'PEER'
#!/bin/sh
echo "$*" >>"$0.asked"
echo "ranks $1"
case "$1-$2" in
2-shm) echo barrier 8 100.0 200.0 300.0 ;;
3-shm) echo barrier 8 1000.0 2000.0 3000.0 ;;
*) exit 9 ;;
esac
PEER
chmod +x "$work/peer"
succeeds --op barrier --ranks 2,3 --transport shm --rounds 1 --seconds 0.0002 --peer "other=$work/peer {ranks} {transport}" --json "$work/peer.json"
grep -q -- '--op barrier' "$work/peer.asked"
python3 - "$work/peer.json" <<'PYTHON'
import json, sys

rows = [r for r in json.load(open(sys.argv[1]))["results"] if r["library"] == "other"]
assert {(r["ranks"], r["transport"], r["median_ns"]) for r in rows} == {(2, "shm", 200), (3, "shm", 2000)}, rows
PYTHON

succeeds --help
for option in op sizes ranks transport rounds seconds cpus peer fresh shared spin json; do
    grep -q -e "--$option" "$work/out"
done
refuses 2 '--help' --no-such-option
refuses 2 'needs {ranks}' --ranks 2,3 --transport shm --peer 'other=true'
refuses 2 'needs {transport}' --transport shm,tcp --peer 'other=true {ranks}'
refuses 2 'LIBRARY=COMMAND' --transport shm --peer 'other'
refuses 2 'no transport here is called' --transport carrier-pigeon
for ranks in 0 abc 2x 2,0 4294967298 1025; do
    refuses 2 '--ranks' --transport shm --ranks "$ranks"
done
for sizes in 8q -8 abc; do
    refuses 2 '--sizes' --transport shm --sizes "$sizes"
done
for sizes in 0 4 12 8,12; do
    refuses 2 'no whole number of doubles' --transport shm --sizes "$sizes"
done
refuses 2 '--shared is for shm' --transport shm,tcp --shared
# Before anything is measured.
refuses 2 'no transport here is called tpc' --transport shm,tpc
if grep -q 'ranks over' "$work/out"; then
    echo "FAILED: measured before it refused --transport shm,tpc"
    exit 1
fi
# In memory that peers map, by the ring and by gets.
for limit in 1G 16K; do
    RDMACORO_RENDEZVOUS_LIMIT=$limit
    export RDMACORO_RENDEZVOUS_LIMIT
    succeeds --shared --fresh --transport shm --op "exchange,$moved" --sizes 8,32K --ranks 2 --rounds 1 --seconds 0.0002
    unset RDMACORO_RENDEZVOUS_LIMIT
done
refuses 2 '--seconds: ' --transport shm --rounds 1 --seconds nan
status=0
timeout 60 "$program" --op barrier --transport shm --rounds 1 --seconds 0.0002 >/dev/full 2>"$work/err" || status=$?
if [ "$status" -ne 1 ] || ! grep -q '^collectives: cannot write standard output: No space left' "$work/err"; then
    echo "FAILED: standard output that takes nothing: status $status, expected 1 and a message"
    cat "$work/err"
    exit 1
fi
refuses 1 'does not print how many ranks it has' --op barrier --transport shm --rounds 1 --seconds 0.0002 --peer 'other=true {ranks}'
# A rank that is killed as soon as there is one, mostly before the others know where it is: the program ends, and says which.
python3 - "$program" <<'PYTHON'
import os, re, signal, subprocess, sys, time

def killed_at_once(program, transport):
    ranks = subprocess.Popen([program, "--op", "barrier", "--ranks", "3", "--transport", transport, "--rounds", "9999"],
                             stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    children = f"/proc/{ranks.pid}/task/{ranks.pid}/children"
    if not os.path.exists(children):
        ranks.kill()
        return print("skipped: a kernel without CONFIG_PROC_CHILDREN does not say which process is a rank")
    until = time.monotonic() + 60
    first = ""
    while not first and time.monotonic() < until:
        with open(children) as listed:
            first, _, _ = listed.read().partition(" ")
    os.kill(int(first), signal.SIGKILL)
    try:
        _, said = ranks.communicate(timeout=30)
    except subprocess.TimeoutExpired:
        ranks.kill()
        sys.exit(f"FAILED: over {transport}: rank 1 was killed, and the program goes on")
    if ranks.returncode != 1 or not re.search(r"rank 1 has ended too early|lost ranks? [0-9, and]*\b1\b", said):
        sys.exit(f"FAILED: over {transport}: rank 1 was killed: status {ranks.returncode}, expected 1 and a message that names it:\n{said}")

for transport in ["shm"] + (["tcp"] if os.environ.get("RDMACORO_WITH_TCP") == "1" else []):
    for turn in range(4):
        killed_at_once(sys.argv[1], transport)
PYTHON
# Started without its launcher, or by a launcher that is not its own: each process is a job of one.
refuses 1 'has 1 jobs of 1 ranks, not one of 2' --op barrier --transport shm --rounds 1 --seconds 0.0002 --peer 'other=echo ranks 1 #'
refuses 1 'has 2 jobs of 1 ranks, not one of 2' --op barrier --transport shm --rounds 1 --seconds 0.0002 --peer 'other=printf "ranks 1\nranks 1\n" #'
refuses 1 'failed: false' --op barrier --transport shm --rounds 1 --seconds 0.0002 --peer 'other=false {ranks}'
