#!/usr/bin/env python3
"""The commands of the documents work for a reader who types them in, page by page, from the top to the bottom.

Each page of ours is one shell session (bash, which ends at the first command that fails) in a copy of this tree, with a home
directory of its own and without this machine's settings for compilers and pkg-config. Only names that other programs of this
machine might have taken are replaced: port 7471, and shm:// gets a prefix. Programs are compiled without optimization.

Marks, in a comment on the line before a block:

    not run: WHY   its programs and their options exist, at least
    file: NAME     what a reader saves as NAME, in the directory where the page is by then
    prints: TEXT   the block is run, and its output has this text
    from FILE      cut from a file that is built and run; tools/check-docs compares

Blocks of C++, CMake and Meson have one of these; sh without a mark is run; `text` is no code. Any other block is an error, so that
a new one is run, or says why not.
"""
import os
import pathlib
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading

SOURCE = pathlib.Path(os.environ['RDMACORO_SOURCE_ROOT'])
SKIPPED = 77
PAGE_SECONDS = 500
FENCE = re.compile(r'^( *)```(\S*)\n(.*?)^ *```$', flags=re.M | re.S)
MARK = re.compile(r'<!-- (not run|file|prints|from):? (.*?) -->\s*\Z')
STOLEN_SETTINGS = ('PKG_CONFIG_PATH', 'CMAKE_PREFIX_PATH', 'CPLUS_INCLUDE_PATH', 'CPATH', 'LIBRARY_PATH', 'CXX', 'CC',
                   'CFLAGS', 'LDFLAGS', 'CPPFLAGS', 'MESON_TESTTHREADS', 'DESTDIR')


class Block:
    def __init__(self, page, match, text):
        self.where = f'{page.relative_to(SOURCE)}:{text.count(chr(10), 0, match.start()) + 1}'
        self.language = match[2]
        self.code = ''.join(line.removeprefix(match[1]) for line in match[3].splitlines(keepends=True))
        mark = MARK.search(text, 0, match.start())
        self.mark, self.value = mark.groups() if mark else (None, None)

    def problem(self):
        if not self.language:
            return 'say what the block is: ```sh, or ```text for what is no code'
        if self.language == 'text' or self.language == 'sh' and self.mark in (None, 'prints', 'not run'):
            return None
        if self.language in ('cpp', 'cmake', 'meson') and self.mark in ('file', 'from', 'not run'):
            return None
        return f'{self.language} needs a mark that says how it is tested, or why not; see tests/docs/commands.py'


def pages():
    """The documents of this tree, without what builds and subprojects brought."""
    for path in sorted(SOURCE.rglob('*.md')):
        parts = path.relative_to(SOURCE).parts
        if not any(part.startswith(('.', 'build')) for part in parts) and parts[0] != 'subprojects':
            yield path


def sources_of(program):
    """Where a program of a block comes from, and whether it hands its arguments on; None: it is no program of this tree."""
    name = program.removeprefix('./')
    if name == '$pingpong':
        name = 'tools/pingpong/pingpong'
    name = re.sub(r'^rdmacoro-(info|pingpong|run|tune)$', r'tools/\1/\1', name)
    name = re.sub(r'^(\$build|build/\w+)/', '', name)
    if not re.match(r'(bench|tools|examples|\.ci)/[\w-]+(/\w+)?$', name):
        return None
    folder = SOURCE.joinpath(*name.split('/')[:2])
    found = [folder] if folder.is_file() else sorted(folder.glob('*.cpp')) if folder.is_dir() else []
    if folder.with_suffix('.cpp').is_file():
        found = [folder.with_suffix('.cpp'), *sorted((SOURCE / 'bench/common').glob('*.cpp'))]
    return found


