"""What a breaker may be: by which rule it goes, and which failures count for it."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from windlass import Breaker, ConfigError, ErrorClass
from windlass.core.policies.breaker import own_rule


class Down(Exception):
    pass


class FarDown(Down):
    pass


def test_a_breaker_opens_after_five_failures_and_is_tried_again_after_a_minute() -> None:
    rule = Breaker("stripe").rule
    assert (rule.name, rule.failures, rule.probes) == ("stripe", 5, 1)
    assert rule.cooldown == timedelta(seconds=60)


def test_breakers_are_alike_if_their_rules_are() -> None:
    assert Breaker("a", cooldown="1m").rule == Breaker("a", cooldown=60).rule
    assert Breaker("a").rule != Breaker("a", failures=6).rule
    assert repr(Breaker("a")) == "Breaker('a')"


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"name": ""}, "a breaker must have a name"),
        ({"name": None}, "a breaker must have a name"),
        ({"name": "kind:mail"}, "choose another"),
        ({"failures": 0}, "failures must be a whole number of at least 1, got 0"),
        ({"failures": -5}, "failures must be a whole number of at least 1, got -5"),
        ({"failures": 2.5}, "failures must be a whole number of at least 1, got 2.5"),
        ({"failures": True}, "failures must be a whole number of at least 1, got True"),
        ({"probes": 0}, "probes must be a whole number of at least 1"),
        ({"probes": "1"}, "probes must be a whole number of at least 1"),
        ({"cooldown": "soon"}, "cooldown must be a number and a unit, got 'soon'"),
        ({"cooldown": -1}, "cooldown must not be negative, got -1"),
        ({"cooldown": 0}, "cooldown must be greater than zero"),
        ({"cooldown": None}, "breaker 'stripe'"),
        ({"on": ()}, "it would never open"),
        ({"on": "Down"}, "got 'Down'"),
        ({"on": (int,)}, "must list exceptions and error classes"),
        ({"on": 5}, "got 5"),
        ({"on": Down()}, "must list exceptions and error classes"),
    ],
)
def test_nonsense_is_refused_at_once(options: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        Breaker(**{"name": "stripe"} | options)


@pytest.mark.parametrize(
    ("on", "error", "error_class", "counts"),
    [
        (None, Down(), ErrorClass.TRANSIENT, True),
        (None, Down(), ErrorClass.SYSTEM, True),
        (None, Down(), ErrorClass.PERMANENT, False),
        (None, Down(), ErrorClass.RESOURCE, False),
        (Down, FarDown(), ErrorClass.TRANSIENT, True),
        (Down, ValueError(), ErrorClass.TRANSIENT, False),
        (Down, ValueError(), ErrorClass.SYSTEM, False),
        ([Down], Down(), ErrorClass.PERMANENT, True),
        (Down, ExceptionGroup("two", [ValueError(), Down()]), ErrorClass.TRANSIENT, True),
        (ErrorClass.SYSTEM, Down(), ErrorClass.TRANSIENT, False),
        (ErrorClass.SYSTEM, Down(), ErrorClass.SYSTEM, True),
        ((ErrorClass.SYSTEM, Down), Down(), ErrorClass.TRANSIENT, True),
    ],
)
def test_failures_count_by_error_class_or_by_the_named_exceptions(
    on: Any, error: BaseException, error_class: ErrorClass, *, counts: bool
) -> None:
    rule = (Breaker("stripe") if on is None else Breaker("stripe", on=on)).rule
    assert rule.counts(error, error_class) is counts


def test_only_system_errors_count_for_the_breaker_that_a_kind_has_of_its_own() -> None:
    rule = own_rule("k" * 200)
    assert rule.name == "kind:" + "k" * 200
    assert rule.counts(Down(), ErrorClass.SYSTEM)
    assert not rule.counts(Down(), ErrorClass.TRANSIENT)
