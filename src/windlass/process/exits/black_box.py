"""Owns the black box of a process: the last lines that it logged, readable after it has died.

The box is a file without a name, whose descriptor both processes hold. Its first part is a ring of
log lines, written by the process itself; behind the ring is the dump that faulthandler writes when
the process dies of a signal.

Many jobs may write into one box, so every line begins with the id of its job.
"""

from __future__ import annotations

import faulthandler
import logging
import mmap
import os
import struct
import threading
import time
from collections.abc import Mapping

from windlass.core.values.text import storable
from windlass.observability.log_context import fields_here
from windlass.observability.log_handler import Witness
from windlass.observability.log_masking import redaction_in_force
from windlass.process.exits.shared_files import reserve, shared_file

MAX_CHARACTERS = 8_000
"""The most characters that `read` returns."""
_HALF_CHARACTERS = MAX_CHARACTERS // 2 - 1
_MAX_DUMP_BYTES = 100_000
_MAX_LINES = 50
_MAX_LINE_CHARACTERS = 1_000
_RING_BYTES = 65_536
_ID_END = "\t"
_COUNT = struct.Struct("<Q")
_DUMP_OFFSET = _COUNT.size + _RING_BYTES


class BlackBox:
    """The last lines of a process: `create` in its parent, `attach` in the process, `read`
    afterwards.
    """

    def __init__(self, fd: int) -> None:
        self.fd = fd
        reserve(fd, _DUMP_OFFSET)
        self._ring: mmap.mmap | None = mmap.mmap(fd, _DUMP_OFFSET)
        self._written = 0
        self._lock = threading.Lock()

    @classmethod
    def create(cls) -> BlackBox:
        """Make a black box, whose `fd` is to be passed on to the process."""
        return cls(shared_file())

    @classmethod
    def attach(cls, fd: int) -> BlackBox:
        """Write the log lines and the crash dump of this process into a box that it was given.

        Forks of this process write nothing.
        """
        box = cls(fd)
        os.register_at_fork(after_in_child=box._leave)
        # The offset at which faulthandler writes; the ring is written without moving it.
        os.lseek(fd, _DUMP_OFFSET, os.SEEK_SET)
        faulthandler.enable(file=fd)
        os.register_at_fork(after_in_child=faulthandler.disable)
        logging.getLogger().addHandler(_Recorder(box))
        return box

    def write(self, text: str, job: str = "") -> None:
        """Add the lines that were logged about a job, in place of the oldest lines if the ring is
        full.
        """
        self._add(
            "".join(
                [f"{job}{_ID_END}{line}\n" for line in text[:_MAX_LINE_CHARACTERS].splitlines()]
            )
        )

    def write_line(self, line: str, job: str) -> None:
        """Add one line, which has no line feed in it."""
        self._add(f"{job}{_ID_END}{line[:_MAX_LINE_CHARACTERS]}\n")

    def _add(self, lines: str) -> None:
        ring = self._ring
        if ring is None:
            return
        data = lines.encode("utf-8", "backslashreplace")
        with self._lock:
            start = _COUNT.size + self._written % _RING_BYTES
            end = start + len(data)
            if end <= _DUMP_OFFSET:
                ring[start:end] = data
            else:
                head = _DUMP_OFFSET - start
                ring[start:_DUMP_OFFSET] = data[:head]
                ring[_COUNT.size : _COUNT.size + len(data) - head] = data[head:]
            self._written += len(data)
            _COUNT.pack_into(ring, 0, self._written)

    def clear(self) -> None:
        """Discard the lines so far: those that follow are about another job."""
        with self._lock:
            self._written = 0
            os.pwrite(self.fd, _COUNT.pack(0), 0)

    def read(self, job: str | None = None) -> str:
        """Return the last lines, only those about a `job` if one is given, and the crash dump; at
        most `MAX_CHARACTERS` characters.
        """
        lines, dump = self._lines(job), self._dump()
        return "\n\n".join(part for part in (lines, dump) if part)

    def _lines(self, job: str | None) -> str:
        (written,) = _COUNT.unpack(os.pread(self.fd, _COUNT.size, 0))
        ring = os.pread(self.fd, _RING_BYTES, _COUNT.size)
        start = written % _RING_BYTES
        # The oldest line may be partly overwritten, so it is left out.
        is_full = written > _RING_BYTES
        text = (ring[start:] + ring[:start]).partition(b"\n")[2] if is_full else ring[:start]
        tagged = [line.partition(_ID_END) for line in text.decode("utf-8", "replace").split("\n")]
        lines = [line for about, _, line in tagged if line and job in (None, about)]
        last = storable("\n".join(lines[-_MAX_LINES:]), _RING_BYTES * 4)
        return (
            last if len(last) <= _HALF_CHARACTERS else last[-_HALF_CHARACTERS:].partition("\n")[2]
        )

    def _dump(self) -> str:
        """Return the crash dump; in a long one the thread that crashed comes first."""
        dump = os.pread(self.fd, _MAX_DUMP_BYTES, _DUMP_OFFSET).decode("utf-8", "replace").strip()
        if len(dump) > _HALF_CHARACTERS:
            headline, _, rest = dump.partition("\n")
            culprit = rest.find("Current thread")
            dump = f"{headline}\n{rest[max(culprit, 0) :]}"
        return storable(dump, _MAX_DUMP_BYTES)[:_HALF_CHARACTERS]

    def close(self) -> None:
        """Close the file."""
        if self.fd >= 0:
            self._leave()
            os.close(self.fd)
            self.fd = -1

    def _leave(self) -> None:
        """Stop writing: this process is a fork, or is done."""
        ring, self._ring = self._ring, None
        if ring is not None:
            ring.close()


class _Recorder(Witness):
    """Writes log records into a black box.

    Where a program has configured no logging, warnings go to standard error; this handler must not
    count as a configuration.
    """

    def __init__(self, box: BlackBox) -> None:
        super().__init__()
        self._box = box
        form = "%(asctime)s.%(msecs)03dZ %(levelname)s %(name)s %(message)s"
        formatter = logging.Formatter(form, "%Y-%m-%dT%H:%M:%S")
        formatter.converter = time.gmtime
        self.setFormatter(formatter)

    def note(self, line: str, job: str) -> None:
        """Take a line about a job that was made without a record: see
        `observability.run_log_lines`.
        """
        try:
            self._box.write_line(line, job)
        except Exception:  # noqa: BLE001 - what cannot be recorded must not cost the run.
            return

    def emit(self, record: logging.LogRecord) -> None:
        try:
            line = self.format(record)
            if not isinstance(record.msg, Mapping) or record.exc_info:
                # Masked here, not by the reader: only this process knows the secrets of its run.
                # The fields of a structured line were masked when it was made.
                line = redaction_in_force().text(line)
            self._box.write(line, _job_of(record))
        except Exception:  # noqa: BLE001 - what cannot be recorded must not cost the run.
            return
        last = logging.lastResort
        is_alone = logging.getLogger().handlers == [self]
        if is_alone and last is not None and record.levelno >= last.level:
            last.handle(record)


def _job_of(record: logging.LogRecord) -> str:
    """Return the id of the job that a line is about: by its fields, or by where it was logged."""
    job_id = record.msg.get("job_id") if isinstance(record.msg, Mapping) else None
    return str(job_id or fields_here().get("job_id", ""))
