"""The laws of described failures (torture 41): whatever was raised, it is recorded, and capped."""

from __future__ import annotations

import asyncio
import builtins
from collections.abc import Callable
from typing import Any, NoReturn

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass.core.errors import PermanentError
from windlass.core.failures import describe as failure
from windlass.core.failures.describe import MESSAGE_LIMIT, TRACEBACK_LIMIT
from windlass.core.jobs.job import ErrorInfo
from windlass.core.payloads.redaction import Redaction

WIDEST_ESCAPE = len(r"\ud800")
NOTICE = 60
"""What the line about left-out characters adds to a limit, at most."""


def describe(error: BaseException) -> ErrorInfo:
    """Describe an error; a KeyboardInterrupt that escapes fails the test, and not the whole run."""
    try:
        return failure.describe(error)
    except BaseException as escaped:
        raise AssertionError(f"describe() let {type(escaped).__qualname__} escape") from escaped


def raised(error: BaseException) -> BaseException:
    """Return the error with a traceback."""
    try:
        raise error
    except BaseException as caught:
        return caught


def assert_storable(info: ErrorInfo) -> None:
    for text in (info.type, info.message, info.traceback):
        assert "\x00" not in text
        text.encode()
    assert len(info.message) <= WIDEST_ESCAPE * MESSAGE_LIMIT + NOTICE
    assert len(info.traceback) <= WIDEST_ESCAPE * TRACEBACK_LIMIT + NOTICE


def saying(answer: Callable[[], object]) -> Exception:
    """Return an exception whose `__str__` does this."""

    class Odd(Exception):
        def __str__(self) -> str:
            return answer()  # type: ignore[return-value]

    return Odd()


def raising(error: BaseException) -> Callable[[], NoReturn]:
    def answer() -> NoReturn:
        raise error

    return answer


class LyingText(str):
    """A text that breaks whoever handles it as one."""

    def __len__(self) -> int:
        raise RuntimeError("no length")

    def __getitem__(self, index: object) -> str:
        raise RuntimeError("no characters")


@pytest.mark.parametrize(
    "answer",
    [
        raising(ValueError("no text")),
        raising(RecursionError()),
        raising(MemoryError()),
        raising(SystemExit(3)),
        raising(KeyboardInterrupt()),
        raising(GeneratorExit()),
        raising(asyncio.CancelledError()),
        lambda: 3,
        lambda: None,
        lambda: LyingText("\x00"),
    ],
    ids=[
        "ValueError",
        "RecursionError",
        "MemoryError",
        "SystemExit",
        "KeyboardInterrupt",
        "GeneratorExit",
        "CancelledError",
        "a number",
        "None",
        "a str that lies",
    ],
)
def test_an_exception_that_cannot_say_what_it_is_is_recorded(answer: Callable[[], object]) -> None:
    """Were the describer to raise, the job could not be settled, and would run for ever."""
    info = describe(raised(saying(answer)))
    assert info.type.endswith("Odd")
    assert_storable(info)


def test_a_str_that_calls_itself_is_recorded() -> None:
    error = saying(lambda: str(error))
    assert "RecursionError" in describe(raised(error)).message


def test_a_broken_str_in_the_cause_does_not_hide_the_error_itself() -> None:
    error = ValueError("the error itself")
    error.__cause__ = saying(raising(KeyboardInterrupt()))
    info = describe(raised(error))
    assert info.message == "the error itself"
    assert "which was caused by" in info.traceback


class HiddenCause(Exception):
    @property
    def __cause__(self) -> BaseException | None:  # type: ignore[override]
        raise RuntimeError("hidden")


class FalseCause(Exception):
    __cause__ = "not an exception"  # type: ignore[assignment]


class FalseTraceback(Exception):
    __traceback__ = "not a traceback"  # type: ignore[assignment]


class Nameless(type):
    @property
    def __module__(cls) -> str:  # type: ignore[override]
        raise RuntimeError("nameless")


