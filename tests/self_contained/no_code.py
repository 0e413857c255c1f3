#!/usr/bin/env python3
"""Check that a unit which includes a room's or a transport's header, and uses nothing of it, has no code: what it defines, every unit
of a user's program would compile again. A function that is not inline or a virtual one without RDMACORO_DECL in its class
(see coro/detail/config.hpp) ends here. And that a unit which makes a node compiles nothing of connections where that is compiled once.

Usage: no_code.py BUILD_ROOT UNIT HEADER...     (UNIT is compiled by the build with the flags to use)
"""
import pathlib
import re
import subprocess
import sys
import tempfile

import check


NODE = """#include <rdmacoro/transport/shm.hpp>
#include <rdmacoro/service/node.hpp>
rdmacoro::task<> use() { rdmacoro::node<rdmacoro::shm> made(1); co_await made.listen("shm://a"); }
"""


def functions_of(command, directory, text):
    """The functions of this project that the unit `text` defines."""
    with tempfile.TemporaryDirectory() as folder:
        unit = pathlib.Path(folder) / 'unit.o'
        # Level 1: without optimization the compiler keeps functions that nothing calls.
        words = ['-O1' if word == '-O0' else word for word in command if word != '-fsyntax-only']
        subprocess.run([*words[:-3], '-c', '-o', str(unit), *words[-3:]], cwd=directory, input=text, text=True, timeout=120, check=True)
        listed = subprocess.run(['nm', '--demangle', '--defined-only', str(unit)], stdout=subprocess.PIPE, text=True, check=True)
    return [line[19:] for line in listed.stdout.splitlines() if re.match(r'[0-9a-f]{16} [TtW] .*\brdmacoro', line)]


def main():
    build, unit, *headers = sys.argv[1:]
    assert headers, 'no headers to check'
    command, directory = check.flags_of(pathlib.Path(build), pathlib.Path(unit))
    used = functions_of(command, directory, f'#include <{headers[0]}>\nvoid use() {{ rdmacoro::scheduler on; }}\n')
    assert any('scheduler' in name for name in used), f'a unit that uses a scheduler has no code of it, but {used}'
    failed = 0
    for header in headers:
        found = functions_of(command, directory, f'#include <{header}>\n')
        print(f"{header}: {'no code' if not found else f'{len(found)} functions'}", *found[:20], sep='\n    ', flush=True)
        failed += bool(found)
    of_connections = [[name for name in functions_of([*command[:-3], *flags, *command[-3:]], directory, NODE) if 'node_transport_over<' in name]
                      for flags in ([], ['-DRDMACORO_SEPARATE_COMPILATION'])]
    print(f'a unit that makes a node: {len(of_connections[0])} functions of connections, {len(of_connections[1])} where they are compiled once')
    assert of_connections[0], 'header-only, a unit that makes a node has no code of connections: the name has changed?'
    failed += bool(of_connections[1])
    sys.exit(failed)


if __name__ == '__main__':
    main()
