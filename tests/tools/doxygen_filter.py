#!/usr/bin/env python3
"""docs/doxygen-filter turns a header into what Doxygen is to read, line by line."""
import os
import pathlib
import subprocess
import sys
import tempfile

SOURCE = pathlib.Path(os.environ['RDMACORO_SOURCE_ROOT'])
HEADER = '''// Sending.
// In two lines.
#pragma once

namespace detail {
struct hidden {};
}  // namespace detail

/// Sends. Semantic requirements:
///  9. Nine.
/// 10. Ten.
class send_operation {
public:
    send_operation(int fd) noexcept;
    send_operation(const send_operation&) = delete;
    send_operation(send_operation&& other) noexcept;
    void start() noexcept;
    /// Its own.
    void cancel() noexcept;
    int number;  ///< of the message
    /// Of the sender.
    int source;
    scheduler& owner();
    detail::hidden& inner();
    void undocumented();
};

/// Awaitable.
/// Completes: when sent,
///     or lost.
/// Buffers: none.
/// Example:
///     co_await send(1);
///     co_await send(2);
send_operation send(int value);
'''
EXPECTED = '''/// \\file
/// Sending.
/// In two lines.





/// Sends. Semantic requirements:
/// 9. Nine.
/// 10. Ten.
class send_operation {
public:
    /** Made by the function that returns it. */ send_operation(int fd) noexcept;

    /** Moves. */ send_operation(send_operation&& other) noexcept;
    /** What `co_await` calls: see `rdmacoro::basic_operation`. */ void start() noexcept;
    /// Its own.
    void cancel() noexcept;
    int number;  ///< of the message
    /** Of the sender. */
    int source;
    /** The scheduler that it belongs to. */ scheduler& owner();
    /** Internal: its types are of a namespace `detail`. */ detail::hidden& inner();
    void undocumented();
};

///
/// \\brief Awaitable; completes when sent,
///     or lost.
/// \\buffers none.
/// \\example
/// co_await send(1);
/// co_await send(2); \\endcode
send_operation send(int value);
'''


def main():
    with tempfile.TemporaryDirectory(prefix='rdmacoro-doxygen-filter-') as scratch:
        header = pathlib.Path(scratch) / 'send.hpp'
        header.write_text(HEADER, encoding='utf-8')
        done = subprocess.run([sys.executable, SOURCE / 'docs/doxygen-filter', header], stdout=subprocess.PIPE, text=True,
                              check=True, timeout=30)
        assert done.stdout.count('\n') == HEADER.count('\n'), done.stdout
        for got, expected in zip(done.stdout.split('\n'), EXPECTED.split('\n')):
            assert got == expected, f'{got!r} instead of {expected!r} in:\n{done.stdout}'


if __name__ == '__main__':
    main()
