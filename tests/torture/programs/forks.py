"""Owns forks of a process that has imported everything and opened nothing: all begin at once."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable, Iterable


def fork(work: Callable[[], None]) -> int:
    """Do work in a fork, which ends with 1 if anything reaches it; return its process id."""
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        work()
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def failures(children: Iterable[int]) -> int:
    """Wait for forks, and count those that failed."""
    return sum(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) != 0 for pid in children)
