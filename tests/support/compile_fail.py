#!/usr/bin/env python3
"""Check that a file is refused by the compiler for the reason it names.

Usage: compile_fail.py FILE PRECOMPILED -- COMPILER FLAG...
       compile_fail.py --right FILE... -- COMPILER FLAG...

The file says what to expect in comments, each with a regular expression that must match somewhere in what
the compiler prints:

    // expect: REGEX            both compilers
    // expect(gcc): REGEX       only g++
    // expect(clang): REGEX     only clang++

The lines between `// wrong` and `// end` are what is wrong with a file: without them it must compile, so that it cannot be refused for
another reason. That is what --right checks, of all files in one unit, each in a namespace of its own.

PRECOMPILED is tests/compile_fail/headers.hpp, compiled with the same compiler and flags: NAME.hpp.gch of g++, or what clang++ made of
it. A file that begins with a header of the library reads it from there.
"""
import pathlib
import re
import subprocess
import sys
import tempfile


def compile_text(command, text, seconds):
    with tempfile.NamedTemporaryFile('w', suffix='.cpp', prefix='compile_fail_') as unit:
        unit.write(text)
        unit.flush()
        done = subprocess.run([*command, '-fsyntax-only', unit.name],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=seconds)
    return done.returncode, done.stdout


def without_wrong(path, text):
    right, cuts = re.subn(r'^[ \t]*// wrong\b.*?^[ \t]*// end\b[^\n]*\n', lambda cut: '\n' * cut[0].count('\n'), text, flags=re.M | re.S)
    if cuts == 0:
        sys.exit(f'{path}: nothing between `// wrong` and `// end`')
    return right


def check_right(paths, command):
    includes, parts = {}, []
    for path in paths:
        with open(path, encoding='utf-8') as file:
            text = without_wrong(path, file.read())
        includes |= dict.fromkeys(re.findall(r'^#include .*$', text, re.M))
        text = re.sub(r'^#include .*$', '', text, flags=re.M).replace('int main() {', 'void use_all() {')
        parts.append(f'namespace {pathlib.Path(path).stem} {{\n#line 1 "{path}"\n{text}\n}}\n')
    status, output = compile_text(command, '\n'.join([*includes, *parts]), 120)
    if status != 0:
        sys.exit(f'{output}\ndoes not compile even without the lines that are wrong')


def main():
    split = sys.argv.index('--')
    paths, command = sys.argv[1:split], sys.argv[split + 1:]
    if paths[0] == '--right':
        check_right(paths[1:], command)
        return
    path, precompiled = paths
    with open(path, encoding='utf-8') as file:
        text = file.read()
    without_wrong(path, text)

    version = subprocess.run([*command, '--version'], stdout=subprocess.PIPE, text=True, timeout=10).stdout
    kind = 'clang' if 'clang' in version else 'gcc'
    expected = [regex for which, regex in re.findall(r'//\s*expect(?:\((gcc|clang)\))?:\s*(.+)', text)
                if which in ('', kind)]
    if not expected:
        sys.exit(f'{path}: no `// expect: REGEX` line for {kind}')

    if re.match(r'(//[^\n]*\n|\s)*#include <rdmacoro/', text):
        command += ['-include-pch', precompiled] if kind == 'clang' else ['-include', precompiled.removesuffix('.gch')]
    status, output = compile_text(command, text, 25)
    if status == 0:
        sys.exit(f'{path}: compiled, and should have been refused')
    missing = [regex for regex in expected if not re.search(regex, output)]
    if missing:
        sys.exit(f'{output}\n{path}: refused, but the message does not say: ' + ' | '.join(missing))


if __name__ == '__main__':
    main()
