#!/bin/sh
# collectives_model gives a time for every algorithm of every collective, none below the lower bound, by the simulation or by the cost model, which are near
# each other where the picture uses the latter; collectives_plot draws a panel for each.
# Usage: collectives_model.sh PATH
. "$(dirname "$0")/../support/program.sh" "$@"
all=barrier,broadcast,scatter,gather,allgather,alltoall,reduce,allreduce,reduce_scatter,scan,exscan
succeeds --op $all --sizes 8,64K,8r --ranks 32 --json "$work/simulated.json"
grep -q '^32 ranks' "$work/out"
grep -q 'simulated *default' "$work/out"
succeeds --op $all --sizes 8,64K,8r --ranks 32 --most-messages 0 --json "$work/model.json"
succeeds --op $all --sizes 8,64K,8r --ranks 32 --most-messages 700 --json "$work/both.json"
OPS=$all python3 - "$work" <<'PYTHON'
import json, os, sys

def rows(name):
    return json.load(open(f"{sys.argv[1]}/{name}.json"))["results"]

def key(row):
    return row["op"], row["bytes"], row["each"], row["ranks"], row["algorithm"]

simulated = {key(row): row for row in rows("simulated")}
model = {key(row): row for row in rows("model")}
of_blocks = ("scatter", "gather", "allgather", "alltoall", "reduce_scatter")
wanted = {(op, n, each, p) for op in os.environ["OPS"].split(",") for n, each in ((8, False), (65536, False), (8, True))
          for p in (2, 4, 8, 16, 32)
          if (op == "barrier" and n == 8 and not each) or
          (op != "barrier" and (each or n == 65536 if op in of_blocks else not each))}
assert {k[:4] for k in simulated} == wanted, {k[:4] for k in simulated} ^ wanted
assert all(row["simulated"] for row in simulated.values()) and not any(row["simulated"] for row in model.values())
for row in simulated.values():
    assert row["virtual_ns"] >= row["bound_ns"], row
# One choice for each call, and the same whatever gives the times.
for call in wanted:
    chosen = [k[4] for k in simulated if k[:4] == call and simulated[k]["default"]]
    assert len(chosen) == 1, (call, chosen)
# By times that are right a ring takes its steps: p - 1 messages of 1.4 us, one after the other.
assert simulated["alltoall", 8, True, 32, "pairwise"]["virtual_ns"] >= 31 * 1400
assert simulated["allreduce", 8, False, 32, "recursive_doubling"]["virtual_ns"] == 5 * 1400
for k in model:
    # Those of which all have messages for all, one after the other.
    if k[3] == 32 and k[4] in ("ring", "double_ring", "pairwise", "scatter_allgather"):
        assert 0.8 < model[k]["virtual_ns"] / simulated[k]["virtual_ns"] < 1.25, (k, model[k], simulated[k])
both = rows("both")
assert {row["simulated"] for row in both} == {True, False}
for row in both:
    assert row["virtual_ns"] == (simulated if row["simulated"] else model)[key(row)]["virtual_ns"], row
    if not row["simulated"]:
        assert row["ranks"] == 32, row
PYTHON
"$RDMACORO_SOURCE_ROOT/bench/collectives_plot" "$work/both.json" >"$work/plot.svg"
python3 - "$work" <<'PYTHON'
import sys, xml.etree.ElementTree as tree

drawn = tree.parse(f"{sys.argv[1]}/plot.svg").getroot()
space = "{http://www.w3.org/2000/svg}"
_, _, width, height = map(float, drawn.get("viewBox").split())
titles = [text.text for text in drawn.iter(space + "text") if text.get("font-weight") == "bold"]
assert len(titles) == len(set(titles)) == 1 + 5 * 2 + 5 * 2, titles
assert "alltoall of 8 bytes a rank" in titles and "exscan of 65536 bytes" in titles, titles
lines = list(drawn.iter(space + "polyline"))
assert any(line.get("stroke-dasharray") == "2 2" for line in lines), "nothing is by the model"
for line in lines:
    for point in line.get("points").split():
        x, y = map(float, point.split(","))
        assert 0 <= x <= width and 0 <= y <= height, point
assert len(list(drawn.iter(space + "circle"))) == 5 * len(titles), "a dot for each choice"
PYTHON

refuses 2 'no collective is called' --op sort
refuses 2 'is not a size' --sizes 8q
