#!/usr/bin/env python3
"""List the files below a directory for a meson.build, one a line, sorted, relative to the directory.

Usage: list_files.py [--threads] DIRECTORY SUFFIX...     (a directory that does not exist has no files)

With --threads: those alone that name a thread, for ThreadSanitizer.

Meson runs this when it configures: after adding a file, run `meson setup --reconfigure BUILD`, as
tools/test does every time.
"""
import os
import re
import sys

THREADS = re.compile(r'std::j?thread|<thread>|pthread|std::async|scheduler_pool|thread_|helper_call|join_job')


def main():
    arguments = sys.argv[1:]
    with_threads = '--threads' in arguments
    directory, *suffixes = [one for one in arguments if one != '--threads']
    found = []
    for folder, _, names in os.walk(directory):
        found += [os.path.relpath(os.path.join(folder, name), directory)
                  for name in names if name.endswith(tuple(suffixes)) and not name.startswith('.')]
    if with_threads:
        found = [name for name in found
                 if THREADS.search(open(os.path.join(directory, name), encoding='utf-8').read())]
    print('\n'.join(sorted(found)))


if __name__ == '__main__':
    main()
