#!/usr/bin/env python3
"""Build and run small programs that use rdmacoro from outside, in a temporary directory.

Usage: consume.py pkg_config|cmake|meson_subproject FORM     (the environment is set by tests/meson.build)

FORM is header_only or compiled: whether the programs compile the toolkit, or link the libraries that have it compiled.
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
# By form: what follows a package's name.
SUFFIXES = {'header_only': '', 'compiled': '-compiled'}
SKIPPED = 77


def run(*command, **environment):
    print('+', shlex.join(map(str, command)), flush=True)
    subprocess.run([str(part) for part in command], check=True, stdin=subprocess.DEVNULL, timeout=280,
                   env={**os.environ, 'CXX': CXX, **environment})


def output(*command, **environment):
    print('+', shlex.join(map(str, command)), flush=True)
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, timeout=30,
                          env={**os.environ, **environment}).stdout


def expected_define(form):
    """With it the programs refuse to be compiled in the other form."""
    return '-DCONSUMER_EXPECTS_COMPILED=' + str(int(form == 'compiled'))


def package(program, form):
    return ('rdmacoro' if program == 'core' else f'rdmacoro-{program}') + SUFFIXES[form]


def install(prefix, scratch, form):
    build = scratch / 'rdmacoro'
    parts = [f'-D{part}=disabled' for part in ('tests', 'examples', 'bench', 'tools')]
    parts.append('-Dcompiled=' + ('enabled' if form == 'compiled' else 'disabled'))
    run('meson', 'setup', build, SOURCE, f'--prefix={prefix}', '--libdir=lib', '-Doptimization=0', *parts)
    run('meson', 'install', '-C', build)


def pkg_config(scratch, form):
    install(scratch / 'prefix', scratch, form)
    search = {'PKG_CONFIG_PATH': str(scratch / 'prefix/lib/pkgconfig')}
    for program in PROGRAMS:
        flags = shlex.split(output('pkg-config', '--cflags', '--libs', package(program, form), **search))
        source = HERE / f'{program}.cpp'
        run(*shlex.split(CXX), '-std=c++20', expected_define(form), source, '-o', scratch / program, *flags)
    return scratch


def cmake(scratch, form):
    if not shutil.which('cmake'):
        print('cmake is not installed')
        sys.exit(SKIPPED)
    # Installed in one place and moved to another: nothing in the package may name the first.
    install(scratch / 'staged', scratch, form)
    shutil.move(scratch / 'staged', scratch / 'prefix')
    build = scratch / 'consumer'
    run('cmake', '-G', 'Ninja', '-S', HERE, '-B', build, f'-DCMAKE_PREFIX_PATH={scratch / "prefix"}',
        f'-DCMAKE_CXX_FLAGS={expected_define(form)}', f'-DSUFFIX={SUFFIXES[form]}',
        *(f'-DWITH_{part.upper()}={"ON" if built else "OFF"}' for part, built in WITH.items()))
    run('cmake', '--build', build)
    return build


def meson_subproject(scratch, form):
    consumer = scratch / 'consumer'
    (consumer / 'subprojects').mkdir(parents=True)
    shutil.copy(HERE / 'subproject.build', consumer / 'meson.build')
    for program in PROGRAMS:
        shutil.copy(HERE / f'{program}.cpp', consumer)
    shutil.copy(HERE / 'form.hpp', consumer)
    (consumer / 'meson_options.txt').write_text(
        "option('suffix', type: 'string')\n"
        + ''.join(f"option('{part}', type: 'boolean')\n" for part in WITH))
    (consumer / 'subprojects/rdmacoro').symlink_to(SOURCE, target_is_directory=True)
    build = scratch / 'build'
    packages = ','.join(package(program, form) for program in ('core', *WITH))
    run('meson', 'setup', build, consumer, f'--force-fallback-for={packages}', '-Doptimization=0',
        f'-Dcpp_args={expected_define(form)}', f'-Dsuffix={SUFFIXES[form]}',
        *(f'-D{part}={str(built).lower()}' for part, built in WITH.items()))
    run('meson', 'compile', '-C', build)
    return build


def main():
    ways = {way.__name__: way for way in (pkg_config, cmake, meson_subproject)}
    way, form = sys.argv[1:]
    with tempfile.TemporaryDirectory(prefix='rdmacoro-consumer-') as scratch:
        programs = ways[way](pathlib.Path(scratch).resolve(), form)
        for program in PROGRAMS:
            run(programs / program)


if __name__ == '__main__':
    main()
