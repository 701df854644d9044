"""Owns the terminal while something is drawn on it, and gives it back as it was, however that ends.

Keys arrive one by one and unseen; Ctrl-C and Ctrl-Z are the signals that they are everywhere.
"""

from __future__ import annotations

import asyncio
import os
import select
import signal
import sys
import termios
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Self

from windlass.cli.screen.keys import Keys

# The other screen, no cursor, no wrapping, and what is pasted is told apart.
_ENTER = b"\x1b[?1049h\x1b[?25l\x1b[?7l\x1b[?2004h\x1b[0m\x1b[2J"
_LEAVE = b"\x1b[?2026l\x1b[0m\x1b[?2004l\x1b[?7h\x1b[?25h\x1b[?1049l"
_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
_IFLAG, _LFLAG, _CC = 0, 3, 6
_ESCAPE_DELAY = 0.1
"""Seconds after which an escape is a key of its own, and no longer the beginning of another."""
_PASTE_DELAY = 30.0
"""Seconds without a byte after which a paste is over whose end was lost on the way."""
_LAST_WORDS = 1.0
"""Seconds that a terminal has for what is still to be sent when it is given back."""
_USUAL = os.terminal_size((80, 24))


class Terminal:
    """A terminal to draw on: `with Terminal(...)`, inside a running event loop.

    `pressed` is called with each key; `wanted` when there is room for another picture, with True if
    nothing of the last one is left; `ended`, with an exit code, when somebody wants this to end.
    """

    def __init__(
        self,
        *,
        pressed: Callable[[str], None],
        wanted: Callable[[bool], None],
        ended: Callable[[int], None],
    ) -> None:
        self._pressed = pressed
        self._wanted = wanted
        self._ended = ended
        self._keys = Keys()
        self._escape: asyncio.TimerHandle | None = None
        self._unsent = b""

    def __enter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        self._input, self._output = _descriptors()
        self._before = termios.tcgetattr(self._input)
        self._enter()
        self._loop.add_reader(self._input, self._read)
        for number in _ENDING:
            self._loop.add_signal_handler(number, self._ended, 128 + number)
        self._loop.add_signal_handler(signal.SIGWINCH, self._wanted, True)
        self._loop.add_signal_handler(signal.SIGTSTP, self._suspend)
        self._loop.add_signal_handler(signal.SIGCONT, self._resume)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.remove_reader(self._input)
        for number in (*_ENDING, signal.SIGWINCH, signal.SIGTSTP, signal.SIGCONT):
            self._loop.remove_signal_handler(number)
        if self._escape is not None:
            self._escape.cancel()
        self._leave()
        for descriptor in {self._input, self._output}:
            os.close(descriptor)

    @property
    def size(self) -> os.terminal_size:
        """How many columns and lines there are, by now."""
        with suppress(OSError):
            found = os.get_terminal_size(self._output)
            if found.columns and found.lines:
                return found
        return _USUAL

    @property
    def busy(self) -> bool:
        """Whether it still takes in what was sent before: a slow line gets fewer pictures."""
        return bool(self._unsent)

    def send(self, data: bytes) -> None:
        """Send as much as the terminal takes, and the rest when it does."""
        self._unsent += data
        self._send()

    def _send(self) -> None:
        waited = not self._try_to_send()
        if self._unsent:
            self._loop.add_writer(self._output, self._sent_more)
        elif waited:
            self._loop.remove_writer(self._output)

    def _sent_more(self) -> None:
        if self._try_to_send():
            self._loop.remove_writer(self._output)
            self._wanted(False)

    def _try_to_send(self) -> bool:
        """Say whether all is sent."""
        try:
            while self._unsent:
                self._unsent = self._unsent[os.write(self._output, self._unsent) :]
        except BlockingIOError:
            return False
        except OSError:
            self._unsent = b""
            self._ended(128 + signal.SIGHUP)
        return True

    def _read(self) -> None:
        try:
            data = os.read(self._input, 1024)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            # The other end is gone: it would be readable for ever.
            self._loop.remove_reader(self._input)
            self._ended(128 + signal.SIGHUP)
            return
        if self._escape is not None:
            self._escape.cancel()
        for key in self._keys.feed(data):
            self._pressed(key)
        self._escape = self._timer()

    def _timer(self) -> asyncio.TimerHandle | None:
        if self._keys.pasting:
            return self._loop.call_later(_PASTE_DELAY, self._keys.give_up)
        if self._keys.waiting:
            return self._loop.call_later(_ESCAPE_DELAY, self._flush)
        return None

    def _flush(self) -> None:
        for key in self._keys.flush():
            self._pressed(key)

    # -- as it was, and ours -------------------------------------------------------------------

    def _enter(self) -> None:
        own = termios.tcgetattr(self._input)
        own[_IFLAG] &= ~termios.IXON  # A Ctrl-S would stop the picture, and all else with it.
        own[_LFLAG] &= ~(termios.ECHO | termios.ICANON | termios.IEXTEN)
        own[_LFLAG] |= termios.ISIG
        own[_CC] = [*own[_CC]]
        own[_CC][termios.VMIN], own[_CC][termios.VTIME] = 1, 0
        termios.tcsetattr(self._input, termios.TCSANOW, own)
        self.send(_ENTER)

    def _leave(self) -> None:
        self._loop.remove_writer(self._output)
        self._unsent += _LEAVE
        deadline = time.monotonic() + _LAST_WORDS
        with suppress(OSError):
            while self._unsent and (left := deadline - time.monotonic()) > 0:
                if select.select([], [self._output], [], left)[1]:
                    self._unsent = self._unsent[os.write(self._output, self._unsent) :]
        self._unsent = b""
        with suppress(termios.error):
            termios.tcsetattr(self._input, termios.TCSANOW, self._before)

    def _suspend(self) -> None:
        """Stop, as Ctrl-Z says, with the terminal as it was; go on from here with `fg`."""
        self._leave()
        self._loop.remove_signal_handler(signal.SIGTSTP)
        # To this thread: it stops before the next line, and not some lines later.
        signal.pthread_kill(threading.get_ident(), signal.SIGTSTP)
        self._loop.add_signal_handler(signal.SIGTSTP, self._suspend)
        self._resume()

    def _resume(self) -> None:
        """Take the terminal again: whoever had it in between has left it as they like it."""
        self._unsent = b""
        self._enter()
        self._wanted(True)


def refusal() -> str | None:
    """Say why nothing can be drawn here; None if it can."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        return "this is not a terminal"
    if os.environ.get("TERM", "") in ("", "dumb", "unknown"):
        return f"a terminal of TERM={os.environ.get('TERM', '')!r} cannot be drawn on"
    return None


def _descriptors() -> tuple[int, int]:
    """Open the terminal anew, so that a line that is slow does not block, for us and no other.

    Whoever became somebody else on the way here may not open it, and uses what was handed down.
    """
    try:
        opened = os.open(
            os.ttyname(sys.stdout.fileno()), os.O_RDWR | os.O_NOCTTY | os.O_NONBLOCK | os.O_CLOEXEC
        )
    except OSError:
        return os.dup(sys.stdin.fileno()), os.dup(sys.stdout.fileno())
    return opened, opened
