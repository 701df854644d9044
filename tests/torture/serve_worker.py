"""A worker as a process, as the harness starts it: `serve_worker.py '{"log": ..., ...}'`."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path

from windlass.cli.serve import serve
from windlass.observe.logs import configure_logging
from windlass.store.sqlite import store as sqlite_store


def main() -> None:
    told = json.loads(sys.argv[1])
    with Path(told["log"]).open("a", buffering=1) as stream:
        configure_logging("debug", "json", stream)
        if told["wal_large"] is not None:
            sqlite_store._WAL_LARGE = told["wal_large"]
        app = getattr(importlib.import_module("tests.torture.handlers"), told["app"])
        serve(app.worker(name=told["name"], **told["settings"]))


if __name__ == "__main__":
    main()