class OfNamelessType(Exception, metaclass=Nameless):
    pass


@pytest.mark.parametrize("kind", [HiddenCause, FalseCause, FalseTraceback, OfNamelessType])
def test_an_exception_that_lies_about_itself_is_recorded(kind: type[Exception]) -> None:
    assert_storable(describe(kind("odd")))


@pytest.mark.parametrize("character", ["x", "\x00", "\ud800", "\n"], ids=ascii)
def test_a_message_of_fifty_megabytes_is_capped(character: str) -> None:
    info = describe(raised(ValueError(character * 50_000_000)))
    assert "characters left out" in info.message
    assert_storable(info)


def test_a_plain_long_message_takes_no_more_than_its_limit() -> None:
    info = describe(raised(ValueError("x" * 50_000_000)))
    assert len(info.message) <= MESSAGE_LIMIT + NOTICE


def test_a_cyclic_cause_ends() -> None:
    first, second = ValueError("first"), KeyError("second")
    first.__cause__, second.__cause__ = second, first
    info = describe(first)
    assert info.traceback.count("which was caused by") == 1
    itself = ValueError("itself")
    itself.__cause__ = itself
    assert "which was caused by" not in describe(itself).traceback


def test_a_chain_of_thousands_is_capped() -> None:
    error = ValueError("the last")
    link: BaseException = error
    for number in range(10_000):
        link.__cause__ = ValueError(f"{number}" + "x" * 5_000)
        link = link.__cause__
    info = describe(error)
    assert "the last" in info.traceback
    assert_storable(info)


def test_the_chain_of_causes_is_kept_with_every_traceback() -> None:
    def fetch() -> NoReturn:
        raise ConnectionError("refused")

    try:
        try:
            fetch()
        except ConnectionError as error:
            raise LookupError("no rate") from error
    except LookupError as error:
        info = describe(error)
    assert (info.type, info.message) == ("LookupError", "no rate")
    assert info.traceback.index("LookupError: no rate") < info.traceback.index("caused by")
    assert info.traceback.index("caused by") < info.traceback.index("ConnectionError: refused")
    assert "in fetch" in info.traceback


def test_an_error_raised_while_handling_another_keeps_that_other() -> None:
    with pytest.raises(ValueError) as second:
        try:
            raise KeyError("first")
        except KeyError:
            raise ValueError("second")  # noqa: B904 - without `from`, which is the point
    assert "KeyError: 'first'" in describe(second.value).traceback


def test_a_context_that_was_suppressed_stays_out() -> None:
    with pytest.raises(ValueError) as public:
        try:
            raise KeyError("secret")
        except KeyError:
            raise ValueError("public") from None
    assert "secret" not in describe(public.value).traceback


def test_a_cause_that_is_false_is_still_a_cause() -> None:
    """An exception may have a length, and be empty; `cause or context` would drop it."""

    class Problems(Exception):
        def __len__(self) -> int:
            return 0

    error = ValueError("outer")
    error.__cause__ = Problems("inner")
    assert "Problems: inner" in describe(error).traceback


def test_surrogates_and_nul_are_escaped_wherever_they_come_from() -> None:
    kind = type("Bad", (ValueError,), {"__module__": "mod\ud800ule", "__qualname__": "Bad\x00Name"})
    info = describe(raised(kind("mess\x00age \udfff")))
    assert_storable(info)
    assert info.message == r"mess\x00age \udfff"
    assert info.type == r"mod\ud800ule.Bad\x00Name"


def test_a_group_shows_what_is_in_it() -> None:
    """A TaskGroup's own message is only "unhandled errors in a TaskGroup"."""
    inner = ExceptionGroup("inner", [KeyError("deep in it")])
    group = ExceptionGroup("several at once", [ValueError("one of them"), inner])
    info = describe(raised(group))
    assert info.type == "ExceptionGroup"
    assert "several at once" in info.message
    assert "ValueError: one of them" in info.traceback
    assert "KeyError: 'deep in it'" in info.traceback


