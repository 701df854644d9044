"""Owns how an exception becomes text: its whole cause chain, bounded, whatever `__str__` does."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator
from itertools import islice
from types import TracebackType

from windlass.core.errors import WindlassError
from windlass.core.failures.exceptions import cause_of, is_a, members, traceback_of
from windlass.core.jobs.job import ErrorInfo
from windlass.core.payloads.redaction import Redaction
from windlass.core.values.text import storable

MESSAGE_LIMIT = 10_000
TRACEBACK_LIMIT = 40_000
_MASKED_LIMIT = 40_000
"""Characters of a message, or of the frames of one exception, that are masked at all."""
_NOTES_LIMIT = 100
_CHAIN_LIMIT = 20
_USUAL = Redaction()
_FRAME_LIMIT = 50
_PLUMBING = ("windlass", "importlib")
_EXAMPLES = "windlass.demo"
"""Frames of Windlass as a user would name them."""
_REFUSALS = (WindlassError, ValueError)
"""Errors by which Windlass rejects a call: the fault is in the line that made it."""
_CARRIERS = ("windlass.worker.engine.shared_tasks", "windlass.worker.engine.batches")
"""Modules that only pass on errors of others, maybe without ever raising them."""


def describe(error: BaseException, redaction: Redaction = _USUAL) -> ErrorInfo:
    """Return the description of an exception that is stored with a job, masked and bounded.

    Never raises, whatever the exception is.
    """

    def traceback_(error: BaseException) -> str:
        return _traceback(error, redaction)

    return ErrorInfo(
        type=storable(_safe(_name, error), 200),
        message=_masked(redaction, _safe(_message, error), MESSAGE_LIMIT),
        traceback=storable(_safe(traceback_, error), TRACEBACK_LIMIT),
    )


def _masked(redaction: Redaction, text: str, limit: int, *, code: bool = False) -> str:
    """Mask text before it is cut to its limit: a mask does not recognise half a secret.

    Masking blocks the event loop, so a text that is much too long is cut before masking, too.
    """
    return storable(redaction.text(text, code=code, limit=_MASKED_LIMIT), limit)


def where(error: BaseException, redaction: Redaction = _USUAL) -> str:
    """Return where the user's code raised an exception, and its causes; empty if nowhere in it.

    The exception itself is not named: this stands below a line that does.
    """
    parts = []
    for intro, link in _chain(error):
        place = _masked(redaction, _safe(_place, link), TRACEBACK_LIMIT, code=True)
        message = _masked(redaction, _safe(_message, link), 2_000)
        parts += [f"{intro} {_safe(_name, link)}: {message}\n" if intro else "", place]
    return storable("".join(parts), TRACEBACK_LIMIT).rstrip("\n") if any(parts) else ""


def _place(error: BaseException) -> str:
    theirs = _frames(error) if any(map(_is_theirs, _steps(traceback_of(error)))) else ""
    if is_a(error, SyntaxError):
        theirs += "".join(traceback.format_exception_only(error)[:-1])
    return theirs


def _safe(part: Callable[[BaseException], str], error: BaseException) -> str:
    # A user's exception may raise from any of its methods, even SystemExit.
    try:
        return str.__str__(part(error))
    except BaseException as broken:  # noqa: BLE001 - see above.
        return f"<{part.__name__.strip('_')} raised {type(broken).__name__}>"


def _name(error: BaseException) -> str:
    kind = type(error)
    if kind.__module__ in ("builtins", "__main__"):
        return kind.__qualname__
    # Windlass's own errors have the name under which people import them.
    is_own = kind.__module__.startswith("windlass.core.errors.")
    package = "windlass" if is_own else kind.__module__
    return f"{package}.{kind.__qualname__}"


def _message(error: BaseException) -> str:
    return str(error)


def _notes(error: BaseException) -> str:
    given = islice(getattr(error, "__notes__", ()), _NOTES_LIMIT)
    return "".join(f"\n{note}" for note in given)


def _traceback(error: BaseException, redaction: Redaction) -> str:
    # Formatted by hand: the standard formatter trusts `__str__` and follows a chain of any length.
    sections = []
    for intro, link in _chain(error):
        frames = _masked(redaction, _safe(_frames, link), TRACEBACK_LIMIT, code=True)
        notes = _masked(redaction, _safe(_notes, link), 2_000)
        message = _masked(redaction, _safe(_message, link), 2_000)
        headline = f"{_safe(_name, link)}{': ' if message else ''}{message}{notes}"
        before = f"{intro}:\n\n" if intro else ""
        sections.append(f"{before}Traceback (most recent call last):\n{frames}{headline}")
    return "\n\n".join(sections)


def _chain(error: BaseException) -> Iterator[tuple[str, BaseException]]:
    """Yield an exception, the members of its group and its causes, each with its relation."""
    seen: set[int] = set()
    waiting: list[tuple[str, BaseException]] = [("", error)]
    while waiting and len(seen) < _CHAIN_LIMIT:
        intro, link = waiting.pop()
        if id(link) in seen:
            continue
        seen.add(id(link))
        yield intro, link
        if (cause := cause_of(link)) is not None:
            waiting.append(("which was caused by", cause))
        waiting += [("which holds", inner) for inner in reversed(members(link))]


def _frames(error: BaseException) -> str:
    """Format the frames of the user's code, without those of Windlass around it.

    Without any user frame the error is one of Windlass itself and all frames count, unless the
    error was only passed on or rejects a value such as a payload: then its message suffices.
    """
    steps = list(_steps(traceback_of(error)))
    kept = [step for step in steps if _is_theirs(step)]
    if steps and not kept:
        is_meant = _module(steps[-1]) in _CARRIERS or is_a(error, WindlassError)
        kept = [] if is_meant else steps
    elif not is_a(error, *_REFUSALS):
        # A fault inside of Windlass needs its own frames, not only the user's call.
        last = steps.index(kept[-1]) if kept else 0
        kept += [step for step in steps[last + 1 :] if _module(step) not in _CARRIERS]
    frames = [traceback.extract_tb(step, limit=1)[0] for step in kept[-_FRAME_LIMIT:]]
    return "".join(traceback.StackSummary.from_list(frames).format())


def _steps(tb: TracebackType | None) -> Iterator[TracebackType]:
    while tb is not None:
        yield tb
        tb = tb.tb_next


def _module(step: TracebackType) -> str:
    return str(step.tb_frame.f_globals.get("__name__"))


def _is_theirs(step: TracebackType) -> bool:
    module = _module(step)
    return module.partition(".")[0] not in _PLUMBING or module.startswith(_EXAMPLES)
