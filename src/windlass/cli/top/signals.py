"""Owns the signals of `top`: an exit that restores the terminal, and resuming after a stop."""

from __future__ import annotations

import asyncio
import os
import signal
import termios
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType

from textual.driver import Driver

_STDIN = 0
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
_TEXTUAL_SIGNALS = (signal.SIGTSTP, signal.SIGCONT, signal.SIGWINCH)
_MAX_END_SECONDS = 5.0
"""Seconds after which a terminal that takes no output no longer delays the end."""


@contextmanager
def ending_by_signals(end: Callable[[int], None]) -> Iterator[None]:
    """Call `end` with the exit code of a signal; exit without it if the terminal is blocked.

    Textual waits until all output is written, so a blocked terminal would keep the process forever:
    neither the event loop nor a handler on it would run.
    """
    loop = asyncio.get_running_loop()
    modes = termios.tcgetattr(_STDIN)
    timers: list[threading.Timer] = []

    def exit_now(code: int) -> None:
        with suppress(termios.error):
            termios.tcsetattr(_STDIN, termios.TCSANOW, modes)
        os._exit(code)

    def handle(number: int, _: object) -> None:
        loop.call_soon_threadsafe(end, 128 + number)
        timers.append(threading.Timer(_MAX_END_SECONDS, exit_now, (128 + number,)))
        timers[-1].daemon = True
        timers[-1].start()

    before = {number: signal.getsignal(number) for number in (*_SIGNALS, *_TEXTUAL_SIGNALS)}
    for number in _SIGNALS:
        signal.signal(number, handle)
    try:
        yield
    finally:
        for timer in timers:
            timer.cancel()
        for number, handler in before.items():
            signal.signal(number, handler)


def resume_after_stop(driver: Driver, redraw: Callable[[], None]) -> None:
    """Set up the terminal again after a SIGSTOP as well.

    Textual expects a SIGTSTP before each SIGCONT. Without one it would start a second thread that
    reads keys, and take its own modes for those that the terminal had before.
    """
    loop = asyncio.get_running_loop()
    resume = signal.getsignal(signal.SIGCONT)

    def handle(number: int, frame: FrameType | None) -> None:
        if not getattr(driver, "_must_signal_resume", True):
            driver.suspend_application_mode()
        if callable(resume):
            resume(number, frame)
        loop.call_soon_threadsafe(redraw)

    signal.signal(signal.SIGCONT, handle)
