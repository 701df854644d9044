"""Every regular expression of ours takes linear time, whatever text it is given.

Text comes from outside: error messages, payloads, headers, URLs. An expression that reads the same
text again and again holds the event loop, and a worker that stands still loses its lease.
"""

from __future__ import annotations

import importlib
import pkgutil
import re
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import windlass
from tests.support.django_settings import configure_django
from windlass.core.failures.describe import describe
from windlass.core.failures.fingerprint import pattern
from windlass.core.payloads.redaction import Redaction
from windlass.settings import redact_url

PARTS = (
    *"aA0 \t\n'\"`\\:=@/?&.,;-_#%+~|<>[]{}()",
    *("://a:", "://a@", "a://@", "a-", "a.", "a=", "a: ", "\\'", '\\"', '"\\', "1.1", "0x0", "1s "),
    *("password", "password=", "password='a ", "pwd='''", "token: |\n ", "cookie: ", "cookies={"),
    *("bearer ", "eyJaaaaaaaa-", "eyJaaaaaaaa.", "-----BEGIN PRIVATE KEY-----", "identified by "),
    *(
        " - at `",
        "field `",
        "\\u0000",
        "\\\\",
        '  File "',
        '{"$secret":',
        "-- name: a",
        "12345678-",
    ),
)
"""What is repeated: the pieces of which the expressions are made."""
STARTS = ("", "a://@", "password=")
SMALL, GROWTH = 1_000, 4
WHOLE = frozenset({
    *("windlass.core.values.ranges._WRITTEN", "windlass.core.values.durations._WHOLE"),
    *("windlass.core.policies.limit._RATE", "windlass.core.values.durations._SECONDS"),
    *("windlass.core.values.durations._DATE", "windlass.app.doctor.advice._REMEDY"),
    *("windlass.core.values.sizes._SIZE", "windlass.core.policies.slo._START_WITHIN"),
    *("windlass.core.values.durations._PART", "windlass.core.payloads.redaction._QUOTED"),
    *("windlass.core.payloads.redaction._SCHEME", "windlass.store.userinfo._HOST"),
    "windlass.web.access.visible._QUOTED",
})  # fmt: skip
"""Those that are matched at one place of a text only, or look at a few characters."""
FLOOR = 0.004
"""Seconds of CPU time below which nothing is judged."""


def expressions() -> Iterator[tuple[str, re.Pattern[Any]]]:
    """Find the compiled expressions of all modules; some of them need the settings of Django."""
    configure_django()
    for module in pkgutil.walk_packages(windlass.__path__, "windlass."):
        if module.name != "windlass.__main__":
            for name, value in vars(importlib.import_module(module.name)).items():
                if isinstance(value, re.Pattern):
                    yield f"{module.name}.{name}", value


EXPRESSIONS = dict(expressions())


def cpu_time(work: Callable[[str], object], text: str) -> float:
    """Return the CPU time of one call, the best of three: other load does not lengthen it."""
    times = []
    for _ in range(3):
        began = time.thread_time()
        work(text)
        times.append(time.thread_time() - began)
        if times[-1] < FLOOR:
            break
    return min(times)


def grows_too_fast(work: Callable[[str], object], start: str, part: str, size: int) -> bool:
    """Say whether four times the text takes more than eight times as long, twice in a row."""

    def taken(times: int) -> float:
        return cpu_time(work, start + part * (size * times // len(part)) + "\x01")

    if (middle := taken(GROWTH)) < FLOOR:
        return False
    return middle > taken(1) * 2 * GROWTH and taken(GROWTH**2) > middle * 2 * GROWTH


def slow_texts(work: Callable[[str], object]) -> list[tuple[str, str]]:
    """Return of what the texts are made that take too long."""
    tried = [(start, part) for start in STARTS for part in PARTS]
    return [each for each in tried if grows_too_fast(work, *each, SMALL)]


@pytest.mark.parametrize("name", EXPRESSIONS)
def test_an_expression_takes_linear_time(name: str) -> None:
    expression = EXPRESSIONS[name]

    def search(text: str) -> int:
        given = text if isinstance(expression.pattern, str) else text.encode()
        is_whole = name in WHOLE or expression.fullmatch(given) is not None
        return 0 if is_whole else sum(1 for _ in expression.finditer(given))

    assert slow_texts(search) == []


@pytest.mark.parametrize(
    "work",
    [
        Redaction().text,
        Redaction().knowing(["a" * 500 + "b", "secret value"]).text,
        lambda text: Redaction().text(text, code=True),
        redact_url,
        pattern,
        lambda text: describe(ValueError(text)),
    ],
    ids=["text", "known", "code", "url", "fingerprint", "describe"],
)
def test_masking_takes_linear_time(work: Callable[[str], object]) -> None:
    assert slow_texts(work) == []


def test_runs_of_backslashes_before_a_quote_take_linear_time() -> None:
    """Prevents: a mark of any length that is looked for at every place."""

    def work(text: str) -> str:
        half = len(text) // 2
        return Redaction().text(f'token={text[:half]}"x{text[:half]}')

    assert not grows_too_fast(work, "", "\\", 4 * SMALL)
