#!/usr/bin/env python3
"""Run test programs of the verbs transport where the devices are: on this machine, if it has some, else in a virtual
machine with software devices, one RoCE and one iWARP.

Usage: run_verbs.py [--all] PROGRAM...            what the suite runs; prints a line for each file of tests and a closing line
       run_verbs.py --here [--all] PROGRAM...     the same on the devices of this machine, or of this virtual machine

Emulated devices are slow. Without --all the suite runs there what depends on the device: verbs/ and transport/verbs_rc/, but for a
thousand links at a time, and of the files that run over every transport those about connections, both kinds of messages,
cancellation, flow and killed peers. With --all, and on devices of this machine, it runs everything.

Each file of tests is a run of its program, with a time limit of its own. In the virtual machine a file that fails runs once more,
to tell a race or an overloaded host from an error that always shows: the file counts as failed either way, and both outcomes are
printed. A test case that leaves by SKIP_TEST is counted as skipped, not as passed. Fails when a test failed, when a program lists no
tests, and when the virtual machine ends while they run; exits 77 when there is no device to run on. The counts are left in BUILD/meson-logs/verbs.json, where RDMACORO_BUILD_ROOT names BUILD.
"""
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import time

SKIPPED = 77
HERE = pathlib.Path(__file__).resolve().parent
SECONDS_OF_A_FILE = 300
SECONDS_OF_ALL = 1500
RESULT = 'verbs result: '
BEGAN = 'devices: '  # before the first test, here or in the virtual machine
NO_MACHINE = 125  # of soft-rdma-vm: the machine could not be made, or ended without a status
WITHIN_CHECK = 'RDMACORO_WITHIN_HARDWARE_CHECK'  # set by hardware_check.sh, which runs this script again


def devices():
    folder = pathlib.Path('/sys/class/infiniband')
    return sorted(entry.name for entry in folder.iterdir()) if folder.is_dir() else []


# Of the conformance suite over libfabric's verbs what meets the device's own ways; the rest is the same over tests/ofi's providers.
OVER_LIBFABRIC = ('cancel', 'close', 'connect', 'messages', 'one_sided')
# A forked child cannot use the devices that libfabric opened in its parent; after a refused get ofi_rxm keeps the connection whose
# queue pair is in error, so that no other link to that peer can be made (docs/hardware.md).
NOT_OVER_LIBFABRIC = '~"destroying an operation that is pending*"~"a get or put without key*"'


# Of programs that run over every transport, the files that meet the device most: connections, messages, gets and puts, ends. The others
# ask it for little else, and are nightly where devices are emulated.
ABOUT_THE_DEVICE = {
    'verbs_conformance': ('cancel', 'close', 'connect', 'flow', 'messages', 'one_sided'),
    'verbs_faults': ('peer_killed',),
    'verbs_ranks': (),
    'verbs_ofi': ('close', 'messages'),
}


# Of verbs/ and transport/verbs_rc/: a thousand links of one device, which takes an eighth of the time of all that runs there.
NOT_WHERE_EMULATED = ('many_links',)


class NotListed(Exception):
    """A program that does not say which tests it has."""