def test_a_group_of_thousands_is_capped() -> None:
    crowd = [ValueError(f"{number}" + "x" * 5_000) for number in range(5_000)]
    assert_storable(describe(raised(ExceptionGroup("crowd", crowd))))


def test_a_group_nested_deeply_is_recorded() -> None:
    group: ExceptionGroup[Exception] = ExceptionGroup("the innermost", [ValueError("core")])
    for _ in range(5_000):
        group = ExceptionGroup("layer", [group])
    assert_storable(describe(group))


def test_a_stack_that_overflowed_is_capped() -> None:
    def deeper() -> None:
        deeper()

    with pytest.raises(RecursionError) as overflow:
        deeper()
    assert_storable(describe(overflow.value))


@pytest.mark.parametrize(
    "error", [KeyboardInterrupt(), SystemExit(1), asyncio.CancelledError(), GeneratorExit()]
)
def test_broken_exceptions_are_described_all_the_same(error: BaseException) -> None:
    assert describe(raised(error)).type.endswith(type(error).__qualname__)


def test_a_builtin_is_named_plainly_and_others_by_their_module() -> None:
    assert describe(ValueError("x")).type == "ValueError"
    assert describe(asyncio.QueueFull()).type == "asyncio.queues.QueueFull"
    assert all(
        "." not in describe(kind()).type for kind in (builtins.OSError, builtins.LookupError)
    )


@given(st.text(st.characters() | st.sampled_from("\x00\ud800\udfff")))
def test_any_message_can_be_stored(message: str) -> None:
    assert_storable(describe(ValueError(message)))


def test_an_endless_message_is_cut_before_it_is_masked() -> None:
    """Prevents: megabytes that are masked in the event loop, to show ten thousand characters."""
    masked: list[int] = []

    class Counting(Redaction):
        def text(self, text: str, *, code: bool = False, limit: int | None = None) -> str:
            masked.append(len(text) if limit is None else min(len(text), limit))
            return super().text(text, code=code, limit=limit)

    error = failure.describe(ValueError("://a:" * 1_000_000 + "@"), Counting())
    assert max(masked) <= 40_000
    assert len(error.message) < 11_000
    assert "characters left out" in error.message


def module_of_windlass(name: str, code: str) -> dict[str, Any]:
    """Return the names of a module that passes for one of Windlass."""
    names: dict[str, Any] = {"__name__": f"windlass.{name}"}
    exec(compile(code, f"windlass/{name}.py", "exec"), names)
    return names


def test_frames_of_windlass_between_those_of_the_user_are_left_out() -> None:
    ours = module_of_windlass("steps", "def step(function):\n    return function()\n")

    def refuse() -> NoReturn:
        raise LookupError("no rate")

    try:
        ours["step"](lambda: ours["step"](refuse))
    except LookupError as error:
        info = describe(error)
    assert "windlass/steps.py" not in info.traceback
    assert info.traceback.index("in <lambda>") < info.traceback.index("in refuse")


def test_a_refused_call_is_shown_at_the_users_line_and_a_fault_of_windlass_where_it_is() -> None:
    code = "def refuse(error):\n    raise error\n"
    ours = module_of_windlass("context", code)
    for error, is_shown in ((ValueError("7 is too much"), False), (AttributeError("x"), True)):
        try:
            ours["refuse"](error)
        except Exception as raised:
            info = describe(raised)
        assert 'ours["refuse"](error)' in info.traceback
        assert ("windlass/context.py" in info.traceback) is is_shown


def test_a_refusal_before_any_code_of_the_user_has_no_frames_and_a_fault_of_windlass_has() -> None:
    code = """
def refuse(error):
    try:
        raise error
    except Exception as refused:
        return refused
"""
    ours = module_of_windlass("codec", code)
    assert (
        "windlass/codec.py" not in describe(ours["refuse"](PermanentError("too large"))).traceback
    )
    assert "windlass/codec.py" in describe(ours["refuse"](KeyError("x"))).traceback