def check_names(block):
    """The programs of a block that is not run are there, and know the options that it gives them."""
    for line in re.sub(r'\\\n', ' ', block.code).split('\n'):
        texts = None
        for word in shlex.split(line, comments=True):
            sources = sources_of(word)
            if sources == []:
                return f'there is no {word}'
            if sources:
                texts = ''.join(path.read_text(encoding='utf-8') for path in sources)
            elif texts and word == '--':
                texts = None
            elif texts and word.startswith('--') and '"$@"' not in texts and '$*' not in texts:
                if not re.search(rf"{re.escape(word.split('=')[0])}(?![\w-])", texts):
                    return f'{word} is no option of the program before it'
    return None


def session(blocks, prefix, port):
    """The shell script of a page."""
    lines = ['set -euo pipefail', "trap 'kill $(jobs -p) 2>/dev/null || :' EXIT"]
    for number, block in enumerate(blocks):
        lines.append(f'echo "@@@ {number}"')
        if block.mark == 'file':
            lines.append(f"cat >{block.value} <<'END OF {block.where}'\n{block.code}END OF {block.where}")
        elif block.language == 'sh' and block.mark != 'not run':
            lines.append(block.code.replace('shm://', f'shm://{prefix}').replace('7471', str(port)))
    return '\n'.join(lines) + '\n'


def free_port():
    with socket.socket() as taken:
        taken.bind(('127.0.0.1', 0))
        return taken.getsockname()[1]


def run_page(page, blocks, scratch):
    """What is wrong with the page, or None."""
    tree, home = scratch / 'rdmacoro', scratch / 'home'
    home.mkdir()
    shutil.copytree(SOURCE, tree, symlinks=True, ignore=shutil.ignore_patterns('build*', '.git', '.cache', '__pycache__'))
    environment = {name: value for name, value in os.environ.items() if name not in STOLEN_SETTINGS}
    environment.update(HOME=str(home), CXXFLAGS='-O0')
    script = scratch / 'page.sh'
    script.write_text(session(blocks, f'docs-{os.getpid()}-', free_port()), encoding='utf-8')
    with subprocess.Popen(['bash', script], cwd=tree, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, start_new_session=True) as shell:
        # The shell's process group has what the page left running, and that has the pipe.
        limit = threading.Timer(PAGE_SECONDS, os.killpg, (shell.pid, signal.SIGKILL))
        limit.start()
        printed = shell.communicate()[0]
        limit.cancel()
    said = dict(re.findall(r'^@@@ (\d+)\n(.*?)(?=^@@@ |\Z)', printed, flags=re.M | re.S))
    last = blocks[int(max(said, key=int))]
    if shell.returncode != 0:
        return f'{last.where}: exit status {shell.returncode}\n{printed[-4000:]}'
    for number, block in enumerate(blocks):
        if block.mark == 'prints' and block.value not in said[str(number)]:
            return f'{block.where}: no "{block.value}" in what it prints:\n{said[str(number)]}'
    return None


def main():
    problems, run = [], 0
    for page in pages():
        text = page.read_text(encoding='utf-8')
        blocks = [Block(page, match, text) for match in FENCE.finditer(text)]
        problems += [f'{block.where}: {block.problem()}' for block in blocks if block.problem()]
        if any(block.problem() for block in blocks):
            continue
        for block in blocks:
            if block.mark == 'not run' and block.language == 'sh' and (wrong := check_names(block)):
                problems.append(f'{block.where}: {wrong}')
        run_here = [block for block in blocks if block.language == 'sh' and block.mark != 'not run']
        if not run_here:
            continue
        with tempfile.TemporaryDirectory(prefix='rdmacoro-docs-') as scratch:
            if wrong := run_page(page, blocks, pathlib.Path(scratch).resolve()):
                problems.append(wrong)
        run += len(run_here)
        print(f'{page.relative_to(SOURCE)}: {len(run_here)} blocks of commands', flush=True)
    assert not problems, '\n' + '\n'.join(problems)
    assert run >= 8, 'where have the commands gone?'


if __name__ == '__main__':
    if os.environ.get('RDMACORO_WITH_TCP') != '1' or not shutil.which('cmake'):
        print('the pages use TCP and CMake, which are not here')
        sys.exit(SKIPPED)
    main()
