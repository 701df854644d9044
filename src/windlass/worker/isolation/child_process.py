"""Owns one child process from the worker's side: its start, its channel, and its end.

The channel is read until the process has ended, not only until the child's end is closed: a process
that the child forked may hold that open.
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
from collections.abc import Iterable
from contextlib import suppress

import msgspec

from windlass.process.channel import Channel
from windlass.process.exits.black_box import BlackBox
from windlass.process.exits.exit_reasons import describe_exit
from windlass.worker.isolation.protocol import (
    CHANNEL_LOST_EXIT_CODE,
    ChildMessage,
    Fit,
    Recipe,
    Unfit,
    WorkerMessage,
)

_END_SECONDS = 2.0
"""Seconds within which a child ends after its channel was closed."""
_PROGRAM = (
    "import json, sys; sys.path[:] = json.loads(sys.argv.pop(1)); "
    "from windlass.app.isolation.child_main import main; main()"
)


class ChildFailed(Exception):
    """A child could not be started, or could not load the app; the message says why."""


class ChildProcess:
    """One child process. `receive` returns None once it has ended, and then `ending` says how."""

    def __init__(self, recipe: Recipe) -> None:
        self._recipe = recipe
        self._loop = asyncio.get_running_loop()
        self._inbox: asyncio.Queue[ChildMessage | None] = asyncio.Queue()
        self._is_mute = False
        self._box = BlackBox.create()
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        self._channel: Channel[ChildMessage] = Channel(ours, msgspec.msgpack.Decoder(ChildMessage))
        try:
            # By the loop's thread: the child ends with the thread that started it.
            self._process = _start(recipe, theirs.fileno(), self._box.fd)
        except OSError as error:
            self._channel.close()
            self._box.close()
            raise ChildFailed(f"no child process could be started: {error}") from error
        finally:
            theirs.close()
        self.pid = self._process.pid
        self.kinds: frozenset[str] = frozenset()
        """The kinds that the app in the child knows."""
        self.fresh = 0
        """Bytes of memory that the child used before its first job."""
        self.last_words = ""
        """The last lines that it logged, and its stack if it died of a signal."""
        self.gone = asyncio.Event()
        self._loop.add_reader(self._channel, self._read)
        name = f"windlass-child-{self.pid}"
        threading.Thread(target=self._await_end, name=name, daemon=True).start()

    @property
    def ending(self) -> str:
        """How the process ended."""
        code = self._process.returncode or 0
        if self._is_mute or code == CHANNEL_LOST_EXIT_CODE:
            return "its process lost the connection to its worker"
        return f"its process {describe_exit(code)}"

    async def prepare(self, patience: float) -> None:
        """Have the child load the app.

        Raises: ChildFailed: the child could not, or not in time.
        """
        try:
            async with asyncio.timeout(patience):
                await self.send(self._recipe)
                message = await self.receive()
        except TimeoutError:
            raise ChildFailed(f"it was not ready within {patience:g} seconds") from None
        match message:
            case Fit(kinds=kinds):
                self.kinds = frozenset(kinds)
            case Unfit(why=why):
                raise ChildFailed(why)
            case _:
                raise ChildFailed(f"{self.ending}\n{self.last_words}".strip())

    async def send(self, message: WorkerMessage) -> None:
        """Send a message of any size; the end of the child is noticed elsewhere."""
        await self._channel.send_from_loop(message)

    def tell(self, message: WorkerMessage) -> None:
        """Send a short message without waiting; a child that does not read is killed eventually."""
        self._channel.offer(message)

    async def receive(self) -> ChildMessage | None:
        """Return the next message of the child, or None once it has ended."""
        return await self._inbox.get()

    def kill(self) -> None:
        """Kill the child and the processes that its handlers have started."""
        if not self.gone.is_set():
            # Only the worker reaps the child, so its process id cannot have been reused.
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)

    def end(self) -> None:
        """Let the child end by itself."""
        self._channel.finish_sending()
        self._loop.call_later(_END_SECONDS, self.kill)

    def _read(self) -> None:
        messages = self._channel.receive()
        if messages is None:
            # A child that lives but cannot be heard is killed.
            self._loop.remove_reader(self._channel)
            self._loop.call_later(_END_SECONDS, self._silence)
        else:
            self._take(messages)

    def _take(self, messages: Iterable[ChildMessage]) -> None:
        for message in messages:
            self._inbox.put_nowait(message)
        if self._channel.is_garbled:
            # A handler wrote to the channel's descriptor.
            self._is_mute = True
            self.kill()

    def _silence(self) -> None:
        if not self.gone.is_set():
            self._is_mute = True
            self.kill()

    def _await_end(self) -> None:
        """Wait in a thread for the end of the process, and leave the reaping to the loop."""
        if hasattr(os, "waitid"):
            with suppress(ChildProcessError):
                os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)
        else:
            self._process.wait()
        try:
            self._loop.call_soon_threadsafe(self._ended)
        except RuntimeError:
            self._process.wait()  # The loop is closed, so no caller waits for the exit code.

    def _ended(self) -> None:
        self._process.wait()
        self.gone.set()
        self._loop.remove_reader(self._channel)
        self._take(self._channel.receive_rest())
        self._channel.close()
        self.last_words = self._box.read()
        self._box.close()
        self._inbox.put_nowait(None)


def _start(recipe: Recipe, channel: int, box: int) -> subprocess.Popen[bytes]:
    arguments = [json.dumps(recipe.path), str(os.getpid()), str(channel), str(box)]
    flags = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
    # Imported here: a worker without isolated jobs need not load multiprocessing.
    from multiprocessing.spawn import get_executable

    executable = os.fsdecode(get_executable() or sys.executable)
    return subprocess.Popen(  # noqa: S603 - ourselves.
        # -P: before the worker's path is set, nothing is imported from the current directory.
        [executable, *flags, "-P", "-c", _PROGRAM, *arguments],
        stdin=subprocess.DEVNULL,
        pass_fds=(channel, box),
        start_new_session=True,  # A Ctrl-C in the terminal goes to the worker only.
    )
