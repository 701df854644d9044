"""Owns how annotations are read at run time, and the message if they cannot be."""

from __future__ import annotations

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
