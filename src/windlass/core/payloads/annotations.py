"""Owns how annotations are read at run time, and the message if they cannot be."""

from __future__ import annotations

import types
import typing
from typing import Any

from windlass.core.errors import ConfigError


def hints_of(thing: Any, *, extras: bool = True) -> dict[str, Any]:
    """Return the annotations of a function or class as types, with or without `Annotated`.

    Raises:
        ConfigError: one of them names what is not there at run time.
    """
    try:
        return typing.get_type_hints(thing, include_extras=extras)
    except NameError as error:
        name = getattr(thing, "__qualname__", repr(thing))
        raise ConfigError(
            f"the annotations of {name} cannot be evaluated at run time ({error}); import the "
            "names at module level, outside TYPE_CHECKING, since payloads and provided values are "
            "checked against them"
        ) from error


def parameter_hints_of(function: Any, *, extras: bool = True) -> dict[str, Any]:
    """Return the annotations of a function's parameters; that of its result is not evaluated.

    Often a result is named by an import that only type checkers see.

    Raises:
        ConfigError: one of them names what is not there at run time.
    """
    plain = getattr(function, "__func__", function)
    if not isinstance(plain, types.FunctionType):
        return hints_of(function, extras=extras)
    bare = types.FunctionType((lambda: None).__code__, plain.__globals__, plain.__name__)
    bare.__qualname__ = plain.__qualname__
    bare.__annotations__ = {
        name: hint for name, hint in plain.__annotations__.items() if name != "return"
    }
    return hints_of(bare, extras=extras)