def listed_by(program):
    """The tags that Catch2 gives the cases of each file: `--filenames-as-tags` makes #name of name.cpp. The status tells only of a
    signal: Catch2 2 ends with the number of tags."""
    try:
        done = subprocess.run([program, '--filenames-as-tags', '--list-tags'], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              text=True, errors='replace', timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NotListed(str(error)) from error
    names = sorted(set(re.findall(r'\[#(\w+)\]', done.stdout)))
    if done.returncode < 0 or not names:
        raise NotListed(f'{end_of(done.returncode)}, and it wrote:\n{done.stdout[-6000:]}')
    return names


def files_of(program, everything):
    """Those of its files that run here; none may be left. Raises NotListed."""
    names = listed_by(program)
    if not everything:
        names = [name for name in names
                 if name in ABOUT_THE_DEVICE.get(pathlib.Path(program).name, names) and name not in NOT_WHERE_EMULATED]
    if pathlib.Path(program).name == 'verbs_service':
        names = [name for name in names if name not in NOT_OF_SERVICES]
    return [name for name in names if (name in OVER_LIBFABRIC if over_libfabric(program) else name not in NOT_OVER_VERBS)]


def over_libfabric(program):
    return pathlib.Path(program).name == 'verbs_ofi'


# Files about policies that ask a device for nothing but what policies_get, policies_put and policies_speculative do: over one device.
OVER_ONE_DEVICE = ('policies_allocations', 'policies_mixed', 'policies_reuse', 'policies_staged')
# The cooperative rendezvous is the one by get where the peer's memory is not shared.
NOT_OVER_VERBS = ('policies_cooperative',)
# Of services: it has bounds of time that an emulated device does not keep.
NOT_OF_SERVICES = ('calls_canceled',)
NOT_ABOUT_DEVICES = '~"cooperative_rendezvous*"~"a peer killed in any phase of cooperative*"'
# Files that also run with a receive queue for each link, as on adapters that have no shared one.
OWN_QUEUES = {
    'verbs_conformance': ('cancel', 'close', 'connect', 'flow', 'messages', 'one_sided'),
    'verbs_faults': ('peer_killed',),
}
OWN_QUEUES_AT_LEAST = {'verbs_conformance': ('close', 'messages')}
# A hundred requests by rdma_cm must come before the first of them expires: on a slow machine they do not.
NEEDS_TIME = '~"clients that ask by rdma_cm and do not go on hold*"'


def absent_transports():
    """Of the conformance suite, by the devices there are: RXE_IP and SIW_IP name an InfiniBand or RoCE device and an iWARP one; with
    neither, the default device is used. By name, and by number where a test is a template over the list of transports."""
    absent = []
    if 'SIW_IP' not in os.environ:
        absent.append(('verbs_over_iwarp', 1))
    elif 'RXE_IP' not in os.environ:
        absent += [('verbs_as_it_comes', 0), ('verbs_by_exchange', 2)]
    return absent


def cases_of_file(program, name, everything, own_queues=False):
    """What Catch2 is to run of a file. The third way to open a device differs in how connections are made: the files that
    do not test that leave it out."""
    if over_libfabric(program):
        return f'[#{name}]~[nightly]{NOT_OVER_LIBFABRIC}'
    about_connections = name in ('connect', 'close', 'messages', 'faults', 'threads') and not own_queues
    left_out = absent_transports() + ([] if about_connections else [('verbs_by_exchange', 2)])
    if own_queues or (name in OVER_ONE_DEVICE and ('verbs_as_it_comes', 0) not in left_out):
        left_out.append(('verbs_over_iwarp', 1))
    slow = '' if everything else NEEDS_TIME
    if pathlib.Path(program).name == 'verbs_service':
        return f'[#{name}]~[nightly]* - *'  # those that run over each transport of a program, of which this has one
    return f'[#{name}]~[nightly]{NOT_ABOUT_DEVICES}{slow}' + ''.join(f'~"*transport - {number}"~"* - {transport}"' for transport, number in left_out)


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
    if done.returncode == SKIPPED:
        print('skip examples: they were not built', flush=True)
        return 0, 0
    good = done.returncode == 0 and 'over verbs://' in done.stdout
    print(f"{'ok  ' if good else 'FAIL'} examples", flush=True)
    if not good:
        print(done.stdout[-6000:], flush=True)
    return int(good), int(not good)


def end_of(status):
    """How a program ended, by its status as subprocess has it."""
    if status is None:
        return 'no end in time'
    if status < 0:
        return f'signal {-status} ({signal.Signals(-status).name})'
    return f'status {status}'


def run_hardware_check(build):
    """tools/hardware-check over one of these devices; passed and failed."""
    script = HERE / 'hardware_check.sh'
    began = time.monotonic()
    done = subprocess.run(['timeout', str(SECONDS_OF_A_FILE), 'bash', str(script)], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, errors='replace', check=False,
                          env={**os.environ, 'RDMACORO_BUILD_ROOT': str(build), 'RDMACORO_SOURCE_ROOT': str(HERE.parent.parent)})
    if done.returncode == SKIPPED:
        print(f'skip hardware-check: {done.stdout.strip()}', flush=True)
        return 0, 0
    good = done.returncode == 0
    print(f"{'ok  ' if good else 'FAIL'} hardware-check, {time.monotonic() - began:.1f} s", flush=True)
    if not good:
        print(done.stdout[-6000:], flush=True)
    return int(good), int(not good)


def kernel_log():
    """Its end. A driver that fails in a process's call ends the process by a signal that cannot be handled."""
    if not shutil.which('dmesg'):
        return 'no dmesg'
    done = subprocess.run(['dmesg'], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors='replace', check=False)
    return "the kernel's log:\n" + '\n'.join(done.stdout.splitlines()[-80:])


def run_file(program, name, until, everything, own_queues=False):
    """One file of a program; passed, failed and skipped."""
    title = f'{pathlib.Path(program).name} {name}' + (' with own receive queues' if own_queues else '')
    environment = {**os.environ, **({'RDMACORO_VERBS_SHARE_RECEIVES': '0'} if own_queues else {})}
    left = min(SECONDS_OF_A_FILE, until - time.monotonic())
    began = time.monotonic()
    try:
        done = subprocess.run([program, '--filenames-as-tags', cases_of_file(program, name, everything, own_queues)], stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, errors='replace', timeout=max(left, 1), check=False,
                              env=environment)
        output, status = done.stdout, done.returncode
    except subprocess.TimeoutExpired as error:
        output = (error.stdout or b'').decode(errors='replace') + f'\nno end after {left:.0f} s'
        status = None
    good, bad, skipped = cases_of(output)
    if status == SKIPPED:
        status = 0
    if status != 0 and bad == 0:
        bad = 1  # it crashed, or did not end
    print(f"{'ok  ' if status == 0 else 'FAIL'} {title}: {good} passed, {bad} failed, {skipped} skipped, "
          f'{time.monotonic() - began:.1f} s', flush=True)
    if status != 0:
        print(f'{end_of(status)}, and it wrote {len(output)} characters, the last of them:\n{output[-6000:]}', flush=True)
        if status is not None and status < 0:
            print(kernel_log(), flush=True)
    for line in sorted(set(re.findall(r'^\S+:\d+: skipped: .*$', output, re.MULTILINE))):
        print(line, flush=True)
    return good, bad, skipped


def runs_of(program, everything):
    """File, and whether links have receive queues of their own. Raises NotListed."""
    shares = ('verbs_as_it_comes', 0) not in absent_transports()  # over iWARP no receive queue is shared
    own = (OWN_QUEUES if everything else OWN_QUEUES_AT_LEAST).get(pathlib.Path(program).name, ())
    for name in files_of(program, everything):
        yield name, False
        if shares and name in own:
            yield name, True


def run_program(program, until, everything):
    """Its files; passed, failed and skipped, and the files that failed and passed at the second attempt."""
    passed, failed, skipped, once = 0, 0, 0, []
    title = pathlib.Path(program).name
    try:
        for name, own_queues in runs_of(program, everything):
            good, bad, left_out = run_file(program, name, until, everything, own_queues)
            passed, failed, skipped = passed + good, failed + bad, skipped + left_out
            if bad and os.environ.get('SOFT_RDMA_VM'):
                print('a second attempt, which does not count:', flush=True)
                _, bad, _ = run_file(program, name, until, everything, own_queues)
                verdict = 'failed at a second attempt, too' if bad else 'passed at a second attempt: a race?'
                print(f'{title} {name} {verdict}', flush=True)
                if not bad:
                    once.append(f'{title} {name}')
    except NotListed as error:
        print(f'FAIL {title}: it lists no tests\n{error}', flush=True)
        failed += 1
    return passed, failed, skipped, once


def run_here(programs, everything):
    found = devices()
    if not found:
        print('no RDMA device')
        return SKIPPED
    print(f"{BEGAN}{', '.join(found)}", flush=True)
    everything = everything or not os.environ.get('SOFT_RDMA_VM') or WITHIN_CHECK in os.environ
    until = time.monotonic() + (2 if everything else 1) * SECONDS_OF_ALL - 30
    passed, failed, skipped = 0, 0, 0
    once = []  # failed, and passed at the second attempt
    for program in programs:
        good, bad, left_out, again = run_program(program, until, everything)
        passed, failed, skipped, once = passed + good, failed + bad, skipped + left_out, once + again
    build = pathlib.Path(programs[0]).parents[2]
    parts = [run_examples]
    if everything and os.environ.get('SOFT_RDMA_VM') and not os.environ.get(WITHIN_CHECK):
        parts.append(run_hardware_check)
    for part in parts:
        good, bad = part(build)
        passed, failed = passed + good, failed + bad
    if once:
        print(f"passed at a second attempt, and count as failed: {', '.join(once)}")
    print(RESULT + json.dumps({'devices': found, 'passed': passed, 'failed': failed, 'skipped': skipped, 'once': once}), flush=True)
    return 1 if failed else 0


def here(programs, everything):
    return [sys.executable, str(HERE / 'run_verbs.py'), '--here', *(['--all'] if everything else []), *programs]


def in_machine(programs, everything):
    if not shutil.which('apt-get') or os.geteuid() != 0:
        print('no RDMA device, and the virtual machine is made from Debian packages by root')
        return None
    return [str(HERE.parent.parent / 'tools' / 'soft-rdma-vm'), '--smp', '2', '--mem', '3072', '--mtu', '4300', '--veth',
            '--timeout', str((2 if everything else 1) * SECONDS_OF_ALL), '--', *here(programs, everything)]


def run(command, result):
    print('+', ' '.join(command), flush=True)
    began = False
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors='replace') as running:
        for line in running.stdout:
            sys.stdout.write(line)
            sys.stdout.flush()
            began = began or line.startswith(BEGAN)
            if line.startswith(RESULT):
                result = json.loads(line[len(RESULT):])
        status = running.wait()
    if status == NO_MACHINE:
        # One that ends while tests run has met an error of a driver, or of what a test does to it.
        print('the virtual machine ended while tests ran' if began else 'the virtual machine could not be made')
        status = 1 if began else SKIPPED
    return status, result


def main():
    arguments = sys.argv[1:]
    options = [one for one in arguments if one in ('--here', '--all')]
    programs = [os.path.abspath(program) for program in arguments if program not in options]
    everything = '--all' in options
    if '--here' in options:
        sys.exit(run_here(programs, everything))
    command = here(programs, everything) if devices() else in_machine(programs, everything)
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
