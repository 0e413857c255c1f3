#!/usr/bin/env python3
"""Check that each header stands alone, is guarded, and compiles without a warning.

Usage: check.py BUILD_ROOT INCLUDE_DIRECTORY UNIT HEADER...   (UNIT is compiled by the build with the flags to use)

Headers and the bodies they collect (.ipp) are read as for separate compilation, where a header brings no bodies along, as many units
at a time as there are processors (-fsyntax-only). Header-only, bodies can only add to what is seen, unless they include in a circle a
header that has not come to its own declarations: where the includes tell of such a circle, a header that users include (not of detail/)
is read so, too. A header is not read for separate compilation where a unit of the tests includes it before all else, tests/x/y.cpp of
rdmacoro/x/y.hpp: it is compiled by the build with these warnings, unless a prelude comes before it. Where tests are compiled in groups,
a unit is the group.

Headers are read one after the other in a unit where each includes the one before, directly or by others and under no condition: that
is there in any case. So are bodies, apart from headers, where the header that has the body includes that of the one before: header-only the
body before is there in any case, too.
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


def first_include(path):
    found = re.search(r'^ *#.*$', '\n'.join(line for line in path.read_text(encoding='utf-8').splitlines() if line != '#pragma once'),
                      re.MULTILINE)
    included = found and re.fullmatch(r' *# *include *[<"](.+)[>"]', found[0])
    return included[1] if included else ''


def proven_by_tests(build):
    """The headers that units of the tests include before all else: before them there is no prelude."""
    with open(build / 'compile_commands.json', encoding='utf-8') as file:
        units = {(pathlib.Path(entry['directory']) / entry['file']).resolve() for entry in json.load(file)
                 if ' -include ' not in entry['command']}
    proven = set()
    for unit in units:
        if re.fullmatch(r'.*-unity\d+\.cpp', unit.name):
            unit = pathlib.Path(first_include(unit))
        elif not unit.is_relative_to(TESTS):
            continue
        if unit.is_file():
            proven.add(first_include(unit))
    return proven


def parts_of(text):
    """What a file includes before its first declaration, and after: header-only, the bodies of what it has declared."""
    before, after, declared = [], [], False
    for line in text.splitlines():
        included = re.fullmatch(r' *# *include <(rdmacoro/[^>]+)>', line)
        if included:
            (after if declared else before).append(included[1])
        elif line.startswith(('namespace ', 'class ', 'struct ', 'template ', 'inline ')):
            declared = True
    return before, after


def in_a_circle(include, first, parts):
    """Whether, header-only, something includes a header that has not declared anything yet, where `first` is included first."""
    waiting, entered = [], set()

    def enter(path):
        if path not in parts:
            parts[path] = parts_of((include / path).read_text(encoding='utf-8'))
        before, after = parts[path]
        entered.add(path)
        waiting.append(path)
        # A list: all are entered, whatever the first one tells.
        found = any([one in waiting or (one not in entered and enter(one)) for one in before])
        waiting.pop()
        return any([found, *(enter(one) for one in after if one not in entered)])

    return enter(first)


class Includes:
    """What the files below a directory include under no condition."""

    def __init__(self, directory):
        self.directory = directory
        self.known = {}

    def of(self, path):
        """What `path` includes, directly or by others: names as between the brackets."""
        if path not in self.known:
            found = self.known[path] = set()
            if (self.directory / path).is_file():
                depth = 0
                for line in (self.directory / path).read_text(encoding='utf-8').splitlines():
                    depth += bool(re.match(r' *# *if', line)) - bool(re.match(r' *# *endif', line))
                    included = depth == 0 and re.match(r' *# *include *<([^>]+)>', line)
                    if included:
                        found |= {included[1], *self.of(included[1])}
        return self.known[path]


def rows_of(subjects, includes):
    """The files of `subjects`, each with the header that it is about, in rows of which each header includes the one before."""
    rows = []
    for path, header in sorted(subjects.items(), key=lambda one: (len(includes.of(one[1])), one[0])):
        # Behind the one that includes the most.
        fitting = [row for row in rows if subjects[row[-1]] in includes.of(header)]
        if fitting:
            max(fitting, key=lambda row: len(includes.of(subjects[row[-1]]))).append(path)
        else:
            rows.append([path])
    return rows


def check(command, directory, paths, options):
    # Options come before the language and the input.
    text = ''.join(f'#include <{path}>\n' for path in paths)
    done = subprocess.run([*command[:-3], *options, *command[-3:]], cwd=directory, input=text, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=120, check=False)
    return done.returncode, done.stdout


def main():
    build, include, unit, *headers = sys.argv[1:]
    build, include = pathlib.Path(build), pathlib.Path(include)
    assert headers, 'no headers to check'
    texts = {header: (include / header).read_text(encoding='utf-8') for header in headers}
    # Each with the header that has it header-only, or with the unit's that is compiled once.
    owners = {body: header for header in sorted(texts, key=lambda name: not name.endswith('/src.hpp'))
              for body in re.findall(r'^ *# *include <([^>]+\.ipp)>', texts[header], re.MULTILINE)}
    failed = [f'{header} (no #pragma once)' for header in headers if '#pragma once\n' not in texts[header]]
    proven = proven_by_tests(build)
    to_read = [header for header in headers if header not in proven]
    includes = Includes(include)
    rows = [*rows_of(owners, includes),
            *rows_of({header: header for header in to_read}, includes)]
    parts = {}
    header_only = [header for header in headers
                   if '/detail/' not in header and not header.endswith('/src.hpp') and in_a_circle(include, header, parts)]
    print(f'{len(headers)} headers and {len(owners)} files of bodies: {len(to_read) + len(owners)} to read in {len(rows)} units, '
          f'{len(header_only)} header-only, too', flush=True)
    command, directory = flags_of(build, pathlib.Path(unit))
    print('+', shlex.join(command), flush=True)
    began = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        checks = {pool.submit(check, command, directory, row, SEPARATE): ', '.join(row) for row in rows}
        checks |= {pool.submit(check, command, directory, [path], []): f'{path} (header-only)' for path in header_only}
        for number, done in enumerate(concurrent.futures.as_completed(checks), 1):
            status, output = done.result()
            if status != 0:
                failed.append(checks[done])
                print(f'FAILED: {checks[done]}\n{output}', flush=True)
            if number % 50 == 0 or number == len(checks):
                print(f'{number} of {len(checks)} checked, {len(failed)} failed, '
                      f'{time.monotonic() - began:.0f} s', flush=True)
    if failed:
        sys.exit('\n'.join(['headers that do not stand alone:', *sorted(failed)]))


if __name__ == '__main__':
    main()
