"""Owns one child process from the worker's side: its start, its tether, and how it came to its end.

The tether is a socket. What the child says is read until the process has ended, and not only until
its end of the tether is closed: a process that it forked may hold that open.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress

import msgspec

from windlass.runtime.blackbox import BlackBox
from windlass.runtime.postmortem import how_it_ended
from windlass.runtime.words import BROKEN, Fit, Frames, Order, Recipe, Unfit, Word, frame, word_of

_PIECE = 65_536
_LAST_WORDS = 2.0
"""Seconds in which a child ends that has nobody to talk to."""
_PROGRAM = (
    "import json, sys; sys.path[:] = json.loads(sys.argv.pop(1)); "
    "from windlass.app.isolated import main; main()"
)


class ChildFailed(Exception):
    """A child could not be started, or could not get the app; it says why."""


class ChildProcess:
    """One child. `receive` returns None once it has ended, and then `ending` says how."""

    def __init__(self, recipe: Recipe, ended: Callable[[ChildProcess], None]) -> None:
        self._recipe = recipe
        self._tell_ended = ended
        self._loop = asyncio.get_running_loop()
        self._frames = Frames()
        self._inbox: asyncio.Queue[Word | None] = asyncio.Queue()
        self._is_mute = False
        self._box = BlackBox.create()
        self._tether, theirs = socket.socketpair()
        self._tether.setblocking(False)
        try:
            # By the loop's thread: the child ends with the thread that started it.
            self._process = _start(recipe, theirs.fileno(), self._box.fd)
        except OSError as error:
            self._tether.close()
            self._box.close()
            raise ChildFailed(f"no child process could be started: {error}") from error
        finally:
            theirs.close()
        self.pid = self._process.pid
        self.kinds: frozenset[str] = frozenset()
        """The kinds that the app knows in there."""
        self.fresh = 0
        """How many bytes of memory it used before its first job."""
        self.last_words = ""
        """The last lines that it logged, and where it was if it died of a signal."""
        self.gone = asyncio.Event()
        self._loop.add_reader(self._tether, self._read)
        name = f"windlass-child-{self.pid}"
        threading.Thread(target=self._await_end, name=name, daemon=True).start()

    @property
    def ending(self) -> str:
        """How the process ended."""
        code = self._process.returncode or 0
        if self._is_mute or code == BROKEN:
            return "its process broke the line to its worker"
        return f"its process {how_it_ended(code)}"

    async def prepare(self, patience: float) -> None:
        """Let it get the app.

        Raises:
            ChildFailed: it could not, or not in time.
        """
        try:
            async with asyncio.timeout(patience):
                await self.send(self._recipe)
                word = await self.receive()
        except TimeoutError:
            raise ChildFailed(f"it was not ready within {patience:g} seconds") from None
        match word:
            case Fit(kinds=kinds):
                self.kinds = frozenset(kinds)
            case Unfit(why=why):
                raise ChildFailed(why)
            case _:
                raise ChildFailed(f"{self.ending}\n{self.last_words}".strip())

    async def send(self, order: Order) -> None:
        """Say something of any size."""
        with suppress(OSError):  # It has ended, which is noticed elsewhere.
            await self._loop.sock_sendall(self._tether, frame(order))

    def tell(self, order: Order) -> None:
        """Say something short, without waiting: who does not listen is killed in the end."""
        with suppress(OSError):
            self._tether.send(frame(order))

    async def receive(self) -> Word | None:
        """Return its next word, or None once it has ended."""
        return await self._inbox.get()

    def kill(self) -> None:
        """End it at once, and with it what its handlers have started."""
        if not self.gone.is_set():
            # Nobody else reaps it, so that the number cannot be another's by now.
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)

    def end(self) -> None:
        """Let it end by itself."""
        with suppress(OSError):
            self._tether.shutdown(socket.SHUT_WR)
        self._loop.call_later(_LAST_WORDS, self.kill)

    def _read(self) -> None:
        try:
            data = self._tether.recv(_PIECE)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if data:
            self._take(data)
        else:
            self._lose_tether()

    def _take(self, data: bytes) -> None:
        try:
            for body in self._frames.feed(data):
                self._inbox.put_nowait(word_of(body))
        except msgspec.MsgspecError:
            # Its handler writes where only we should.
            self._is_mute = True
            self.kill()

    def _lose_tether(self) -> None:
        """Kill a child that lives on and cannot be heard."""
        self._loop.remove_reader(self._tether)
        self._loop.call_later(_LAST_WORDS, self._silence)

    def _silence(self) -> None:
        if not self.gone.is_set():
            self._is_mute = True
            self.kill()

    def _await_end(self) -> None:
        """Wait, in a thread, for the end of the process, and leave it to the loop to reap it."""
        if hasattr(os, "waitid"):
            with suppress(ChildProcessError):
                os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)
        else:
            self._process.wait()
        try:
            self._loop.call_soon_threadsafe(self._ended)
        except RuntimeError:
            self._process.wait()  # The loop is closed, and nobody asks any more.

    def _ended(self) -> None:
        """Hear what it said at last, and close the tether."""
        self._process.wait()
        self.gone.set()
        self._loop.remove_reader(self._tether)
        with suppress(OSError):
            while data := self._tether.recv(_PIECE):
                self._take(data)
        self._tether.close()
        self.last_words = self._box.read()
        self._box.close()
        self._inbox.put_nowait(None)
        self._tell_ended(self)


def _start(recipe: Recipe, tether: int, box: int) -> subprocess.Popen[bytes]:
    told = [json.dumps(recipe.path), str(os.getpid()), str(tether), str(box)]
    flags = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
    # Here, not above: whoever isolates no job need not load multiprocessing.
    from multiprocessing.spawn import get_executable

    executable = os.fsdecode(get_executable() or sys.executable)
    return subprocess.Popen(  # noqa: S603 - ourselves.
        [executable, *flags, "-c", _PROGRAM, *told],
        stdin=subprocess.DEVNULL,
        pass_fds=(tether, box),
        start_new_session=True,  # A Ctrl-C in the terminal is the worker's.
    )
