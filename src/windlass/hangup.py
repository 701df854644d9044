"""Owns the SIGHUP of `windlass worker` before its processes can answer it: it is ignored.

Importing the package takes most of a start, and a SIGHUP ends a process without a handler for it.
Later the supervisor replaces its workers for one; until there are any, it has nothing to do.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Sequence


def ignore_until_ready(argv: Sequence[str] = tuple(sys.orig_argv)) -> None:
    """Ignore SIGHUP in a process started as `windlass worker`, until its own handler is installed.

    Uses a handler that does nothing, since child programs would inherit SIG_IGN.
    """
    if _serves(argv) and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGHUP, lambda *_: None)


def _serves(argv: Sequence[str]) -> bool:
    """Return whether a command line is `windlass worker`, by whatever way it was started."""
    for place, word in enumerate(argv[1:], 1):
        is_module = word == "windlass" and argv[place - 1] == "-m"
        if is_module or os.path.basename(word) == "windlass":  # noqa: PTH119 - pathlib is slow.
            commands = [each for each in argv[place + 1 :] if not each.startswith("-")]
            return commands[:1] == ["worker"]
    return False
