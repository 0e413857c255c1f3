#!/bin/sh
# waiting measures tickers, a shared core, a program that computes beside and questions after sleeps; a ticker costs little, two ends on
# one core take turns in microseconds, and a peer elsewhere is not kept waiting for a time slice of the program that computes. The bounds
# are ratios to a strategy that parks at once, in the same run, far from what is measured (bench/README.md) and from what it was without
# these properties: 87 times for the ticker, 100 times for the shared core and beside a program that computes.
# Usage: waiting.sh PATH.
. "$(dirname "$0")/../support/program.sh" "$@"

succeeds --seconds 0.3 --json "$work/all.json"
python3 - "$work/all.json" <<'PYTHON'
import json, os, sys

results = json.load(open(sys.argv[1]))["results"]
tickers = {(r["idle"], r["sleep_ms"]): r["percent_of_a_core"] for r in results if r["test"] == "ticker"}
assert set(tickers) == {(i, n) for i in ("adaptive", "parks at once") for n in (1, 2, 4, 10, 20, 100)}, tickers
for sleep in (4, 10, 20):
    assert tickers["adaptive", sleep] < 15 * tickers["parks at once", sleep], tickers
trips = {r["idle"]: r["round_trip_us"] for r in results if r["test"] == "one core"}
assert set(trips) == {"adaptive", "parks at once", "yield"}, trips
assert 0 < trips["adaptive"] < 20 * trips["parks at once"], trips
beside = {r["idle"]: r["round_trip_us"] for r in results if r["test"] == "beside a computation"}
if len(os.sched_getaffinity(0)) > 1:
    assert set(beside) == {"adaptive", "parks at once", "yield"}, beside
    assert 0 < beside["adaptive"] < 20 * beside["parks at once"], beside
    asks = {(r["idle"], r["answer_us"]): r["percent_of_a_core"] for r in results if r["test"] == "asks after sleeps"}
    assert set(asks) == {(i, n) for i in ("adaptive", "parks at once") for n in (10, 50, 100, 200, 400, 600, 900)}, asks
    assert all(0 < asks["adaptive", n] < 50 for n in (100, 200, 400, 600, 900)), asks
PYTHON

succeeds --help
for option in seconds cpu json; do grep -q -e "--$option" "$work/out"; done
refuses 2 '--help' --no-such-option
refuses 2 'seconds' --seconds 0
refuses 2 '100000' --cpu 100000
refuses 1 'cannot write' --json "$work/no/such/folder/x"
