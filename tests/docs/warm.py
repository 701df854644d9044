"""Owns a `windlass` that starts at once: a process has loaded it, and each call is a fork of that.

A page of the docs calls it twenty times, and most of the time would go into the same imports. What
is called sees its own arguments, directory, environment and streams; nothing of a page is loaded
before the fork. Run as a program, this is that process: `warm.py DESCRIPTOR`.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stderr, suppress
from importlib import import_module
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NoReturn

_CALL = """\
#!{python} -IS
import json, os, socket, sys
if sys.argv[1:2] == ["worker"]:
    # It must be the process that the shell knows: workers are sent signals.
    os.execv({windlass!r}, ["windlass", *sys.argv[1:]])
with socket.socket(socket.AF_UNIX) as line:
    line.connect({address!r})
    told = json.dumps([sys.argv[1:], os.getcwd(), dict(os.environ)]).encode()
    socket.send_fds(line, [len(told).to_bytes(4, "big")], [0, 1, 2])
    line.sendall(told)
    code = line.recv(1)
sys.exit(code[0] if code else "windlass died")
"""


@contextmanager
def warm_windlass(environment: Mapping[str, str]) -> Iterator[str]:
    """Give a directory for the path, with a `windlass` in it; its process ends with the block."""
    with TemporaryDirectory(prefix="windlass-") as directory:
        address, call = str(Path(directory) / "line"), Path(directory) / "windlass"
        real = str(Path(sys.executable).parent / "windlass")
        call.write_text(_CALL.format(python=sys.executable, windlass=real, address=address))
        call.chmod(0o755)
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(address)
            listener.listen()
            process = subprocess.Popen(
                [sys.executable, "-P", __file__, str(listener.fileno())],
                env=environment,
                pass_fds=[listener.fileno()],
            )
        try:
            yield directory
        finally:
            process.kill()
            process.wait()


def serve(listener: socket.socket) -> None:
    """Answer every call with a fork of this process, for ever."""
    for name in ("cli.root", "cli.listing", "store.sqlite", "store.postgres"):
        import_module(f"windlass.{name}")
    # Refused, but by then whatever reads arguments and prints tables has been loaded.
    with redirect_stderr(StringIO()), suppress(SystemExit):
        import_module("windlass.cli.root").cli(["queues", "list", "--url", "memory://"])
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # Nobody asks how they ended.
    while True:
        line, _ = listener.accept()
        if os.fork() == 0:
            listener.close()
            answer(line)
        line.close()


def answer(line: socket.socket) -> NoReturn:
    """Do what was called, as a process of its own would, and say by which code it ended."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    size, streams, _, _ = socket.recv_fds(line, 4, 3)
    told = line.recv(int.from_bytes(size, "big"), socket.MSG_WAITALL)
    sys.argv[1:], directory, environ = json.loads(told)
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    os.chdir(directory)
    os.environ.clear()
    os.environ.update(environ)
    code: object = 1
    try:
        import_module("windlass.cli").main()
    except SystemExit as end:
        code = end.code
    except BaseException:
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    line.sendall(bytes([code if isinstance(code, int) else int(code is not None)]))
    os._exit(0)


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv.pop())))
