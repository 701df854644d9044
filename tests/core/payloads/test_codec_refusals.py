"""A payload that does not fit is refused by the name of its field, without its values."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any, Literal
from uuid import UUID

import msgspec
import pydantic
import pytest

from tests.core.payloads.order_types import (
    CLOCK,
    Address,
    Basket,
    Clock,
    Colour,
    Options,
    Order,
    Point,
    codec,
    codec_of,
    refused,
    with_defaults,
)
from windlass.core.errors import ConfigError, PayloadInvalid
from windlass.core.failures.describe import describe


@dataclass(frozen=True)
class Place:
    """A value that may be a key in Python."""

    shelf: int


# -- what does not fit, and by which name (C8) -----------------------------------------------------


@pytest.mark.parametrize(
    ("hint", "value", "field"),
    [
        (int, "1", "x"),
        (int, 1.5, "x"),
        (int, True, "x"),
        (str, 1, "x"),
        (datetime, "yesterday", "x"),
        (UUID, "not-an-id", "x"),
        (Decimal, "ten", "x"),
        (Colour, "green", "x"),
        (Literal["a", "b"], "c", "x"),
        (int | None, "1", "x"),
        (list[int], [1, "2"], "x[1]"),
        (list[list[int]], [[1], [2, None]], "x[1][1]"),
        (dict[str, int], {"a": "1"}, "x[...]"),
        (dict[int, int], {"a": 1}, "x"),
        (tuple[int, str], (1, 2), "x[1]"),
        (Point, {"x": 1, "y": "2"}, "x.y"),
        (Point, {"y": 2}, "x"),
        (Address, {"street": 5}, "x.street"),
        (list[Address], [{"street": "a"}, {"street": 5}], "x[1].street"),
        (Options, {"size": "big"}, "x.size"),
        (Options, {}, "x"),
        (Order, {"number": "many"}, "x.number"),
        (Order, {}, "x.number"),
        (Order, 3, "x"),
        (list[Order], [{"number": 1}, {"number": "many"}], "x[1].number"),
        (Basket, {"orders": [{"number": 1}, {"number": "many"}]}, "x.orders.1.number"),
    ],
    ids=repr,
)
def test_a_value_that_does_not_fit_is_refused_by_the_name_of_its_field(
    hint: Any, value: Any, field: str
) -> None:
    error = refused(value, hint)
    assert error.field == field
    assert error.kind == "kind"
    assert error.reason


@pytest.mark.parametrize(
    "value",
    [
        object(),
        [object()],
        {"inner": object()},
        {(1, 2): 3},
        CLOCK,
        print,
        ValueError("an exception"),
        1j,
        10**5_000,
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_value_without_a_json_form_is_refused_by_the_name_of_its_argument(value: Any) -> None:
    one = codec_of(with_defaults)
    with pytest.raises(PayloadInvalid) as caught:
        one.encode({"x": 1, "clock": value})
    assert caught.value.field.startswith("clock")


@pytest.mark.parametrize(
    "key",
    [None, (1, 2), (1, object()), frozenset({1}), Place(1)],
    ids=lambda key: type(key).__name__,
)
def test_a_key_without_a_json_form_is_not_taken_for_a_value(key: Any) -> None:
    # As values, these have a JSON form: the message would be untrue of them.
    with pytest.raises(PayloadInvalid) as caught:
        codec_of(with_defaults).encode({"x": 1, "clock": [{1: 2, key: 3}]})
    named = f"a key of type {type(key).__qualname__} has no JSON form; use text as the key"
    assert (caught.value.field, caught.value.reason) == ("clock", named)


def test_an_unknown_argument_is_refused_by_its_name() -> None:
    with pytest.raises(PayloadInvalid) as caught:
        codec(int).encode({"x": 1, "colour": "red"})
    assert caught.value.field == "colour"


def test_a_missing_argument_is_refused_by_its_name() -> None:
    with pytest.raises(PayloadInvalid) as caught:
        codec(int).encode({})
    assert caught.value.field == "x"


class Picky(msgspec.Struct):
    """Refuses everything, each value in another way."""

    how: str

    def __post_init__(self) -> None:
        raise {
            "value": ValueError("too picky"),
            "errors": OddlyShaped("too picky"),
            "key": KeyError("too picky"),
            "runtime": RuntimeError("too picky"),
        }[self.how]


class OddlyShaped(ValueError):
    """Looks like pydantic's error to whoever asks only for its attribute."""

    errors = ("one", "two")


class PickyModel(pydantic.BaseModel):
    how: str

    @pydantic.field_validator("how")
    @classmethod
    def refuse(cls, how: str) -> str:
        Picky(how)
        return how


@pytest.mark.parametrize("hint", [Picky, PickyModel])
@pytest.mark.parametrize("how", ["value", "errors", "key", "runtime"])
def test_any_exception_of_a_validator_refuses_the_payload(hint: Any, how: str) -> None:
    """Else a bad payload is retried like a passing fault instead of going to the dead letter."""
    with pytest.raises(PayloadInvalid, match="too picky"):
        codec(hint).decode(b'{"x":{"how":"%s"}}' % how.encode())


@pytest.mark.parametrize("hint", [Clock, list[Clock], Callable[[], int]], ids=repr)
def test_a_type_that_no_payload_can_hold_is_refused_by_a_typed_error(hint: Any) -> None:
    with pytest.raises((ConfigError, PayloadInvalid)):
        codec(hint).encode({"x": 1})


def test_object_is_as_good_as_any() -> None:
    one = codec(object)
    assert one.decode(one.encode({"x": [1]})) == {"x": [1]}


def test_hints_that_contradict_each_other_are_refused_where_they_are_registered() -> None:
    with pytest.raises(ConfigError, match="kind"):
        codec(Point | Address)


def test_an_error_about_a_payload_does_not_repeat_its_values() -> None:
    """It is logged, and payloads stay out of logs (B5); pydantic quotes them in its own message."""
    secret = "2retnuh"[::-1]  # Not spelt out: the traceback shows the lines of this test.
    with pytest.raises(PayloadInvalid) as caught:
        codec(Order).encode({"x": {"number": secret}})
    info = describe(caught.value)
    assert secret not in info.message
    assert secret not in info.traceback
