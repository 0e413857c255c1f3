#!/usr/bin/env python3
"""Check that a file is refused by the compiler for the reason it names.

Usage: compile_fail.py FILE PRECOMPILED -- COMPILER FLAG...

The file says what to expect in comments, each with a regular expression that must match somewhere in what
the compiler prints:

    // expect: REGEX            both compilers
    // expect(gcc): REGEX       only g++
    // expect(clang): REGEX     only clang++

The lines between `// wrong` and `// end`, where a file has them, are what is wrong with it: without them it
must compile, so that it cannot be refused for another reason.

PRECOMPILED is <rdmacoro/rdmacoro.hpp>, compiled with the same compiler and flags: NAME.hpp.gch of g++, or what clang++ made of it. A file
that begins with this header reads it from there.
"""
import re
import subprocess
import sys
import tempfile


def compile_text(command, text):
    with tempfile.NamedTemporaryFile('w', suffix='.cpp', prefix='compile_fail_') as unit:
        unit.write(text)
        unit.flush()
        done = subprocess.run([*command, '-fsyntax-only', unit.name],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=25)
    return done.returncode, done.stdout


def main():
    path, precompiled, separator, *command = sys.argv[1:]
    assert separator == '--'
    with open(path, encoding='utf-8') as file:
        text = file.read()

    version = subprocess.run([command[0], '--version'], stdout=subprocess.PIPE, text=True, timeout=10).stdout
    kind = 'clang' if 'clang' in version else 'gcc'
    expected = [regex for which, regex in re.findall(r'//\s*expect(?:\((gcc|clang)\))?:\s*(.+)', text)
                if which in ('', kind)]
    if not expected:
        sys.exit(f'{path}: no `// expect: REGEX` line for {kind}')

    if re.match(r'(//[^\n]*\n|\s)*#include <rdmacoro/rdmacoro\.hpp>', text):
        command += ['-include-pch', precompiled] if kind == 'clang' else ['-include', precompiled.removesuffix('.gch')]

    right, cuts = re.subn(r'^[ \t]*// wrong\b.*?^[ \t]*// end\b[^\n]*\n', '', text, flags=re.M | re.S)
    if cuts > 0:
        status, output = compile_text(command, right)
        if status != 0:
            sys.exit(f'{output}\n{path}: does not compile even without the lines that are wrong')

    status, output = compile_text(command, text)
    if status == 0:
        sys.exit(f'{path}: compiled, and should have been refused')
    missing = [regex for regex in expected if not re.search(regex, output)]
    if missing:
        sys.exit(f'{output}\n{path}: refused, but the message does not say: ' + ' | '.join(missing))


if __name__ == '__main__':
    main()
