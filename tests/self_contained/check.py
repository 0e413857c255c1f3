#!/usr/bin/env python3
"""Check that each header stands alone, is guarded, and compiles without a warning.

Usage: check.py BUILD_ROOT INCLUDE_DIRECTORY UNIT TESTS HEADER...   (UNIT is compiled by the build with the flags to use)

For separate compilation, which leaves bodies and what they include out, the mirrored test of a header, tests/x/y.cpp of
rdmacoro/x/y.hpp, proves it where its first include is the header and tests are compiled one by one (TESTS is `each`, not
`grouped`): the build compiles it with these warnings. The others are included here, twice, by nothing else, and only read
(-fsyntax-only), as many at a time as there are processors. Header-only those are read that then include bodies: what others
include in that way can only add to what they see.
"""
import concurrent.futures
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
import time

TESTS = pathlib.Path(__file__).resolve().parent.parent
SEPARATE = ['-DRDMACORO_SEPARATE_COMPILATION']


def flags_of(build, unit):
    """The build's own command for `unit`, without what names files."""
    with open(build / 'compile_commands.json', encoding='utf-8') as file:
        entries = json.load(file)
    for entry in entries:
        if (pathlib.Path(entry['directory']) / entry['file']).resolve() == unit.resolve():
            command = shlex.split(entry['command'])
            break
    else:
        sys.exit(f'no command for {unit} in {build}/compile_commands.json')
    kept = []
    words = iter(command)
    for word in words:
        if word in ('-o', '-MF', '-MQ', '-MT', '-c'):
            next(words)
        elif word not in ('-MD', '-MMD', '-MP') and not word.startswith(('-fsanitize', '-O', '-g', '-fprofile')):
            kept.append(word)
    return kept + ['-O0', '-fsyntax-only', '-x', 'c++', '-'], entry['directory']


def proven_by_its_test(header):
    """Whether a test that the build compiles includes the header before all else, and the header guards itself."""
    test = TESTS / pathlib.Path(*pathlib.Path(header).parts[1:]).with_suffix('.cpp')
    if not test.is_file():
        return False
    first = re.search(r'^ *#.*$', test.read_text(encoding='utf-8'), re.MULTILINE)
    return first is not None and first[0] == f'#include <{header}>'


def check(command, directory, header, options):
    text = f'#include <{header}>\n#include <{header}>\n'
    # Options come before the language and the input.
    done = subprocess.run([*command[:-3], *options, *command[-3:]], cwd=directory, input=text, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=120, check=False)
    return done.returncode, done.stdout


def main():
    build, include, unit, tests, *headers = sys.argv[1:]
    assert headers, 'no headers to check'
    missing = [header for header in headers if not (pathlib.Path(include) / header).is_file()]
    if missing:
        sys.exit('no such headers: ' + ', '.join(missing))
    command, directory = flags_of(pathlib.Path(build), pathlib.Path(unit))
    print('+', shlex.join(command), flush=True)
    began = time.monotonic()
    failed = []
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        checks = {}
        for header in headers:
            text = (pathlib.Path(include) / header).read_text(encoding='utf-8')
            if tests == 'grouped' or '#pragma once\n' not in text or not proven_by_its_test(header):
                checks[pool.submit(check, command, directory, header, SEPARATE)] = header, 'separate compilation'
            # src.hpp collects bodies, for separate compilation alone.
            if not header.endswith('/src.hpp') and '.ipp>' in text:
                checks[pool.submit(check, command, directory, header, [])] = header, 'header-only'
        for number, done in enumerate(concurrent.futures.as_completed(checks), 1):
            header, way = checks[done]
            status, output = done.result()
            if status != 0:
                failed.append(f'{header} ({way})')
                print(f'FAILED: {header} ({way})\n{output}', flush=True)
            if number % 50 == 0 or number == len(checks):
                print(f'{number} of {len(checks)} checked, {len(failed)} failed, '
                      f'{time.monotonic() - began:.0f} s', flush=True)
    if failed:
        sys.exit('\n'.join(['headers that do not stand alone:', *sorted(failed)]))


if __name__ == '__main__':
    main()
