#!/usr/bin/env python3
"""The scripts and the counted programs of bench/ refuse what they cannot do before they measure, and set equal figures beside each other.

The programs that the scripts run are stand-ins here.
"""
import contextlib
import importlib.machinery
import importlib.util
import io
import os
import pathlib
import re
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
BENCH = pathlib.Path(os.environ['RDMACORO_SOURCE_ROOT']) / 'bench'
BUILT = pathlib.Path(os.environ['RDMACORO_BUILD_ROOT']) / 'bench'


def ends(wanted, name, *arguments):
    """Runs a Python script within this process: what it printed, and said of errors. Its exit status has to be `wanted`."""
    loader = importlib.machinery.SourceFileLoader(name, str(BENCH / name))
    script = importlib.util.module_from_spec(importlib.util.spec_from_loader(name, loader))
    out, err = io.StringIO(), io.StringIO()
    status = 0
    sys.argv = [name, *map(str, arguments)]
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        loader.exec_module(script)
        try:
            script.main()
        except SystemExit as end:
            status = end.code
            if isinstance(status, str):
                print(status, file=sys.stderr)
                status = 1
    assert (status or 0) == wanted, f'{name} {arguments}: status {status}, not {wanted}\n{out.getvalue()}{err.getvalue()}'
    return out.getvalue(), err.getvalue()


def runs(wanted, *command):
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == wanted, f'{command}: status {done.returncode}, not {wanted}\n{done.stdout}{done.stderr}'
    return done.stdout, done.stderr


def has(text, pattern):
    assert re.search(pattern, text, re.MULTILINE), f'no "{pattern}" in:\n{text}'


def refused_options(empty):
    for name, further in (('peers', '--buffers'), ('ofi_peers', '--iterations'), ('rpc_peers', '--calls')):
        # A build without programs measures nothing, not even the peers.
        _, said = ends(1, name, '--build', empty)
        has(said, f'^{name}: .*nothing to compare with')
        for option in ('--rounds=0', '--rounds=-1', '--rounds=many', '--cpus=abc', '--cpus=0', '--cpus=1,1', '--cpus=0,-1', f'{further}=0'):
            _, said = ends(2, name, '--build', empty, option)
            has(said, f"argument {option.split('=')[0]}: ")


def means_beside_means(work):
    """fi_pingpong prints a mean."""
    programs = {
        'tools/pingpong/pingpong': '''echo '{"results": [{"test": "latency", "bytes": 8, "median_ns": 1000, "mean_ns": 2000}]}' ''',
        'bench/ofi_floor': '''echo '{"results": [{"test": "latency", "bytes": 8, "median_ns": 1000, "mean_ns": 3000}]}' ''',
        'bin/taskset': 'shift 2; exec "$@"',
        'bin/fi_pingpong': '''case "$*" in *-B*) exec sleep 60 ;; esac
echo '8       50      =50      800         0.00s      1.25       4.00       0.16' '''}
    for name, text in programs.items():
        path = work / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f'#!/bin/sh\n{text}\n')
        path.chmod(0o755)
    os.environ['PATH'] = f"{work / 'bin'}:{os.environ['PATH']}"
    shown, _ = ends(0, 'ofi_peers', '--build', work, '--transport', 'shm', '--sizes', '8', '--rounds', '1')
    has(shown, '^shm, one way, microseconds, means$')
    for row in (r'bare, shm +3\.000', r'pingpong, ofi\+shm +2\.000', r'fi_pingpong, shm +4\.000', r'ofi / bare, shm +0\.667'):
        has(shown, f'^{row}$')


def verbs_peers(empty):
    shown, said = runs(0, BENCH / 'verbs_peers', '--help')
    has(shown, 'bench/verbs_peers BUILD')
    assert said == '' and 'pipefail' not in shown, shown + said
    runs(2, BENCH / 'verbs_peers')
    has(runs(2, BENCH / 'verbs_peers', empty, '--rounds', '0')[1], 'at least 1')


def collectives_plot(work):
    has(ends(0, 'collectives_plot', '--help')[0], 'Draw what bench/collectives_model wrote')
    ends(1, 'collectives_plot')
    # One time alone, of a power of ten.
    (work / 'model.json').write_text('''{"results": [{"op": "barrier", "bytes": 0, "each": false, "algorithm": "tree", "ranks": 4,
        "virtual_ns": 1000, "bound_ns": 1000, "default": true, "simulated": true}]}''')
    has(ends(0, 'collectives_plot', work / 'model.json')[0], '^<polyline')


def counted_programs():
    for command in ([BUILT / 'message_cost'], [BUILT / 'call_cost', 'call']):
        if not os.access(command[0], os.X_OK):
            continue
        for number in ('abc', '', '1x', '-1'):
            has(runs(2, *command, number)[1], '^usage: ')
        runs(0, *command, 10)


with tempfile.TemporaryDirectory() as folder:
    here = pathlib.Path(folder)
    (here / 'empty').mkdir()
    refused_options(here / 'empty')
    means_beside_means(here / 'build')
    verbs_peers(here / 'empty')
    collectives_plot(here)
    counted_programs()
