#!/usr/bin/env python3
"""The documents of this tree keep what they promise: links lead somewhere, code in them is code that is built and run,
examples are short, and each is on the ladder of docs/getting-started.md. The checks themselves are tools/check-docs,
which check_docs.py tests."""
import importlib.machinery
import importlib.util
import os
import pathlib
import re

SOURCE = pathlib.Path(os.environ['RDMACORO_SOURCE_ROOT'])
EXAMPLE_LINES = 100

loader = importlib.machinery.SourceFileLoader('check_docs', str(SOURCE / 'tools/check-docs'))
check_docs = importlib.util.module_from_spec(importlib.util.spec_from_loader('check_docs', loader))
loader.exec_module(check_docs)

check_docs.check_documents()
problems = check_docs.problems

# No code is only claimed to work. (CONTRIBUTING.md shows forms to be filled in.)
blocks = 0
for path in [SOURCE / 'README.md', *sorted(SOURCE.glob('docs/**/*.md'))]:
    lines = path.read_text(encoding='utf-8').split('\n')
    for number, line in enumerate(lines):
        if line.strip() == '```cpp':
            blocks += 1
            if not re.match(r'<!-- from \S+ -->', lines[number - 1]):
                problems.append(f'{path.relative_to(SOURCE)}:{number + 1}: C++ that is not cut from a file')
assert blocks > 10, 'where have the snippets gone?'

ladder = (SOURCE / 'docs/getting-started.md').read_text(encoding='utf-8')
examples = sorted((SOURCE / 'examples').glob('*.cpp'))
assert examples
for path in examples:
    lines = path.read_text(encoding='utf-8').count('\n')
    if lines >= EXAMPLE_LINES:
        problems.append(f'examples/{path.name}: {lines} lines; an example is one idea in under {EXAMPLE_LINES}')
    if f'(../examples/{path.name})' not in ladder:
        problems.append(f'examples/{path.name}: not on the ladder of docs/getting-started.md')

assert not problems, '\n' + '\n'.join(problems)
