#!/usr/bin/env python3
"""Build and run small programs that use rdmacoro from outside, in a temporary directory.

Usage: consume.py pkg_config|cmake|meson_subproject     (the environment is set by tests/meson.build)
"""
import os
import pathlib
import shlex
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
SOURCE = pathlib.Path(os.environ['RDMACORO_SOURCE_ROOT'])
CXX = os.environ['RDMACORO_CXX']
WITH = {part: os.environ[f'RDMACORO_WITH_{part.upper()}'] == '1' for part in ('tcp', 'verbs', 'ofi')}
PROGRAMS = ['core', *(part for part, built in WITH.items() if built)]
SKIPPED = 77


def run(*command, **environment):
    print('+', shlex.join(map(str, command)), flush=True)
    subprocess.run([str(part) for part in command], check=True, stdin=subprocess.DEVNULL, timeout=150,
                   env={**os.environ, 'CXX': CXX, **environment})


def output(*command, **environment):
    print('+', shlex.join(map(str, command)), flush=True)
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, timeout=30,
                          env={**os.environ, **environment}).stdout


def install(prefix, scratch):
    build = scratch / 'rdmacoro'
    parts = [f'-D{part}=disabled' for part in ('tests', 'examples', 'bench', 'tools')]
    run('meson', 'setup', build, SOURCE, f'--prefix={prefix}', '--libdir=lib', *parts)
    run('meson', 'install', '-C', build)


def pkg_config(scratch):
    install(scratch / 'prefix', scratch)
    search = {'PKG_CONFIG_PATH': str(scratch / 'prefix/lib/pkgconfig')}
    packages = {'core': 'rdmacoro', 'tcp': 'rdmacoro-tcp', 'verbs': 'rdmacoro-verbs', 'ofi': 'rdmacoro-ofi'}
    for program in PROGRAMS:
        flags = shlex.split(output('pkg-config', '--cflags', '--libs', packages[program], **search))
        source = HERE / f'{program}.cpp'
        run(*shlex.split(CXX), '-std=c++20', source, '-o', scratch / program, *flags)
    return scratch


def cmake(scratch):
    if not shutil.which('cmake'):
        print('cmake is not installed')
        sys.exit(SKIPPED)
    # Installed in one place and moved to another: nothing in the package may name the first.
    install(scratch / 'staged', scratch)
    shutil.move(scratch / 'staged', scratch / 'prefix')
    build = scratch / 'consumer'
    run('cmake', '-G', 'Ninja', '-S', HERE, '-B', build, f'-DCMAKE_PREFIX_PATH={scratch / "prefix"}',
        *(f'-DWITH_{part.upper()}={"ON" if built else "OFF"}' for part, built in WITH.items()))
    run('cmake', '--build', build)
    return build


def meson_subproject(scratch):
    consumer = scratch / 'consumer'
    (consumer / 'subprojects').mkdir(parents=True)
    shutil.copy(HERE / 'subproject.build', consumer / 'meson.build')
    for program in PROGRAMS:
        shutil.copy(HERE / f'{program}.cpp', consumer)
    (consumer / 'meson_options.txt').write_text(
        ''.join(f"option('{part}', type: 'boolean')\n" for part in WITH))
    (consumer / 'subprojects/rdmacoro').symlink_to(SOURCE, target_is_directory=True)
    build = scratch / 'build'
    run('meson', 'setup', build, consumer, '--force-fallback-for=rdmacoro,rdmacoro-tcp,rdmacoro-verbs,rdmacoro-ofi',
        *(f'-D{part}={str(built).lower()}' for part, built in WITH.items()))
    run('meson', 'compile', '-C', build)
    return build


def main():
    ways = {way.__name__: way for way in (pkg_config, cmake, meson_subproject)}
    with tempfile.TemporaryDirectory(prefix='rdmacoro-consumer-') as scratch:
        programs = ways[sys.argv[1]](pathlib.Path(scratch).resolve())
        for program in PROGRAMS:
            run(programs / program)


if __name__ == '__main__':
    main()
