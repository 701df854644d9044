"""Producers who want the same at once: `unique_producers.py PROCESSES ON_DUPLICATE`.

The processes are forks of one that has imported everything and opened nothing. Each writes the id
that it was told, and whether it was there before, into the ledger.
"""

from __future__ import annotations

import os
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

from tests.support.ledger import Ledger
from tests.torture.programs.forks import failures, fork
from windlass import Kind, Unique, Windlass

YARD = Path(os.environ["TORTURE_YARD"])
ledger = Ledger(YARD / "ledger")


def main(processes: int, on_duplicate: Any) -> int:
    assert Windlass().store is not None, "imported here, got opened"
    numbers = range(1, processes + 1)
    children = [fork(partial(produce, number, on_duplicate)) for number in numbers]
    (YARD / "go").touch()
    return failures(children)


def produce(number: int, on_duplicate: Any) -> None:
    """Enqueue once everybody is there, a minute later than the producer before."""
    app = Windlass()
    unique = Unique("the one", on_duplicate=on_duplicate)
    producer = app.producer(Kind("quick", dict[str, Any])).using(
        unique=unique, delay=f"{60 + number}m"
    )
    while not (YARD / "go").exists():
        time.sleep(0.001)
    handle = producer.enqueue({"pause": number / 1000})
    ledger.write("existing" if handle.is_duplicate else "added", handle.id, number)
    app.close()


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), sys.argv[2]))
