#!/usr/bin/env python3
"""tools/check-docs finds each kind of broken rule in a small tree, and nothing in the same tree repaired."""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

SOURCE = pathlib.Path(os.environ['RDMACORO_SOURCE_ROOT'])

AWAITABLE = '''/// Sends.
///
/// Awaitable.
/// Completes: when it is sent.
/// Buffers: borrowed until then.
/// Concurrency: one at a time.
/// Errors: none.
/// Cancellation: ends canceled.
/// Example:
///     co_await send(1);
'''
GOOD = {
    'include/rdmacoro/rdmacoro.hpp': '// All.\n#pragma once\n#include <rdmacoro/coro/send.hpp>\n',
    'include/rdmacoro/coro/send.hpp': '''// Sending.
// Belongs here: sending. Does not belong here: receiving.
#pragma once
#include <coroutine>
namespace rdmacoro {
/// Described at `send`.
template <class T>
class send_operation final : public basic_operation<send_operation<T>, void> {};
''' + AWAITABLE + '''template <class T>
    requires std::same_as<T, int>
[[nodiscard]] send_operation<T> send(T value) { return {value}; }
''' + AWAITABLE + '''struct other {
    bool await_ready() noexcept;
    void await_suspend(std::coroutine_handle<>) noexcept;
};
/// What can be sent.
template <class T>
concept sendable = true;
namespace detail {
struct hidden { void await_suspend(std::coroutine_handle<>); };
}
}
''',
    'include/rdmacoro/transport/tcp.hpp':
        '// TCP. Belongs here: networks. Does not belong here: tags.\n#include <liburing.h>\n'
        '#include <sys/socket.h>\n#include <rdmacoro/coro/send.hpp>\n',
    'include/rdmacoro/src.hpp': '// All bodies.\n#include <rdmacoro/coro/impl/send.ipp>\n',
    'include/rdmacoro/coro/src.hpp':
        '// Bodies of coro/.\n#include <rdmacoro/rdmacoro.hpp>\n#include <rdmacoro/coro/impl/send.ipp>\n',
    'include/rdmacoro/coro/impl/send.ipp': '// Bodies of send.hpp.\n#include <rdmacoro/coro/send.hpp>\n'
        'void end(bool twice) { fatal(twice ? "a send " "was sent twice: it ends" : "a peer was sent away, \\"here\\""); }\n'
        'void fail(const char* text) { fatal(text); }\n',
    'include/rdmacoro/coro/detail/part.hpp': '// A part of it.\n',
    'include/rdmacoro/coro/detail/other.hpp': '// Another part.\ninline const char* word = "who // nobody";\n',
    'tests/coro/detail/part.cpp': '#include <rdmacoro/coro/detail/part.hpp>\n',
    'tests/unmirrored.txt': '# Tested by tests/coro/send.cpp.\ncoro/detail/other.hpp\n',
    'tests/coro/send.cpp': '#include <rdmacoro/coro/send.hpp>\n#include <string>\n',
    'tests/transport/tcp.cpp': '#include <rdmacoro/transport/tcp.hpp>\n',
    'docs/a.md': 'See [b](b.md), `coro/send.hpp`, `tests/coro/send.cpp` and `send.hpp`.\n\n<img src="b.svg">\n\n<!-- from tests/coro/send.cpp -->\n```cpp\n#include <string>\n```\n',
    'docs/b.md': 'b\n\n| head |\n|---|\n| row |\n',
    'docs/troubleshooting.md':
        '## Before\n\n| a peer |\n|---|\n\n## The program ends with a message\n\n'
        '| line | do |\n|---|---|\n| a send was sent twice; ... was sent away | send once |\n\n## After\n',
    'docs/b.svg': '<svg xmlns="http://www.w3.org/2000/svg"/>\n',
}
DETAIL = 'include/rdmacoro/coro/detail/part.hpp'
BODIES_OF_ROOM = 'include/rdmacoro/coro/src.hpp'
BODIES = 'include/rdmacoro/coro/impl/send.ipp'
SEND = 'include/rdmacoro/coro/send.hpp'
# What is replaced by what in which file (None: the file is removed), and the expected message.
BROKEN = [
    (SEND, '/// Errors: none.\n', '', 'needs the headings'),
    (SEND, '/// Errors: none.\n/// Cancellation: ends canceled.\n',
     '/// Cancellation: ends canceled.\n/// Errors: none.\n', 'needs the headings'),
    (SEND, 'Buffers: borrowed until then.', 'Buffers:', 'nothing is written under Buffers'),
    (SEND, AWAITABLE + 'struct other', 'struct other', 'other can be awaited'),
    (SEND, '/// Described at `send`.\n', '', 'send_operation can be awaited'),
    (SEND, 'at `send`', 'at `receive`', 'described at receive'),
    (SEND, '// Sending.\n// Belongs', '#pragma once\n// Belongs', 'opens with a comment'),
    (SEND, 'Does not belong here', 'Elsewhere', 'has "Does not belong here:"'),
    (SEND, '#include <coroutine>', '#include <rdmacoro/transport/tcp.hpp>', 'coro must not depend on it'),
    (SEND, '#include <coroutine>', '#include <rdmacoro/coro/none.hpp>', 'does not exist'),
    (SEND, '#include <coroutine>', '#include "task.hpp"', 'include each other as'),
    (SEND, '#include <coroutine>', '#include <sys/socket.h>', 'belong below transport/'),
    (SEND, '#include <coroutine>', '#include <liburing.h>', 'belongs in transport/tcp only'),
    ('include/rdmacoro/rdmacoro.hpp', 'coro/send', 'transport/tcp', 'brings in <liburing.h>'),
    ('tests/coro/send.cpp', None, None, 'has no test tests/coro/send.cpp'),
    ('tests/coro/send.cpp', '#include <rdmacoro', '#include <vector>\n#include <rdmacoro', 'send.hpp> first'),
    (DETAIL, '// A part', '#pragma once\n// A part', 'opens with a comment'),
    ('tests/coro/detail/part.cpp', None, None, 'has no test tests/coro/detail/part.cpp'),
    ('tests/coro/detail/part.cpp', 'detail/part', 'send', 'detail/part.hpp> first'),
    ('tests/unmirrored.txt', 'coro/detail/other.hpp\n', '', 'has no test tests/coro/detail/other.cpp'),
    ('tests/unmirrored.txt', 'coro/detail/other', 'coro/detail/part.hpp\ncoro/detail/other', 'part.hpp has a test now'),
    ('tests/unmirrored.txt', 'coro/detail/other', 'coro/gone.hpp\ncoro/detail/other', 'coro/gone.hpp is no header'),
    (BODIES, '// Bodies', '#pragma once\n// Bodies', 'opens with a comment'),
    (BODIES, 'coro/send', 'transport/tcp', 'coro must not depend on it'),
    (BODIES, 'coro/send', 'rdmacoro', 'coro must not depend on it'),
    (BODIES_OF_ROOM, 'rdmacoro.hpp', 'transport/tcp.hpp', 'coro must not depend on it'),
    (BODIES, '<rdmacoro/coro/send.hpp>', '<sys/socket.h>', 'belong below transport/'),
    (BODIES, '<rdmacoro/coro/send.hpp>', '<liburing.h>', 'belongs in transport/tcp only'),
    (BODIES, 'of send.hpp', 'that somebody needs', '"somebody": name the role'),
    (SEND, 'Sends.', 'Sends to the peer whose turn it is.', '"whose": name the role'),
    ('docs/a.md', '`send.hpp`', '`served.hpp`', 'there is no served.hpp'),
    ('docs/a.md', '`coro/send.hpp`', '`memory/send.hpp`', 'there is no memory/send.hpp'),
    (BODIES, 'sent twice:', 'sent three times:', '"a send was sent three times: it ends" ends the process, and is not in'),
    (BODIES, 'sent away,', 'sent off,', '"a peer was sent off'),
    ('docs/troubleshooting.md', 'a send was sent twice; ', '', '"a send was sent twice: it ends" ends the process'),
    ('docs/troubleshooting.md', '## The program', '## A program', '"a send was sent twice: it ends" ends the process'),
    (SEND, '/// What can', '// What can', 'concept sendable has no docstring'),
    ('docs/b.md', '|---|\n', '|---|\n| first |\n\n', 'a row of a table that has no head'),
    ('docs/b.svg', None, None, 'the link to b.svg leads nowhere'),
    ('docs/b.md', None, None, 'the link to b.md leads nowhere'),
    ('docs/a.md', '#include <string>', '#include <list>', 'this code is not in tests/coro/send.cpp'),
]


def check(tree, files):
    for path in ('include', 'tests', 'docs'):
        shutil.rmtree(tree / path, ignore_errors=True)
    for path, text in files.items():
        (tree / path).parent.mkdir(parents=True, exist_ok=True)
        (tree / path).write_text(text, encoding='utf-8')
    done = subprocess.run([sys.executable, tree / 'tools/check-docs', '--words'], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, timeout=30)
    return done.returncode, done.stdout


def main():
    with tempfile.TemporaryDirectory(prefix='rdmacoro-check-docs-') as scratch:
        tree = pathlib.Path(scratch)
        (tree / 'tools').mkdir()
        shutil.copy(SOURCE / 'tools/check-docs', tree / 'tools')
        status, printed = check(tree, GOOD)
        assert status == 0, printed
        for path, old, new, expected in BROKEN:
            files = dict(GOOD)
            if old is None:
                del files[path]
            else:
                assert old in files[path], (path, old)
                files[path] = files[path].replace(old, new)
            status, printed = check(tree, files)
            assert status == 1 and expected in printed, f'{path}: {old!r} -> {new!r}: not {expected!r} but:\n{printed}'


if __name__ == '__main__':
    main()
