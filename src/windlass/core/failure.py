"""Owns how an exception becomes text: its whole cause chain, bounded, whatever `__str__` does."""

from __future__ import annotations

import traceback

from windlass.core.job import ErrorInfo
from windlass.core.text import storable

MESSAGE_LIMIT = 10_000
TRACEBACK_LIMIT = 40_000
_CHAIN_LIMIT = 10


def describe(error: BaseException) -> ErrorInfo:
    """Return what is to be remembered of an exception. Never raises, whatever the exception is."""
    return ErrorInfo(
        type=storable(_name(type(error)), 200),
        message=storable(_message(error), MESSAGE_LIMIT),
        traceback=storable(_traceback(error), TRACEBACK_LIMIT),
    )


def _name(kind: type[BaseException]) -> str:
    module = kind.__module__
    return (
        kind.__qualname__ if module in ("builtins", "__main__") else f"{module}.{kind.__qualname__}"
    )


def _message(error: BaseException) -> str:
    try:
        return str(error)
    except Exception as broken:  # noqa: BLE001 - any error of a user's __str__ must end here.
        return f"<its __str__ raised {type(broken).__qualname__}>"


def _traceback(error: BaseException) -> str:
    """Format the chain by hand: the standard formatter trusts `__str__` and follows any chain."""
    sections: list[str] = []
    seen: set[int] = set()
    link: BaseException | None = error
    while link is not None and id(link) not in seen and len(sections) < _CHAIN_LIMIT:
        seen.add(id(link))
        frames = "".join(traceback.format_tb(link.__traceback__, limit=-50))
        headline = f"{_name(type(link))}: {storable(_message(link), 2_000)}"
        sections.append(f"Traceback (most recent call last):\n{frames}{headline}")
        link = link.__cause__ or (None if link.__suppress_context__ else link.__context__)
    return "\n\nwhich was caused by:\n\n".join(sections)
