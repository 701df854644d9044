"""Producers who want the same at once: `unique_producers.py PROCESSES ON_DUPLICATE`.

The processes are forks of one that has imported everything and opened nothing. Each writes the id
that it was told, and whether it was there before, into the ledger.
"""

from __future__ import annotations

import os
import sys
import time
import traceback
from pathlib import Path
from typing import Any

from tests.torture.ledger import Ledger
from windlass import Kind, Unique, Windlass

YARD = Path(os.environ["TORTURE_YARD"])
ledger = Ledger(YARD / "ledger")


def main(processes: int, on_duplicate: Any) -> int:
    assert Windlass().store, "imported here, and not opened"
    children = [pid for number in range(processes) if (pid := _fork(number + 1, on_duplicate))]
    (YARD / "go").touch()
    failed = [pid for pid in children if os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])]
    return len(failed)


def _fork(number: int, on_duplicate: Any) -> int:
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        produce(number, on_duplicate)
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def produce(number: int, on_duplicate: Any) -> None:
    """Enqueue once everybody is there, a minute later than the producer before."""
    app = Windlass()
    unique = Unique("the one", on_duplicate=on_duplicate)
    producer = app.of(Kind("quick", dict[str, Any])).using(unique=unique, delay=f"{60 + number}m")
    while not (YARD / "go").exists():
        time.sleep(0.001)
    handle = producer.enqueue({"pause": number / 1000})
    ledger.write("existing" if handle.existing else "added", handle.id, number)
    app.close()


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), sys.argv[2]))
