"""Owns a `windlass` and a `python` that start at once: each call is a fork of one loaded process.

A page of the docs calls them twenty times, and most of the time would go into the same imports.
What is called sees its own arguments, directory, environment and streams; nothing of a page is
loaded before the fork. Run as a program, this is that process: `warm.py DESCRIPTOR`.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import socket
import subprocess
import sys
import traceback
import types
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stderr, suppress
from importlib import import_module
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory

_CALL = """\
#!{python} -IS
import json, os, socket, sys
program, told = os.path.basename(sys.argv[0]), sys.argv[1:]
if program == "windlass" and told[:1] == ["worker"]:
    # It must be the process that the shell knows: workers are sent signals.
    os.execv({windlass!r}, [program, *told])
if program == "python" and (not told or told[0].startswith("-") and told[0] != "-c"):
    os.execv({python!r}, [{python!r}, *told])
with socket.socket(socket.AF_UNIX) as line:
    line.connect({address!r})
    told = json.dumps([program, told, os.getcwd(), dict(os.environ)]).encode()
    socket.send_fds(line, [len(told).to_bytes(4, "big")], [0, 1, 2])
    line.sendall(told)
    code = line.recv(1)
sys.exit(code[0] if code else f"{{program}} died")
"""


@contextmanager
def warm_programs(environment: Mapping[str, str]) -> Iterator[str]:
    """Give a directory for the path, with both programs in it; their process ends with the block.

    That has the environment at first, and each call its own.
    """
    with TemporaryDirectory(prefix="windlass-") as directory:
        address, real = str(Path(directory) / "line"), Path(sys.executable).with_name("windlass")
        text = _CALL.format(python=sys.executable, windlass=str(real), address=address)
        for name in ("windlass", "python"):
            call = Path(directory) / name
            call.write_text(text)
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


_MAIN = import_module("windlass.cli").main  # Its module of that name, once loaded, hides it.


def serve(listener: socket.socket) -> None:
    """Answer every call with a fork of this process, for ever; only a fork comes back."""
    for name in ("cli.root_command", "cli.output.tables", "store.sqlite", "store.postgres"):
        import_module(f"windlass.{name}")
    # Refused, but by then whatever reads arguments and prints tables has been loaded.
    with redirect_stderr(StringIO()), suppress(SystemExit):
        import_module("windlass.cli.root_command").cli(["queues", "list", "--url", "memory://"])
    gc.freeze()  # Else the end of each fork would copy all that is loaded here, to look for cycles.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # Nobody asks how they ended.
    while True:
        line, _ = listener.accept()
        if os.fork() == 0:
            listener.close()
            answer(line)
            return
        line.close()


def answer(line: socket.socket) -> None:
    """Do what was called, as a process of its own would, and say by which code it ended."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    size, streams, _, _ = socket.recv_fds(line, 4, 3)
    told = line.recv(int.from_bytes(size, "big"), socket.MSG_WAITALL)
    program, arguments, directory, environ = json.loads(told)
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    os.chdir(directory)
    os.environ.clear()
    os.environ.update(environ)
    named = environ.get("PYTHONPATH", "").split(os.pathsep)
    sys.path[:0] = [each for each in named if each and each not in sys.path]
    if program == "windlass":
        sys.argv[1:] = arguments
        code = called()
    elif child := os.fork():
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    else:
        # Not ended by us: what programs do at their end is the interpreter's.
        line.close()
        run(arguments)
        return
    line.sendall(bytes([code % 256]))
    os._exit(0)


def called() -> int:
    """Do what `windlass` is asked to, and return its exit code."""
    code: object = 1
    try:
        _MAIN()
    except SystemExit as end:
        code = end.code
    except BaseException:
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    return code if isinstance(code, int) else int(code is not None)


def run(arguments: list[str]) -> None:
    """Be `python FILE ...`, or `python -c TEXT ...`."""
    is_text = arguments[0] == "-c"
    program = types.ModuleType("__main__")
    if is_text:
        sys.argv[:], text, name = ["-c", *arguments[2:]], arguments[1], "<string>"
    else:
        sys.argv[:], name = arguments, str(Path(arguments[0]).absolute())
        text = Path(name).read_text("utf-8")
        program.__file__ = name
    sys.path.insert(0, "" if is_text else str(Path(name).parent))
    sys.modules["__main__"] = program
    exec(compile(text, name, "exec", dont_inherit=True), vars(program))


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv.pop())))
