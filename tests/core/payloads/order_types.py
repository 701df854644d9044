"""Owns the types of arguments that the tests of payloads use."""

from __future__ import annotations

import dataclasses
import inspect
import math
from collections.abc import Callable
from enum import Enum
from typing import Any, NotRequired, TypedDict

import msgspec
import pydantic
import pytest

from windlass.core.errors import PayloadInvalid
from windlass.core.payloads.codec import PayloadCodec


@dataclasses.dataclass
class Point:
    x: int
    y: int = 0


class Address(msgspec.Struct):
    street: str
    zip_code: str | None = None


class Order(pydantic.BaseModel):
    number: int
    total: float | None = None
    note: str = ""


def codec(hint: Any, default: Any = inspect.Parameter.empty) -> PayloadCodec:
    """Make the codec of a handler with one parameter `x`."""
    parameter = inspect.Parameter(
        "x", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=hint, default=default
    )
    return PayloadCodec.for_parameters("kind", {"x": parameter})


def refused(value: Any, hint: Any = Any) -> PayloadInvalid:
    """Return the error with which a value is refused at enqueue."""
    with pytest.raises(PayloadInvalid) as caught:
        codec(hint).encode({"x": value})
    return caught.value


def self_referring() -> list[Any]:
    endless: list[Any] = []
    endless.append(endless)
    return endless


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Options(TypedDict):
    size: int
    note: NotRequired[str]


class Basket(pydantic.BaseModel):
    orders: list[Order]


def codec_of(function: Callable[..., object]) -> PayloadCodec:
    return PayloadCodec.for_parameters(
        "kind", inspect.signature(function, eval_str=True).parameters
    )


# -- defaults --------------------------------------------------------------------------------------


class Clock:
    """Something that has no JSON form."""


CLOCK = Clock()
SHARED: list[int] = []


def with_defaults(
    x: int,
    names: list[int] = SHARED,
    order: Order = Order(number=7),  # noqa: B008 - a default that a user may well write
    clock: Any = CLOCK,
    typed_clock: Clock = CLOCK,
    out: Callable[..., None] = print,
    ratio: float = math.nan,
) -> None: ...
