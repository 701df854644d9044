"""Owns the files without a name that a process shares with its children."""

from __future__ import annotations

import os


def shared_file() -> int:
    """Return the descriptor of a file without a name, in memory where the system supports that."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("windlass", os.MFD_CLOEXEC)
    import tempfile  # It takes as long to import as all the rest of a supervisor's first steps.

    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


def reserve(fd: int, size: int) -> None:
    """Fill an empty file with zeros, so that there is space for all that will be written."""
    if os.fstat(fd).st_size < size:
        os.pwrite(fd, bytes(size), 0)
