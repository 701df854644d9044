"""Owns how an exception becomes text: its whole cause chain, bounded, whatever `__str__` does."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator
from types import TracebackType

from windlass.core.job import ErrorInfo
from windlass.core.redaction import Redaction
from windlass.core.text import storable

MESSAGE_LIMIT = 10_000
TRACEBACK_LIMIT = 40_000
_CHAIN_LIMIT = 20
_USUAL = Redaction()
_OURS = ("windlass.runtime.", "windlass.middleware.", "windlass.registry")
_CARRIERS = ("windlass.runtime.alone", "windlass.runtime.batches")
"""What only hands on errors that others made, maybe without ever raising them."""


def describe(error: BaseException, redaction: Redaction = _USUAL) -> ErrorInfo:
    """Return what is to be remembered of an exception, and may be seen by those who read errors.

    Never raises, whatever the exception is.
    """
    # Masked before it is cut: half a secret is known by nobody, and may be half too much.
    mask = redaction.text

    def traceback_(error: BaseException) -> str:
        return _traceback(error, redaction)

    return ErrorInfo(
        type=storable(_safe(_name, error), 200),
        message=storable(mask(_safe(_message, error)), MESSAGE_LIMIT),
        traceback=storable(_safe(traceback_, error), TRACEBACK_LIMIT),
    )


def _safe(part: Callable[[BaseException], str], error: BaseException) -> str:
    """Ask for one part; an exception can be as broken as its author likes, SystemExit included."""
    try:
        return str.__str__(part(error))
    except BaseException as broken:  # noqa: BLE001 - see above.
        return f"<{part.__name__.strip('_')} raised {type(broken).__name__}>"


def _name(error: BaseException) -> str:
    kind = type(error)
    if kind.__module__ in ("builtins", "__main__"):
        return kind.__qualname__
    # Our own are known by the name under which people import them.
    package = "windlass" if kind.__module__ == "windlass.core.errors" else kind.__module__
    return f"{package}.{kind.__qualname__}"


def _message(error: BaseException) -> str:
    return str(error)


def _traceback(error: BaseException, redaction: Redaction) -> str:
    """Format the chain by hand: the standard formatter trusts `__str__` and follows any chain."""
    mask, sections = redaction.text, []
    for intro, link in _chain(error):
        frames = "".join(traceback.format_tb(_users_part(link.__traceback__), limit=-50))
        notes = mask("".join(f"\n{note}" for note in getattr(link, "__notes__", ())))
        message = storable(mask(_safe(_message, link)), 2_000)
        headline = f"{_safe(_name, link)}: {message}{notes}"
        sections.append(
            f"{intro}Traceback (most recent call last):\n{mask(frames, code=True)}{headline}"
        )
    return "\n\n".join(sections)


def _chain(error: BaseException) -> Iterator[tuple[str, BaseException]]:
    """Walk an exception, what its group holds and what caused each, with how they relate."""
    seen: set[int] = set()
    waiting: list[tuple[str, BaseException]] = [("", error)]
    while waiting and len(seen) < _CHAIN_LIMIT:
        intro, link = waiting.pop()
        if id(link) in seen:
            continue
        seen.add(id(link))
        yield intro, link
        cause = link.__cause__
        if cause is None and not link.__suppress_context__:
            cause = link.__context__
        if cause is not None:
            waiting.append(("which was caused by:\n\n", cause))
        if isinstance(link, BaseExceptionGroup):
            waiting += [("which holds:\n\n", inner) for inner in reversed(link.exceptions)]


def _users_part(tb: TracebackType | None) -> TracebackType | None:
    """Skip the frames of Windlass that lead to the handler: they are the same for every error.

    Where there are no others, it is an error of our own, unless it was only handed on.
    """
    start, module = tb, ""
    while start is not None:
        module = str(start.tb_frame.f_globals.get("__name__"))
        if not module.startswith(_OURS):
            return start
        start = start.tb_next
    return None if module in _CARRIERS else tb
