#!/bin/sh
# rdmacoro-info reports every check in both forms, notices limits that are put on it, and refuses wrong options.
# Usage: info.sh PATH_OF_RDMACORO_INFO
set -eu
info=${1:?usage: info.sh PATH_OF_RDMACORO_INFO}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# Stand-ins for libfabric's providers of hardware, where they are built.
[ ! -e "${RDMACORO_BUILD_ROOT:-/nowhere}/tests/ofi/libgni-fi.so" ] || export FI_PROVIDER_PATH="$RDMACORO_BUILD_ROOT/tests/ofi"

timeout 60 "$info" --json - >"$work/stdout.json"
timeout 60 "$info" --json "$work/file.json" >"$work/table"
# Limits that any user may lower: the report has to change with them.
(ulimit -n 64 && timeout 60 "$info" --json "$work/few_files.json" >/dev/null)
cpu=$(python3 -c 'import os; print(min(os.sched_getaffinity(0)))')
RDMACORO_OFI_NODE=203.0.113.77 timeout 60 "$info" --json "$work/no_such_node.json" >/dev/null
taskset -c "$cpu" timeout 60 "$info" --json "$work/one_cpu.json" >/dev/null

python3 - "$work" <<'PYTHON'
import json, os, sys

work = sys.argv[1]
required = """kernel cpus seccomp memfd process_vm_readv process_vm_writev membarrier memlock open_files hugepages
userfaultfd io_uring io_uring_coop_taskrun io_uring_single_issuer io_uring_defer_taskrun io_uring_provided_buffers
io_uring_multishot_recv io_uring_multishot_accept io_uring_send_zc tcp_congestion_control rdma_devices
libfabric_providers""".split()


def load(name):
    document = json.load(open(os.path.join(work, name)))
    checks = {check["name"]: check for check in document["checks"]}
    assert sorted(checks) == sorted(required), set(checks) ^ set(required)
    assert len(document["checks"]) == len(required)
    for check in checks.values():
        assert check["state"] in ("ok", "limited", "missing"), check
        assert check["detail"], check
        assert bool(check["advice"]) == (check["state"] != "ok"), check
    assert document["machine"]["kernel"] == os.uname().release
    assert document["machine"]["architecture"] == os.uname().machine
    assert isinstance(document["rdma_devices"], list)
    try:
        devices = sorted(os.listdir("/sys/class/infiniband"))
    except FileNotFoundError:
        devices = []
    assert [device["name"] for device in document["rdma_devices"]] == devices
    for device in document["rdma_devices"]:
        assert (device["used"] is not None) == (os.environ.get("RDMACORO_WITH_VERBS", "0") == "1"), device
    return document["machine"], checks


def providers(name):
    libfabric = json.load(open(os.path.join(work, name)))["libfabric"]
    if os.environ.get("RDMACORO_WITH_OFI", "0") != "1":
        assert libfabric is None, libfabric
        return None
    names = [provider["name"] for provider in libfabric["providers"]]
    assert len(names) == len(set(names)), names
    for provider in libfabric["providers"]:
        assert provider["version"] and isinstance(provider["mr_mode"], list), provider
        known = provider["scheme"] is not None
        assert known == (provider["get_alignment"] is not None), provider
        assert (provider["wait"] in ("descriptor", "none")) == (known and provider["problem"] is None), provider
        assert (provider["receives"] is not None) == (provider["wait"] is not None), provider
    return {provider["name"]: provider for provider in libfabric["providers"]}


machine, checks = load("stdout.json")
assert machine["usable_cpus"] == len(os.sched_getaffinity(0))
load("file.json")

table = open(os.path.join(work, "table")).read().splitlines()
listed = [line.split()[:2] for line in table if line.split() and line.split()[0] in checks]
assert sorted(listed) == sorted([name, check["state"]] for name, check in checks.items()), table

known = providers("stdout.json")
if known is None:
    assert checks["libfabric_providers"]["state"] == "missing"
else:
    assert known["tcp;ofi_rxm"]["scheme"] == "ofi+tcp" and known["tcp;ofi_rxm"]["wait"] == "descriptor"
    assert known["shm"]["problem"] is None and known["shm"]["inject_bytes"] >= 64
    assert known["tcp;ofi_rxm"]["receives"] > 0 and known["tcp;ofi_rxm"]["most_links"] is None, known["tcp;ofi_rxm"]
    assert checks["libfabric_providers"]["state"] == "ok", checks["libfabric_providers"]
    printed = [line for line in table if line.startswith("tcp;ofi_rxm ")]
    assert len(printed) == 1 and "ofi+tcp://" in printed[0], table
    if "FI_PROVIDER_PATH" in os.environ:
        gni = known["gni"]
        assert gni["scheme"] == "ugni" and gni["get_alignment"] == 4 and gni["atomics"] and gni["wait"] == "none", gni
        assert "FI_MR_PROV_KEY" in gni["mr_mode"], gni
        # It loses what finds no receive.
        assert gni["most_links"] == gni["receives"] // 8, gni
    # An address that no interface has: what has IP addresses cannot be opened, and the text names it.
    spoilt = providers("no_such_node.json")
    assert "203.0.113.77" in spoilt["tcp;ofi_rxm"]["problem"] and spoilt["shm"]["problem"] is None, spoilt
    assert load("no_such_node.json")[1]["libfabric_providers"]["state"] == "limited"

assert load("few_files.json")[1]["open_files"]["state"] == "limited"
machine, checks = load("one_cpu.json")
assert machine["usable_cpus"] == 1
assert checks["cpus"]["state"] == "limited"
PYTHON

expect() {
    wanted=$1
    shift
    status=0
    timeout 60 "$info" "$@" >"$work/out" 2>"$work/err" || status=$?
    if [ "$status" -ne "$wanted" ] || ! grep -q '^rdmacoro-info: ' "$work/err"; then
        echo "rdmacoro-info $*: exit status $status, expected $wanted and a message that begins with the program's name"
        cat "$work/err"
        exit 1
    fi
}
expect 2 --no-such-option
expect 2 surplus
expect 2 --json
expect 1 --json "$work/no/such/folder/x"
expect 1 --json /dev/full
for what in "" "--json -" --help; do
    status=0
    # shellcheck disable=SC2086  # no word, or two
    timeout 60 "$info" $what >/dev/full 2>"$work/err" || status=$?
    if [ "$status" -ne 1 ] || ! grep -q '^rdmacoro-info: cannot write standard output: No space left' "$work/err"; then
        echo "rdmacoro-info $what >/dev/full: exit status $status, expected 1 and a message"
        exit 1
    fi
done
timeout 60 "$info" --help | grep -q -e --json
