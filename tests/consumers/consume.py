#!/usr/bin/env python3
"""Build and run small programs that use rdmacoro from outside, in a temporary directory.

Usage: consume.py installed                     by pkg-config and by CMake, after one installation, in both forms
       consume.py meson_subproject FORM         (the environment is set by tests/meson.build)
       consume.py meson_subproject_plan FORM    only what would be compiled and linked

FORM is header_only or compiled: whether the programs compile the toolkit, or link the libraries that have it compiled.
"""
import os
import pathlib
import re
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


def install(root):
    """Installs what this build has compiled, below `root`; returns the prefix and where its packages are described."""
    run('meson', 'install', '-C', os.environ['RDMACORO_BUILD_ROOT'], '--no-rebuild', '--destdir', root)
    packages = list(root.rglob('rdmacoro*.pc'))
    assert packages, 'nothing was installed'
    prefix = packages[0].parent
    while not (prefix / 'include').is_dir():
        prefix = prefix.parent
    # The build's prefix is elsewhere.
    for package_file in packages:
        text = package_file.read_text(encoding='utf-8')
        moved = re.sub('^prefix=.*$', f'prefix={prefix}', text, flags=re.MULTILINE)
        assert moved != text and f'={prefix}' in moved, text
        package_file.write_text(moved, encoding='utf-8')
    for name in ('info', 'pingpong', 'run', 'tune'):
        if pathlib.Path(os.environ['RDMACORO_BUILD_ROOT'], 'tools', name, name).exists():
            run(prefix / 'bin' / f'rdmacoro-{name}', '--help')
    return prefix, packages[0].parent


def by_pkg_config(scratch, packages, form):
    programs = scratch / f'pkg_config_{form}'
    programs.mkdir()
    for program in PROGRAMS:
        flags = shlex.split(output('pkg-config', '--cflags', '--libs', package(program, form), PKG_CONFIG_PATH=str(packages)))
        source = HERE / f'{program}.cpp'
        run(*shlex.split(CXX), '-std=c++20', expected_define(form), source, '-o', programs / program, *flags)
    return programs


def by_cmake(scratch, form):
    programs = scratch / f'cmake_{form}'
    run('cmake', '-G', 'Ninja', '-S', HERE, '-B', programs, f'-DCMAKE_PREFIX_PATH={scratch / "moved"}',
        f'-DCMAKE_CXX_FLAGS={expected_define(form)}', f'-DSUFFIX={SUFFIXES[form]}',
        *(f'-DWITH_{part.upper()}={"ON" if built else "OFF"}' for part, built in WITH.items()))
    run('cmake', '--build', programs)
    return programs


def installed(scratch):
    """One installation serves both forms. For CMake it is moved to another place: nothing in the package may name the first."""
    prefix, packages = install(scratch / 'root')
    for form in SUFFIXES:
        yield by_pkg_config(scratch, packages, form)
    if not shutil.which('cmake'):
        print('cmake is not installed')
        sys.exit(SKIPPED)
    shutil.move(prefix, scratch / 'moved')
    for form in SUFFIXES:
        yield by_cmake(scratch, form)


def set_up_subproject(scratch, form):
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
    return build


def meson_subproject(scratch, form):
    build = set_up_subproject(scratch, form)
    run('meson', 'compile', '-C', build)
    yield build


def meson_subproject_plan(scratch, form):
    """Each program is compiled with the define of its form, and linked with the library that has its transport compiled, if there is one."""
    build = set_up_subproject(scratch, form)
    plan = output('ninja', '-C', build, '-n', '-v').splitlines()
    for program in PROGRAMS:
        compiles = [line for line in plan if f' -o {program}.p/' in line]
        links = [line for line in plan if f' -o {program} ' in line]
        assert len(compiles) == 1 and len(links) == 1, (program, compiles, links)
        assert expected_define(form) in compiles[0], compiles
        library = 'lib' + package(program, 'compiled')
        assert (library in links[0]) == (form == 'compiled'), links
        assert ('-DRDMACORO_SEPARATE_COMPILATION' in compiles[0]) == (form == 'compiled'), compiles
        if form == 'compiled':
            assert sum(f'{library}.' in line for line in plan) > 1, plan  # it is made, too
    yield from ()


def main():
    ways = {way.__name__: way for way in (installed, meson_subproject, meson_subproject_plan)}
    way, *form = sys.argv[1:]
    with tempfile.TemporaryDirectory(prefix='rdmacoro-consumer-') as scratch:
        for programs in ways[way](pathlib.Path(scratch).resolve(), *form):
            for program in PROGRAMS:
                run(programs / program)


if __name__ == '__main__':
    main()
