"""A worker as a process, as the harness starts it: `serve_worker.py '{"log": ..., ...}'`."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from typing import Any

from tests.torture.programs import wrong_clock
from tests.torture.programs.patches import patch


def main(told: dict[str, Any]) -> None:
    # Imported after the clock is wrong, so that nobody has kept a right one.
    from windlass.cli.processes.signals import serve
    from windlass.core.schedules import schedule
    from windlass.observability.logs import configure_logging

    # It asks no clock, and msgspec reads times for it only as what they really are.
    schedule.datetime = wrong_clock.REAL  # type: ignore[attr-defined]
    with Path(told["log"]).open("a", buffering=1) as stream:
        configure_logging("debug", "json", stream)
        for name, value in told["patches"].items():
            patch(name, value)
        module, _, name = f"handlers:{told['app']}".rpartition(":")
        app = getattr(
            importlib.import_module(f"tests.torture.programs.{module.split(':')[-1]}"), name
        )
        serve(app.worker(name=told["name"], **told["settings"]))


if __name__ == "__main__":
    order = json.loads(sys.argv[1])
    if order["clock"]:
        wrong_clock.shift(order["clock"])
    main(order)
