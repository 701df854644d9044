"""Owns a terminal for tests: a real one, with a shell in it, read by a program that knows screens.

What is asked of it is what somebody sees who sits before it.
"""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import shlex
import signal
import struct
import sys
import termios
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import pyte

PROMPT = "ready>"
PATIENCE = 20.0
_PYTHON = shlex.quote(sys.executable)
TOP = f"{_PYTHON} -m windlass top --every 0.5"


class Glass:
    """A terminal, and a shell in it that heeds Ctrl-Z and `fg`, in a directory of its own."""

    def __init__(
        self, directory: Path, *, columns: int = 80, lines: int = 24, **environ: str
    ) -> None:
        self.received = b""
        self._screen = pyte.Screen(columns, lines)
        self._stream = pyte.ByteStream(self._screen)
        self._pid, self._device = pty.fork()
        if self._pid == 0:
            self._become_a_shell(directory, environ)
        self.resize(columns, lines)
        self.until(lambda: PROMPT in self.text)

    def _become_a_shell(self, directory: Path, environ: Mapping[str, str]) -> None:
        kept = {name: value for name, value in os.environ.items() if name not in _NOT_HANDED_DOWN}
        usual = {"TERM": "xterm-256color", "PS1": PROMPT, "HISTFILE": ""}
        os.chdir(directory)
        os.execvpe("bash", ["bash", "--norc", "--noprofile", "-i"], {**kept, **usual, **environ})

    def close(self) -> None:
        """End whatever runs here."""
        os.close(self._device)
        os.kill(self._pid, signal.SIGKILL)
        os.waitpid(self._pid, 0)

    # -- what somebody does --------------------------------------------------------------------

    def type(self, keys: str) -> None:
        """Press keys, one after the other."""
        os.write(self._device, keys.encode())

    def run(self, command: str) -> None:
        """Type in a command."""
        self.type(f"{command}\n")

    def resize(self, columns: int, lines: int) -> None:
        """Make the window larger or smaller."""
        self._screen.resize(lines, columns)
        size = struct.pack("HHHH", lines, columns, 0, 0)
        fcntl.ioctl(self._device, termios.TIOCSWINSZ, size)

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to what runs in the foreground."""
        os.killpg(os.tcgetpgrp(self._device), number)

    def answer(self, command: str) -> str:
        """Run a command at the shell's prompt, and return what it wrote."""
        begin = len(self.received)
        self.run(f"echo @$({command})@")
        found: list[bytes] = []

        def answered() -> bool:
            found[:] = re.findall(rb"\n@(.*)@\r", self.received[begin:])
            return bool(found)

        self.until(answered)
        return found[0].decode()

    # -- what somebody sees --------------------------------------------------------------------

    @property
    def lines(self) -> list[str]:
        """The lines on the screen, as they were read last."""
        return [line.rstrip() for line in self._screen.display]

    @property
    def text(self) -> str:
        """All of them."""
        return "\n".join(self.lines)

    @property
    def styles(self) -> set[str]:
        """The colours that are on the screen."""
        return {cell.fg for row in self._screen.buffer.values() for cell in row.values()} - {
            "default"
        }

    def until(self, check: Callable[[], object], *, within: float = PATIENCE) -> None:
        """Look until something is to be seen."""
        deadline = time.monotonic() + within
        while not check():
            assert time.monotonic() < deadline, f"not seen within {within:g} s:\n{self.text}"
            self.look(0.05)

    def sees(self, *parts: str) -> None:
        """Look until some texts are to be seen."""
        self.until(lambda: all(part in self.text for part in parts))

    def look(self, seconds: float) -> None:
        """Take in what comes within a time."""
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            if select.select([self._device], [], [], left)[0]:
                data = os.read(self._device, 65_536)
                self.received += data
                self._stream.feed(data)


_NOT_HANDED_DOWN = ("NO_COLOR", "COLORTERM", "COLUMNS", "LINES", "PROMPT_COMMAND")
