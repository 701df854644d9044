"""Owns the import of modules for the handlers that they register, and what may go wrong in it."""

from __future__ import annotations

import importlib
from collections.abc import Iterable

from windlass.core.errors import ImportFailed


def load_imports(modules: Iterable[str]) -> None:
    """Import modules for the handlers that they register.

    Raises:
        ImportFailed: one cannot be imported.
    """
    for module in modules:
        try:
            importlib.import_module(module)
        except SystemExit as end:
            raise exit_refused(module, end) from end
        except Exception as error:
            reason = f"{type(error).__qualname__}: {error}"
            raise ImportFailed(f"importing {module!r} failed: {reason}") from error


def exit_refused(module: str, end: SystemExit) -> ImportFailed:
    """Return the error for a module that called `sys.exit`, or one that it imports did."""
    code = "" if end.code is None else repr(end.code)
    return ImportFailed(
        f"importing {module!r} failed: it called sys.exit({code}); call that only under "
        '`if __name__ == "__main__":`'
    )
