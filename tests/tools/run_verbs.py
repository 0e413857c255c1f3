#!/usr/bin/env python3
"""What tests/verbs/run_verbs.py makes of a virtual machine that ends early, and of programs that list no tests: stand-ins for both.

Usage: run_verbs.py
"""
import contextlib
import importlib.util
import io
import json
import os
import pathlib
import sys
import tempfile

SOURCE = pathlib.Path(os.environ.get('RDMACORO_SOURCE_ROOT') or pathlib.Path(__file__).resolve().parents[2])


def load():
    spec = importlib.util.spec_from_file_location('suite', SOURCE / 'tests' / 'verbs' / 'run_verbs.py')
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.run_examples = lambda build: (0, 0)
    module.run_hardware_check = lambda build: (0, 0)
    return module


def script(folder, name, text):
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text('#!/bin/sh\n' + text, encoding='utf-8')
    path.chmod(0o755)
    return str(path)


def ends(what, suite, arguments, wanted, *lines):
    """The suite ends with this status, and prints lines with these beginnings."""
    said, status = io.StringIO(), None
    sys.argv = ['run_verbs.py', *arguments]
    with contextlib.redirect_stdout(said):
        try:
            suite.main()
        except SystemExit as end:
            status = end.code
    output = said.getvalue()
    missing = [line for line in lines if not any(one.startswith(line) for one in output.splitlines())]
    if status != wanted or missing:
        sys.exit(f'FAILED: {what}: status {status}, expected {wanted}; no line begins with {missing}\n{output}')
    return output


def machines(folder):
    suite = load()
    suite.devices = lambda: []
    ran = 'verbs result: ' + json.dumps({'devices': ['rxe0'], 'passed': 3, 'failed': 0, 'skipped': 0, 'once': []})
    for name, text, wanted, line in (
            ('that cannot be made', 'echo "apt-get failed" >&2; exit 125', 77, 'verbs: NO TEST RAN'),
            ('without devices', 'echo "no RDMA device"; exit 77', 77, 'verbs: NO TEST RAN'),
            ('that panics while tests run', 'echo "devices: rxe0, siw0"; echo "ok   verbs_verbs revoke: 1 passed"; exit 125', 1,
             'the virtual machine ended while tests ran'),
            ('that panics behind the last test', f"echo 'devices: rxe0'; echo '{ran}'; exit 125", 1, 'verbs: 3 tests passed'),
            ('with too little time', 'echo "devices: rxe0"; exit 124', 124, 'verbs: 0 tests passed'),
            ('that is well', f"echo 'devices: rxe0'; echo '{ran}'", 0, 'verbs: 3 tests passed, 0 failed, 0 skipped, on rxe0')):
        machine = script(folder, 'machine', text + '\n')
        suite.in_machine = lambda programs, everything, machine=machine: [machine]
        ends(f'a machine {name}', suite, ['program'], wanted, line)


# As Catch2 2 lists tags: it ends with their number.
LISTS = 'case "$*" in *--list-tags*) echo "  2  [#{}]"; exit 1 ;; esac\necho "All tests passed (1 assertion in 1 test case)"\n'


def programs(folder):
    suite = load()
    suite.devices = lambda: ['rxe0']
    os.environ.pop('SOFT_RDMA_VM', None)
    well = script(folder, 'build/tests/verbs/verbs_verbs', LISTS.format('revoke'))
    other = script(folder, 'build/tests/verbs/verbs_faults', LISTS.format('wrong_owner'))
    for name, text, said in (
            ('that the loader refuses', 'echo "error while loading shared libraries: libx.so" >&2; exit 127', 'error while loading'),
            ('that a signal ends', 'echo "[#some]"; kill -SEGV $$', 'signal 11 (SIGSEGV)'),
            ('that lists nothing', 'exit 0', 'status 0')):
        broken = script(folder, 'build/tests/verbs/verbs_conformance', text + '\n')
        output = ends(f'a program {name}', suite, ['--here', well, broken, other], 1, 'ok   verbs_verbs revoke: 1 passed',
                      'FAIL verbs_conformance: it lists no tests', said, 'ok   verbs_faults wrong_owner: 1 passed')
        result = json.loads(output.splitlines()[-1][len(suite.RESULT):])
        if (result['passed'], result['failed']) != (2, 1):
            sys.exit(f'FAILED: a program {name} is counted as {result}')
    # What is left out where devices are emulated is no failure.
    os.environ['SOFT_RDMA_VM'] = '1'
    ranks = script(folder, 'build/tests/verbs/verbs_ranks', LISTS.format('job'))
    ends('a program of which nothing is for emulated devices', suite, ['--here', well, ranks], 0, 'ok   verbs_verbs revoke: 1 passed')


def main():
    for name in ('RDMACORO_BUILD_ROOT', 'RXE_IP', 'SIW_IP', 'RDMACORO_WITHIN_HARDWARE_CHECK'):
        os.environ.pop(name, None)
    with tempfile.TemporaryDirectory() as folder:
        machines(pathlib.Path(folder))
        programs(pathlib.Path(folder))


if __name__ == '__main__':
    main()
