"""Owns a queue's process as the one sees it who started it: commands, answers, and its end."""

from __future__ import annotations

import json
import queue
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import IO, Any

_PATIENCE = 300.0
_GRACE = 10.0
_SHOWN = 1500


class ProgramFailed(Exception):
    """A queue's process died, or does not answer; it says why, as far as it is known."""


class Program:
    """A process that does as told: lines of JSON in, lines of JSON out."""

    def __init__(self, process: subprocess.Popen[str], complaints: IO[str]) -> None:
        self._process = process
        self._complaints = complaints
        self._answers: queue.Queue[str] = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def ask(self, do: str, **arguments: object) -> Any:
        """Tell it to do something, and wait for the answer."""
        self.tell(do, **arguments)
        return self.hear()

    def tell(self, do: str, **arguments: object) -> None:
        """Tell it to do something, whose answer is to be heard later."""
        if self._process.stdin is None:
            raise ProgramFailed("it has no ears")
        try:
            self._process.stdin.write(json.dumps({"do": do, **arguments}) + "\n")
            self._process.stdin.flush()
        except OSError:
            raise self._failure("it died") from None

    def hear(self) -> Any:
        """Wait for the answer to the oldest command that was not answered yet."""
        try:
            line = self._answers.get(timeout=_PATIENCE)
        except queue.Empty:
            raise self._failure(f"it has not answered for {_PATIENCE:g} s") from None
        if not line:
            raise self._failure("it died")
        return json.loads(line)

    @property
    def pid(self) -> int:
        """The id of the process."""
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        """Whether it can still be told something."""
        return self._process.poll() is None

    def end(self) -> None:
        """End it: by the end of its commands, else by force."""
        self._say_no_more()
        try:
            self._process.wait(_GRACE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reader.join(_GRACE)

    def kill(self) -> None:
        """End it by force."""
        self._process.kill()
        self._process.wait()
        self._say_no_more()
        self._reader.join(_GRACE)

    def _say_no_more(self) -> None:
        if self._process.stdin is not None:
            with suppress(OSError):  # It may have died with a command half said.
                self._process.stdin.close()

    def _read(self) -> None:
        if self._process.stdout is None:
            return
        with self._process.stdout as answers:
            for line in answers:
                self._answers.put(line)
        self._answers.put("")

    def _failure(self, what: str) -> ProgramFailed:
        self._complaints.seek(0)
        said = self._complaints.read().strip()[-_SHOWN:]
        return ProgramFailed(f"{what}: {said}" if said else what)


@contextmanager
def running(command: Sequence[str]) -> Iterator[Program]:
    """Run a program for as long as this lasts."""
    with tempfile.TemporaryFile("w+", encoding="utf-8") as complaints:
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=complaints,
            text=True,
            encoding="utf-8",
        )
        program = Program(process, complaints)
        try:
            yield program
        except BaseException:
            program.kill()
            raise
        program.end()
