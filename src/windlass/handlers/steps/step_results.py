"""Owns how the results of steps are stored and read: by the annotation of the step's function.

What a step returns is read back once at its end, so that the first run gets what all others get.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from types import FunctionType
from typing import TYPE_CHECKING, Any

import msgspec

from windlass.core.errors import PayloadInvalid, PayloadTooLarge, ResultInvalid, StepError
from windlass.core.payloads.annotations import hints_of
from windlass.core.payloads.codec import MAX_PAYLOAD, decode_json, encode_json
from windlass.core.payloads.protobuf.hints import messages_in
from windlass.core.payloads.secret import Cipher, Sealing, holds_secrets
from windlass.core.values.sizes import human_size

if TYPE_CHECKING:
    from windlass.handlers.run_state import RunState

_NULL = b"null"
_NOTHINGS = (Any, type(None))
_ANYTHING: tuple[Any, bool] = (Any, False)
_shapes: dict[tuple[Any, Any], tuple[Any, bool]] = {}
"""Return types of functions, and whether they hold secrets, by code and annotation."""
_MAX_CACHED_SHAPES = 10_000


class StepResults:
    """The results of one run's steps; the run masks the secrets in them."""

    def __init__(self, run: RunState, cipher: Cipher | None) -> None:
        self._run = run
        self._kind = run.job.kind
        self._cipher = cipher

    def stored(self, name: str, function: Callable[..., Any], value: Any) -> tuple[bytes, Any]:
        """Return what a step has returned as JSON, and as every later run will see it.

        Raises:
            ResultInvalid: it has no JSON form, is too large, or does not fit the annotation.
        """
        hint, is_secret = _shape(function)
        if value is None and hint in _NOTHINGS:
            return _NULL, None
        what = f"{self._kind}, step {name}"
        try:
            encoded = encode_json(
                what,
                value,
                limit=MAX_PAYLOAD,
                sealing=self._sealing(is_secret=is_secret),
                messages=messages_in(hint),
            )
        except PayloadTooLarge as large:
            size, limit = human_size(large.size), human_size(MAX_PAYLOAD)
            remedy = (
                f"it has {size}, the limit is {limit}; store it elsewhere and return a reference"
            )
            raise ResultInvalid(what, remedy) from None
        except PayloadInvalid as refused:
            where = f"{refused.field}: " if refused.field else ""
            raise ResultInvalid(what, where + refused.reason) from None
        try:
            return encoded, self._decoded(encoded, hint, is_secret=is_secret)
        except (ValueError, NotImplementedError) as error:
            raise ResultInvalid(what, f"it does not match the return annotation: {error}") from None

    def recorded(self, name: str, function: Callable[..., Any], raw: bytes) -> Any:
        """Return what a step has returned in an earlier run.

        Raises:
            StepError: that does not fit the annotation any more.
        """
        hint, is_secret = _shape(function)
        try:
            return self._decoded(raw, hint, is_secret=is_secret)
        except (ValueError, NotImplementedError) as error:
            raise StepError(
                f"the recorded result of step {name!r} cannot be read as its function's return "
                f"annotation says ({error}); restore the annotation, or give the step another name"
            ) from None

    def _decoded(self, encoded: bytes, hint: Any, *, is_secret: bool) -> Any:
        result = decode_json(encoded, hint, sealing=self._sealing(is_secret=is_secret))
        if is_secret:
            self._run.mask_secrets_in(result)
        return result

    def _sealing(self, *, is_secret: bool) -> Sealing | None:
        if not is_secret or self._cipher is None:
            return None
        return Sealing(self._cipher, "step", self._kind)


def _shape(function: Callable[..., Any]) -> tuple[Any, bool]:
    """Return what a function returns by its annotation, and whether that holds secrets."""
    if not isinstance(function, FunctionType):
        function = _function_of(function)
    annotation = getattr(function, "__annotations__", {}).get("return", Any)
    if annotation is Any:
        return _ANYTHING
    # Not by the function, which may be made anew for each run, with all that it refers to.
    mark = (getattr(function, "__code__", function), annotation)
    try:
        shape = _shapes.get(mark)
    except TypeError:
        return _looked_up(function)
    if shape is None:
        if len(_shapes) >= _MAX_CACHED_SHAPES:
            _shapes.clear()
        shape = _shapes[mark] = _looked_up(function)
    return shape


def _function_of(thing: Callable[..., Any]) -> Callable[..., Any]:
    while isinstance(thing, functools.partial):
        thing = thing.func
    is_plain = inspect.isroutine(thing) or isinstance(thing, type)
    return thing if is_plain else type(thing).__call__


def _looked_up(function: Callable[..., Any]) -> tuple[Any, bool]:
    hint = hints_of(function).get("return", Any)
    try:
        msgspec.json.Decoder(hint)
    except TypeError:
        return _ANYTHING
    return hint, holds_secrets(hint)
