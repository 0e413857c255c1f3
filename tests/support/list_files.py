#!/usr/bin/env python3
"""List the files below a directory for a meson.build, one a line, sorted, relative to the directory.

Usage: list_files.py DIRECTORY SUFFIX...     (a directory that does not exist has no files)

Meson runs this when it configures: after adding a file, run `meson setup --reconfigure BUILD`, as
tools/test does every time.
"""
import os
import sys


def main():
    directory, suffixes = sys.argv[1], tuple(sys.argv[2:])
    found = []
    for folder, _, names in os.walk(directory):
        found += [os.path.relpath(os.path.join(folder, name), directory)
                  for name in names if name.endswith(suffixes) and not name.startswith('.')]
    print('\n'.join(sorted(found)))


if __name__ == '__main__':
    main()
