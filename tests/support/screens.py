"""Owns a terminal for tests: a real one, read by a program that knows what screens do.

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
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import pyte

from windlass.cli.root_command import cli

PROMPT = "ready>"
PATIENCE = 60.0
TOP = ("top", "--every", "0.5")
TYPED = f"{shlex.quote(sys.executable)} -m windlass {shlex.join(TOP)}"
"""What is typed at a shell's prompt."""
LEFT = b"\x1b[?1049l"
"""What brings the shell's screen back."""
_NOT_HANDED_DOWN = ("NO_COLOR", "COLORTERM", "COLUMNS", "LINES", "PROMPT_COMMAND")


class Glass:
    """A terminal in which a program runs, which is a fork of this process."""

    def __init__(self, program: Callable[[], NoReturn], *, columns: int, lines: int) -> None:
        self.received = b""
        self.code: int | None = None
        """By which code the program ended, once it has."""
        self._screen = pyte.Screen(columns, lines)
        self._stream = pyte.ByteStream(self._screen)
        self._hung_up = False
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Other threads are not missed by what runs there.
            self.pid, self._device = pty.fork()
        if self.pid == 0:
            try:
                program()
            finally:
                # Whatever it raised: a second pytest in here would run the other tests again.
                os._exit(70)
        self.modes = termios.tcgetattr(self._device)
        """Those that the terminal had to begin with."""
        self.resize(columns, lines)

    def close(self) -> None:
        """End whatever runs here."""
        self.hang_up()
        if not self.has_ended():
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)

    # -- what somebody does --------------------------------------------------------------------

    def type(self, keys: str) -> None:
        """Press keys, one after the other."""
        os.write(self._device, keys.encode())

    def resize(self, columns: int, lines: int) -> None:
        """Make the window larger or smaller."""
        self._screen.resize(lines, columns)
        size = struct.pack("HHHH", lines, columns, 0, 0)
        fcntl.ioctl(self._device, termios.TIOCSWINSZ, size)

    def hang_up(self) -> None:
        """Take the terminal away, as a lost connection does."""
        if not self._hung_up:
            self._hung_up = True
            os.close(self._device)

    def until_full(self) -> None:
        """Read nothing until no more can be written."""
        unread, since = -1, time.monotonic()
        while time.monotonic() - since < 0.5:
            before, unread = unread, self._unread()
            since = since if unread == before and unread else time.monotonic()
            time.sleep(0.02)

    def _unread(self) -> int:
        told = fcntl.ioctl(self._device, termios.FIONREAD, b"\0" * 4)
        return int.from_bytes(told, sys.byteorder)

    def answer(self, command: str) -> str:
        """Run a command at a shell's prompt, and return what it wrote."""
        begin = len(self.received)
        self.type(f"echo @$({command})@\n")
        found: list[bytes] = []

        def is_answered() -> bool:
            found[:] = re.findall(rb"[\r\n]@([^@$]*)@\r", self.received[begin:])
            return bool(found)

        self.until(is_answered)
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
    def colours(self) -> set[str]:
        """Those that are on the screen."""
        cells = (cell for row in self._screen.buffer.values() for cell in row.values())
        return {cell.fg for cell in cells} - {"default"}

    @property
    def modes_now(self) -> list[Any]:
        """Whether keys are echoed, and so on."""
        return termios.tcgetattr(self._device)

    def has_ended(self) -> bool:
        """Say whether the program has."""
        if self.code is None and (ended := os.waitpid(self.pid, os.WNOHANG))[0]:
            self.code = os.waitstatus_to_exitcode(ended[1])
        return self.code is not None

    def until(self, check: Callable[[], object], *, within: float = PATIENCE) -> None:
        """Look until something is to be seen."""
        deadline = time.monotonic() + within
        while not check():
            assert time.monotonic() < deadline, f"not seen within {within:g} s:\n{self.text}"
            self.look(0.02)

    def sees(self, *parts: str) -> None:
        """Look until some texts are to be seen."""
        self.until(lambda: all(part in self.text for part in parts))

    def look(self, seconds: float) -> None:
        """Take in what comes within a time."""
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            if self._hung_up or not select.select([self._device], [], [], left)[0]:
                time.sleep(max(deadline - time.monotonic(), 0.0) if self._hung_up else 0.0)
                continue
            try:
                data = os.read(self._device, 65_536)
            except OSError:  # Nobody has it open any more.
                time.sleep(0.01)
                continue
            self.received += data
            self._stream.feed(data)


Sit = Callable[..., Glass]
"""How tests sit down before one; see the fixture `sit`."""


def windlass_in(
    directory: Path, *args: str, encoding: str = "utf-8", **environ: str
) -> Callable[[], NoReturn]:
    """Return a program: `windlass`, called in a directory."""

    def program() -> NoReturn:
        code: Any = 1
        try:
            _begin(directory, environ)
            sys.stdin = open(0, encoding=encoding)  # noqa: SIM115
            sys.stdout = open(1, "w", encoding=encoding)  # noqa: SIM115
            sys.stderr = open(2, "w", encoding="utf-8")  # noqa: SIM115
            cli(list(args), prog_name="windlass")
        except SystemExit as end:
            code = end.code
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code if isinstance(code, int) else int(code is not None))

    return program


def python_in(directory: Path, *args: str, **environ: str) -> Callable[[], NoReturn]:
    """Return a program: Python, in a process that has nothing from this one."""

    def program() -> NoReturn:
        _begin(directory, environ)
        os.execv(sys.executable, [sys.executable, *args])

    return program


def bash_in(directory: Path, **environ: str) -> Callable[[], NoReturn]:
    """Return a program: a shell that heeds Ctrl-Z and `fg`, and asks for commands."""

    def program() -> NoReturn:
        _begin(directory, {"PS1": PROMPT, "HISTFILE": "", "INPUTRC": os.devnull, **environ})
        os.execvp("bash", ["bash", "--norc", "--noprofile", "-i"])

    return program


def _begin(directory: Path, environ: dict[str, str]) -> None:
    for name in _NOT_HANDED_DOWN:
        os.environ.pop(name, None)
    # The program that reads this terminal does not know the keyboard protocol of kitty.
    os.environ.update({"TERM": "xterm-256color", "TEXTUAL_DISABLE_KITTY_KEY": "1", **environ})
    os.chdir(directory)


def given_back(glass: Glass, code: int) -> None:
    """Wait for the end, and check that the terminal is as it was: screen, cursor, modes."""
    glass.until(glass.has_ended)
    glass.look(0.02)
    assert glass.code == code, glass.text
    for ours, before in ((b"\x1b[?1049h", LEFT), (b"\x1b[?25l", b"\x1b[?25h")):
        assert glass.received.rindex(before) > glass.received.rindex(ours)
    assert glass.modes_now == glass.modes
