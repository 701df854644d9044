"""Owns the start of a worker's process: its command line, its channel, and the files it shares.

It imports little: the first worker is started before the supervisor imports the rest of itself.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack

from windlass.process import CHANNEL_VARIABLE
from windlass.process.exits.shared_files import shared_file


class Spawned:
    """A process that was started, and waits for its supervisor's word to begin."""

    def __init__(self, command: Sequence[str]) -> None:
        with ExitStack() as undo:  # A supervisor tries again, so a failed start leaks nothing.
            ours, theirs = socket.socketpair()
            undo.callback(ours.close)
            ours.setblocking(False)
            with theirs:
                files = []
                for _ in range(4):
                    files.append(shared_file())
                    undo.callback(os.close, files[-1])
                self.began = time.monotonic()
                self.process = _start(command, [theirs.fileno(), *files])
            undo.pop_all()
        self.channel = ours
        self.is_taken = False
        """Whether a supervisor has taken it over, or it was abandoned."""
        self.stacks, self.box, self.board, self.begun_jobs = files

    def abandon(self) -> None:
        """Kill a process that will not begin: it has run no user code yet."""
        if self.is_taken:
            return
        self.is_taken = True
        self.process.kill()
        self.process.wait()
        self.channel.close()
        for fd in (self.stacks, self.box, self.board, self.begun_jobs):
            os.close(fd)


def _start(command: Sequence[str], shared: Sequence[int]) -> subprocess.Popen[bytes]:
    # In a group of its own: a terminal's Ctrl-C reaches only the supervisor, which passes it on.
    return subprocess.Popen(  # noqa: S603 - Windlass itself.
        # -P: a file in the current directory must not shadow the standard library.
        [sys.executable, "-P", "-m", "windlass", *command],
        env=os.environ | {CHANNEL_VARIABLE: ",".join(map(str, shared))},
        stdin=subprocess.DEVNULL,
        pass_fds=shared,
        process_group=0,
    )
