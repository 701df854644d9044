"""Owns an app that every release can run, and its producer: `release_shop.py FILE` enqueues.

It uses only what the first release has, and nothing of the tests: these are of today.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

import windlass
from windlass import Context, EnqueueUncertain, StoreUnavailable, Windlass

YARD = Path(os.environ["TORTURE_YARD"])
PACE = 0.005
"""Seconds between two jobs: two hundred a second at most."""
app = Windlass()
assert Path(windlass.__file__).is_relative_to(YARD), "the sources of another release"

if os.environ.get("RELEASE_IS_NEXT"):
    # Only the release after today's is made up, so this is never asked of a real one.
    from tests.support.releases import become_next

    become_next()


def append(path: Path, *values: object) -> None:
    """Add a line; the kernel puts it behind everything that is there."""
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(descriptor, json.dumps(values).encode() + b"\n")
    finally:
        os.close(descriptor)


@app.job
async def serve(ctx: Context, number: int) -> int:
    append(YARD / "runs", str(ctx.job_id), os.environ["RELEASE"])
    return number


@app.job
async def serve_later(ctx: Context, number: int) -> int:
    """Fail once, so that a retry is written by one release and read by another."""
    append(YARD / "tries", str(ctx.job_id), os.environ["RELEASE"])
    if ctx.attempt == 1:
        raise ConnectionError("the first try of every such job fails")
    append(YARD / "runs", str(ctx.job_id), os.environ["RELEASE"])
    return number


def produce(acknowledged: Path) -> None:
    """Enqueue until a file says that it is enough; keep what was acknowledged in another."""
    number = 0
    while not (YARD / "enough").exists():
        kind = serve_later if number % 10 == 0 else serve
        delayed = kind.using(delay=0.5) if number % 7 == 0 else kind
        try:
            handle = delayed.enqueue(number)
        except EnqueueUncertain as error:
            (handle,) = error.retry()
        except StoreUnavailable:
            continue
        append(acknowledged, str(handle.id))
        number += 1
        time.sleep(PACE)


if __name__ == "__main__":
    produce(Path(sys.argv[1]))
    app.close()
