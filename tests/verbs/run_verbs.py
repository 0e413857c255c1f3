#!/usr/bin/env python3
"""Run test programs of the verbs transport where the devices are: on this machine, if it has some, else in a virtual
machine with software devices, one RoCE and one iWARP.

Usage: run_verbs.py PROGRAM...            what the suite runs; prints a line for each file of tests and a closing line
       run_verbs.py --here PROGRAM...     the same on the devices of this machine, or of this virtual machine

Each file of tests is a run of its program, with a time limit of its own. In the virtual machine a file that fails runs once more,
to tell a race or an overloaded host from an error that always shows: the file counts as failed either way, and both outcomes are
printed. A test case that leaves by SKIP_TEST is counted as skipped, not as passed. Fails when a test failed; exits 77 when there is
no device to run on. The counts are left in BUILD/meson-logs/verbs.json, where RDMACORO_BUILD_ROOT names BUILD.
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
SECONDS_OF_ALL = 1500
RESULT = 'verbs result: '


def devices():
    folder = pathlib.Path('/sys/class/infiniband')
    return sorted(entry.name for entry in folder.iterdir()) if folder.is_dir() else []


# Of the conformance suite over libfabric's verbs what meets the device's own ways; the rest is the same over tests/ofi's providers.
OVER_LIBFABRIC = ('cancel', 'close', 'connect', 'messages', 'one_sided')
# A forked child cannot use the devices that libfabric opened in its parent; after a refused get ofi_rxm keeps the connection whose
# queue pair is in error, so that no other link to that peer can be made (docs/hardware.md).
NOT_OVER_LIBFABRIC = '~"destroying an operation that is pending*"~"a get or put without key*"'


def files_of(program):
    """The tags that Catch2 gives the cases of each file: `--filenames-as-tags` makes #name of name.cpp."""
    done = subprocess.run([program, '--filenames-as-tags', '--list-tags'], stdout=subprocess.PIPE, text=True,
                          timeout=60, check=False)
    names = sorted(set(re.findall(r'\[#(\w+)\]', done.stdout)))
    return [name for name in names if name in OVER_LIBFABRIC] if over_libfabric(program) else names


def over_libfabric(program):
    return pathlib.Path(program).name == 'verbs_ofi'


def cases_of_file(program, name):
    """What Catch2 is to run of a file. The third way to open a device differs in how connections are made: the files that
    do not test that leave it out."""
    if over_libfabric(program):
        return f'[#{name}]~[nightly]{NOT_OVER_LIBFABRIC}'
    about_connections = name in ('connect', 'close', 'messages', 'faults', 'threads')
    return f'[#{name}]~[nightly]' + ('' if about_connections else '~"*transport - 2"~"* - verbs_by_exchange"')


def cases_of(output):
    """Passed, failed and skipped test cases, by the last lines of Catch2 and of tests/support/main.cpp. A case that skips a part of
    itself, or one of the devices, is among the skipped ones."""
    left_out = re.search(r'^test cases skipped: (\d+)$', output, re.MULTILINE)
    skipped = int(left_out[1]) if left_out else 0
    whole = re.search(r'All tests passed \(\d+ assertions? in (\d+) test cases?\)', output)
    counts = re.search(r'test cases: *(\d+)(?: *\| *(\d+) passed)?(?: *\| *(\d+) failed)?', output)
    passed = int(whole[1]) if whole else int(counts[2] or 0) if counts else 0
    failed = int(counts[3] or 0) if counts and not whole else 0
    return passed - min(skipped, passed), failed, skipped


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
    """One file of a program; passed, failed and skipped."""
    left = min(SECONDS_OF_A_FILE, until - time.monotonic())
    began = time.monotonic()
    try:
        done = subprocess.run([program, '--filenames-as-tags', cases_of_file(program, name)], stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, errors='replace', timeout=max(left, 1), check=False)
        output, status = done.stdout, done.returncode
    except subprocess.TimeoutExpired as error:
        output = (error.stdout or b'').decode(errors='replace') + f'\nno end after {left:.0f} s'
        status = -1
    good, bad, skipped = cases_of(output)
    if status == SKIPPED:
        status = 0
    if status != 0 and bad == 0:
        bad = 1  # it crashed, or did not end
    print(f"{'ok  ' if status == 0 else 'FAIL'} {pathlib.Path(program).name} {name}: {good} passed, {bad} failed, {skipped} skipped, "
          f'{time.monotonic() - began:.1f} s', flush=True)
    if status != 0:
        print(output[-6000:], flush=True)
    for line in sorted(set(re.findall(r'^\S+:\d+: skipped: .*$', output, re.MULTILINE))):
        print(line, flush=True)
    return good, bad, skipped


def run_here(programs):
    found = devices()
    if not found:
        print('no RDMA device')
        return SKIPPED
    print(f"devices: {', '.join(found)}", flush=True)
    until = time.monotonic() + SECONDS_OF_ALL - 30
    passed, failed, skipped = 0, 0, 0
    once = []  # failed, and passed at the second attempt
    for program in programs:
        for name in files_of(program):
            good, bad, left_out = run_file(program, name, until)
            passed, failed, skipped = passed + good, failed + bad, skipped + left_out
            if bad and os.environ.get('SOFT_RDMA_VM'):
                print('a second attempt, which does not count:', flush=True)
                _, bad, _ = run_file(program, name, until)
                verdict = 'failed at a second attempt, too' if bad else 'passed at a second attempt: a race?'
                print(f'{pathlib.Path(program).name} {name} {verdict}', flush=True)
                if not bad:
                    once.append(f'{pathlib.Path(program).name} {name}')
    good, bad = run_examples(pathlib.Path(programs[0]).parents[2])
    passed, failed = passed + good, failed + bad
    if once:
        print(f"passed at a second attempt, and count as failed: {', '.join(once)}")
    print(RESULT + json.dumps({'devices': found, 'passed': passed, 'failed': failed, 'skipped': skipped, 'once': once}), flush=True)
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
    status, result = SKIPPED, {'passed': 0, 'failed': 0, 'skipped': 0, 'once': [], 'devices': []}
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
        print(f"verbs: {result['passed']} tests passed, {result['failed']} failed, {result['skipped']} skipped, on {', '.join(result['devices']) or '?'}")
    sys.exit(status)


if __name__ == '__main__':
    main()
