#!/usr/bin/env python3
"""tools/gdb/rdmacoro.py names what waits, and for whom, from a core file of a program that hangs.

Ends with 77 (skipped), and says why, where there is no gdb or no compiler, or gdb may not run a program."""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

SOURCE = pathlib.Path(os.environ.get('RDMACORO_SOURCE_ROOT', pathlib.Path(__file__).resolve().parents[2]))

STUCK = '''
#include <rdmacoro/rdmacoro.hpp>
#include <csignal>
#include <deque>
#include <span>
#include <string>
#include <vector>
#include <unistd.h>
using namespace rdmacoro;
using namespace std::chrono_literals;
using list = protocols<eager<>, segmented<>>;

static task<> hang() {
    auto listening = co_await listen<shm, list>("shm://gdb-script-" + std::to_string(::getpid()));
    auto near = co_await connect<shm, list>(listening.address());
    auto far = co_await listening.accept();
    std::vector<std::byte> data(8u << 20), into(16);
    auto first = start(near.recv(into, 7));
    auto second = start(near.recv(into, tag_match(0x100, 0xf00)));
    // So many with masks that they are in tables.
    std::deque<started<decltype(far.recv(into, tag_match(0, 1)))>> masked;
    for (tag_type n = 0; n < 20; ++n) masked.emplace_back(far.recv(into, tag_match(n << 8, 0xff00)));
    auto sending = start(far.send(data, 9));
    auto looking = start(near.probe(11));
    // Short ones until the peer's budget is used up: the last waits for credit, and the close for it.
    auto poor = co_await connect<shm, list>(listening.address());
    auto full = co_await listening.accept();
    const std::span<const std::byte> some(data.data(), 4000);
    std::deque<started<decltype(poor.send(some, 1))>> many;
    while (poor.counts().credit_waits == 0) many.emplace_back(poor.send(some, 1));
    auto closing = start(poor.close());
    event never;
    auto waiting = start(never.wait());
    auto sleeping = start(sleep_for(1h));
    for (int n = 0; n < 100; ++n) co_await yield();
    std::raise(SIGABRT);
    co_await waiting;
}
int main() { scheduler{}.run(hang()); }
'''


def skip(why):
    print('skipped: ' + why)
    sys.exit(77)


def run(*command):
    return subprocess.run(command, capture_output=True, text=True)


compiler = os.environ.get('CXX', 'c++').split()
if not shutil.which('gdb'):
    skip('gdb is not installed')
if not shutil.which(compiler[0]):
    skip('no compiler ' + compiler[0])
if 'ok' not in run('gdb', '-nx', '-batch', '-ex', 'python print("ok")').stdout:
    skip('this gdb has no python')

with tempfile.TemporaryDirectory() as folder:
    work = pathlib.Path(folder)
    (work / 'stuck.cpp').write_text(STUCK)
    built = run(*compiler, '-std=c++20', '-g', '-O0', f'-I{SOURCE}/include', str(work / 'stuck.cpp'), '-o', str(work / 'stuck'),
                '-pthread')
    assert built.returncode == 0, built.stderr
    made = run('gdb', '-nx', '-batch', '-ex', 'set startup-with-shell off', '-ex', 'run', '-ex', f'generate-core-file {work}/core',
               str(work / 'stuck'))
    if not (work / 'core').exists():
        if 'ptrace' in made.stderr or 'not permitted' in made.stderr:
            skip('gdb may not run a program here')
        raise AssertionError(made.stdout + made.stderr)
    asked = run('gdb', '-nx', '-batch', '-x', str(SOURCE / 'tools/gdb/rdmacoro.py'), '-ex', 'rdmacoro-describe', str(work / 'stuck'),
                str(work / 'core'))
    text = asked.stdout
    print(text, asked.stderr)
    for line in ('event wait: the event is not set; this_program',
                 'sleep until ',
                 'recv, tag 7, from source 0: posted, no message has met it; peer_send',
                 'recv, tag 256 under mask 0xf00, from source 0: posted, no message has met it; peer_send',
                 'probe, tag 11, from source 0: no message waits; peer_send',
                 'send, tag 1: waits for credit; credit',
                 'close: waits for sends that have not begun; credit',
                 'send, tag 9: announced, 1048576 bytes have gone, no receive has met it; peer_receive'):
        assert text.count(line) == 1, line
    assert text.count(' under mask 0xff00, from source 0: posted, no message has met it; peer_send') == 20
    assert text.count(': posted') == 22 and text.count('scheduler 0x') == 1 and text.count('connection 0x') == 4
