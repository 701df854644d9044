"""A worker as a process, as the harness starts it: `serve_worker.py '{"log": ..., ...}'`."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from typing import Any

from tests.torture import wrong_clock


def main(told: dict[str, Any]) -> None:
    # Imported after the clock is wrong, so that nobody has kept a right one.
    from windlass.cli.serve import serve
    from windlass.observe.logs import configure_logging

    with Path(told["log"]).open("a", buffering=1) as stream:
        configure_logging("debug", "json", stream)
        for name, value in told["patches"].items():
            patch(name, value)
        module, _, name = f"handlers:{told['app']}".rpartition(":")
        app = getattr(importlib.import_module(f"tests.torture.{module.split(':')[-1]}"), name)
        serve(app.worker(name=told["name"], **told["settings"]))


def patch(name: str, value: object) -> None:
    """Set a module's variable, or the default of a keyword: `module:NAME`, `module:f.keyword`."""
    module, _, path = name.partition(":")
    *way, last = path.split(".")
    thing: Any = importlib.import_module(module)
    for step in way:
        thing = getattr(thing, step)
    if callable(thing):
        assert last in thing.__kwdefaults__, name
        thing.__kwdefaults__[last] = value
    else:
        assert hasattr(thing, last), name
        setattr(thing, last, value)


if __name__ == "__main__":
    order = json.loads(sys.argv[1])
    if order["clock"]:
        wrong_clock.shift(order["clock"])
    main(order)
