"""Owns the black box of a process: the last lines that it logged, readable after it has died.

It is a file without a name, whose descriptor both sides hold. Its first part is a ring of log
lines, by the process itself; behind that is what faulthandler writes when the process dies of a
signal.

Many jobs may write into one box, and each of them shall find its own lines there, so that every
line begins with the id of the job that it is about.
"""

from __future__ import annotations

import faulthandler
import logging
import mmap
import os
import struct
import tempfile
import threading
import time
from collections.abc import Mapping

from windlass.core.text import storable
from windlass.observe.discretion import redaction_in_force
from windlass.observe.lines import Witness
from windlass.observe.running import fields_here

LIMIT = 8_000
"""How many characters `read` returns at most."""
_HALF = LIMIT // 2 - 1
_LONGEST_DUMP = 100_000
_LINES = 50
_LINE = 1_000
_RING = 65_536
_BEHIND_ID = "\t"
_COUNT = struct.Struct("<Q")
_DUMP = _COUNT.size + _RING


def shared_file() -> int:
    """Return the descriptor of a file without a name, in memory where the system can do that."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("windlass", os.MFD_CLOEXEC)
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


class BlackBox:
    """What a process leaves behind. `create` in its parent, `attach` in itself, `read` after it."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self._ring: mmap.mmap | None = mmap.mmap(fd, _DUMP)
        self._written = 0
        self._lock = threading.Lock()

    @classmethod
    def create(cls) -> BlackBox:
        """Make a black box, whose `fd` is to be passed on to the process."""
        fd = shared_file()
        os.pwrite(fd, bytes(_DUMP), 0)  # So that there is room for what will be written there.
        return cls(fd)

    @classmethod
    def attach(cls, fd: int) -> BlackBox:
        """Let this process write its log lines, and its last words, into a box that it was given.

        What it forks writes nothing.
        """
        box = cls(fd)
        os.register_at_fork(after_in_child=box._leave)
        os.lseek(fd, _DUMP, os.SEEK_SET)  # Where faulthandler writes; our own writes do not move.
        faulthandler.enable(file=fd)
        os.register_at_fork(after_in_child=faulthandler.disable)
        logging.getLogger().addHandler(_Recorder(box))
        return box

    def write(self, text: str, job: str = "") -> None:
        """Add what was logged about a job, in place of the oldest lines if there is no room."""
        self._add("".join([f"{job}{_BEHIND_ID}{line}\n" for line in text[:_LINE].splitlines()]))

    def write_line(self, line: str, job: str) -> None:
        """Add one line, which has no line feed in it."""
        self._add(f"{job}{_BEHIND_ID}{line[:_LINE]}\n")

    def _add(self, lines: str) -> None:
        ring = self._ring
        if ring is None:
            return
        data = lines.encode("utf-8", "backslashreplace")
        with self._lock:
            start = _COUNT.size + self._written % _RING
            end = start + len(data)
            if end <= _DUMP:
                ring[start:end] = data
            else:
                head = _DUMP - start
                ring[start:_DUMP] = data[:head]
                ring[_COUNT.size : _COUNT.size + len(data) - head] = data[head:]
            self._written += len(data)
            _COUNT.pack_into(ring, 0, self._written)

    def clear(self) -> None:
        """Forget the lines so far: what follows is about something else."""
        with self._lock:
            self._written = 0
            os.pwrite(self.fd, _COUNT.pack(0), 0)

    def read(self, job: str | None = None) -> str:
        """Return the last lines, only those about a `job` if one is given, and what faulthandler
        wrote; never more than `LIMIT` allows.
        """
        lines, dump = self._lines(job), self._dump()
        return "\n\n".join(part for part in (lines, dump) if part)

    def _lines(self, job: str | None) -> str:
        (written,) = _COUNT.unpack(os.pread(self.fd, _COUNT.size, 0))
        ring = os.pread(self.fd, _RING, _COUNT.size)
        start = written % _RING
        # Of the oldest line only a part may be left, which is left out.
        is_full = written > _RING
        text = (ring[start:] + ring[:start]).partition(b"\n")[2] if is_full else ring[:start]
        tagged = [
            line.partition(_BEHIND_ID) for line in text.decode("utf-8", "replace").split("\n")
        ]
        lines = [line for about, _, line in tagged if line and job in (None, about)]
        told = storable("\n".join(lines[-_LINES:]), _RING * 4)
        return told if len(told) <= _HALF else told[-_HALF:].partition("\n")[2]

    def _dump(self) -> str:
        """Return what faulthandler wrote; if that is long, the thread that did it comes first."""
        dump = os.pread(self.fd, _LONGEST_DUMP, _DUMP).decode("utf-8", "replace").strip()
        if len(dump) > _HALF:
            headline, _, rest = dump.partition("\n")
            culprit = rest.find("Current thread")
            dump = f"{headline}\n{rest[max(culprit, 0) :]}"
        return storable(dump, _LONGEST_DUMP)[:_HALF]

    def close(self) -> None:
        """Let go of the file."""
        if self.fd >= 0:
            self._leave()
            os.close(self.fd)
            self.fd = -1

    def _leave(self) -> None:
        """Write no more: this process was forked from the one whose box it is, or is done."""
        ring, self._ring = self._ring, None
        if ring is not None:
            ring.close()


class _Recorder(Witness):
    """Writes log records into a black box.

    Where a program has configured no logging, warnings go to standard error; that they are recorded
    must not be taken for a configuration.
    """

    def __init__(self, box: BlackBox) -> None:
        super().__init__()
        self._box = box
        form = "%(asctime)s.%(msecs)03dZ %(levelname)s %(name)s %(message)s"
        formatter = logging.Formatter(form, "%Y-%m-%dT%H:%M:%S")
        formatter.converter = time.gmtime
        self.setFormatter(formatter)

    def note(self, line: str, job: str) -> None:
        """Take a line about a job that was made without a record: see `observe.run_lines`."""
        try:
            self._box.write_line(line, job)
        except Exception:  # noqa: BLE001 - what cannot be recorded must not cost the run.
            return

    def emit(self, record: logging.LogRecord) -> None:
        try:
            told = self.format(record)
            if not isinstance(record.msg, Mapping) or record.exc_info:
                # Here and not by who reads it: only this process knows the secrets of its run. The
                # fields of a line of ours were masked when it was made.
                told = redaction_in_force().text(told)
            self._box.write(told, _job_of(record))
        except Exception:  # noqa: BLE001 - what cannot be recorded must not cost the run.
            return
        last = logging.lastResort
        is_alone = logging.getLogger().handlers == [self]
        if is_alone and last is not None and record.levelno >= last.level:
            last.handle(record)


def _job_of(record: logging.LogRecord) -> str:
    """Return the id of the job that a line is about: as it says itself, or where it was logged."""
    said = record.msg.get("job_id") if isinstance(record.msg, Mapping) else None
    return str(said or fields_here().get("job_id", ""))
