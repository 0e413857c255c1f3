#!/usr/bin/env python3
"""Run test programs of the verbs transport where the devices are: on this machine, if it has some, else in a virtual
machine with software devices, one RoCE and one iWARP.

Usage: run_verbs.py PROGRAM...            what the suite runs; prints a line for each file of tests and a closing line
       run_verbs.py --here PROGRAM...     the same on the devices of this machine, or of this virtual machine

Each file of tests is a run of its program, with a time limit of its own. In the virtual machine a file that fails runs once more:
an emulated device on a busy host may be late for anything. Which ones did is said at the end. Fails when a test failed; exits
77 when there is nothing to run on. What ran is left in BUILD/meson-logs/verbs.json, where RDMACORO_BUILD_ROOT says what BUILD is.
"""
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time

SKIPPED = 77
HERE = pathlib.Path(__file__).resolve().parent
SECONDS_OF_A_FILE = 150
SECONDS_OF_ALL = 840
RESULT = 'verbs result: '


def devices():
    folder = pathlib.Path('/sys/class/infiniband')
    return sorted(entry.name for entry in folder.iterdir()) if folder.is_dir() else []


def files_of(program):
    """The tags that Catch2 gives the cases of each file: `--filenames-as-tags` makes #name of name.cpp."""
    done = subprocess.run([program, '--filenames-as-tags', '--list-tags'], stdout=subprocess.PIPE, text=True,
                          timeout=60, check=False)
    return sorted(set(re.findall(r'\[#(\w+)\]', done.stdout)))


def cases_of_file(name):
    """What Catch2 is to run of a file. The third way to open a device differs in how connections are made: the files that
    say nothing about that leave it out."""
    about_connections = name in ('connect', 'close', 'messages', 'faults', 'threads')
    return f'[#{name}]~[nightly]' + ('' if about_connections else '~"*transport - 2"')


def cases_of(output):
    """Passed and failed test cases, by Catch2's last lines."""
    whole = re.search(r'All tests passed \(\d+ assertions? in (\d+) test cases?\)', output)
    if whole:
        return int(whole[1]), 0
    counts = re.search(r'test cases: *(\d+)(?: *\| *(\d+) passed)?(?: *\| *(\d+) failed)?', output)
    if counts:
        return int(counts[2] or 0), int(counts[3] or 0)
    return 0, 0


def run_examples(build):
    """The examples over every transport, this one included; passed and failed."""
    script = HERE.parent / 'tools' / 'examples.sh'
    done = subprocess.run(['timeout', str(SECONDS_OF_A_FILE), 'bash', str(script)], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, errors='replace', check=False,
                          env={**os.environ, 'RDMACORO_BUILD_ROOT': str(build), 'RDMACORO_WITH_TCP': '0', 'RDMACORO_WITH_OFI': '0',
                               'RDMACORO_WITH_VERBS': '1'})
    good = done.returncode == 0 and 'over verbs://' in done.stdout
    print(f"{'ok  ' if good else 'FAIL'} examples", flush=True)
    if not good:
        print(done.stdout[-6000:], flush=True)
    return int(good), int(not good)


def run_file(program, name, until):
    """One file of a program; passed and failed."""
    left = min(SECONDS_OF_A_FILE, until - time.monotonic())
    began = time.monotonic()
    try:
        done = subprocess.run([program, '--filenames-as-tags', cases_of_file(name)], stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, errors='replace', timeout=max(left, 1), check=False)
        output, status = done.stdout, done.returncode
    except subprocess.TimeoutExpired as error:
        output = (error.stdout or b'').decode(errors='replace') + f'\nno end after {left:.0f} s'
        status = -1
    good, bad = cases_of(output)
    if status != 0 and bad == 0:
        bad = 1  # it crashed, or did not end
    print(f"{'ok  ' if status == 0 else 'FAIL'} {pathlib.Path(program).name} {name}: {good} passed, {bad} failed, "
          f'{time.monotonic() - began:.1f} s', flush=True)
    if status != 0:
        print(output[-6000:], flush=True)
    return good, bad


def run_here(programs):
    found = devices()
    if not found:
        print('no RDMA device')
        return SKIPPED
    print(f"devices: {', '.join(found)}", flush=True)
    until = time.monotonic() + SECONDS_OF_ALL - 30
    passed, failed = 0, 0
    again = []
    for program in programs:
        for name in files_of(program):
            good, bad = run_file(program, name, until)
            if bad and os.environ.get('SOFT_RDMA_VM'):
                again.append(f'{pathlib.Path(program).name} {name}')
                good, bad = run_file(program, name, until)
            passed, failed = passed + good, failed + bad
    good, bad = run_examples(pathlib.Path(programs[0]).parents[2])
    passed, failed = passed + good, failed + bad
    if again:
        print(f"ran twice: {', '.join(again)}")
    print(RESULT + json.dumps({'devices': found, 'passed': passed, 'failed': failed, 'twice': len(again)}), flush=True)
    return 1 if failed else 0


def here(programs):
    return [sys.executable, str(HERE / 'run_verbs.py'), '--here', *programs]


def in_machine(programs):
    if not shutil.which('apt-get') or os.geteuid() != 0:
        print('no RDMA device, and the virtual machine is made from Debian packages by root')
        return None
    return [str(HERE.parent.parent / 'tools' / 'soft-rdma-vm'), '--smp', '2', '--mem', '3072', '--mtu', '4300', '--poll', '--veth',
            '--timeout', str(SECONDS_OF_ALL), '--', *here(programs)]


def run(command, result):
    print('+', ' '.join(command), flush=True)
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors='replace') as running:
        for line in running.stdout:
            sys.stdout.write(line)
            sys.stdout.flush()
            if line.startswith(RESULT):
                result = json.loads(line[len(RESULT):])
        status = running.wait()
    if status == 125:
        print('the virtual machine could not be made')
        status = SKIPPED
    return status, result


def main():
    if sys.argv[1] == '--here':
        sys.exit(run_here(sys.argv[2:]))
    programs = [os.path.abspath(program) for program in sys.argv[1:]]
    command = here(programs) if devices() else in_machine(programs)
    status, result = SKIPPED, {'passed': 0, 'failed': 0, 'twice': 0, 'devices': []}
    if command:
        status, result = run(command, result)
    if status != SKIPPED and result['passed'] == 0 and status == 0:
        status = 1  # nothing ran
    build = os.environ.get('RDMACORO_BUILD_ROOT')
    if build:
        (pathlib.Path(build) / 'meson-logs' / 'verbs.json').write_text(json.dumps(result), encoding='utf-8')
    if status == SKIPPED:
        print('verbs: NO TEST RAN')
    else:
        print(f"verbs: {result['passed']} tests passed, {result['failed']} failed, on {', '.join(result['devices']) or '?'}")
    sys.exit(status)


if __name__ == '__main__':
    main()
