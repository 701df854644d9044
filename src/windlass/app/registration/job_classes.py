"""Owns the options of job classes, as class attributes or as fields.

A class attribute holds for every job of the class. A field is part of the payload, so each job can
have its own.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from windlass.app.registration.job_options import DEFAULT, JobOptions, checked_aliases
from windlass.core.errors import ConfigError

FIELDS = ("max_retries", "timeout", "queue", "priority")
"""The options that may also be fields of a job class."""
DATA = frozenset(
    {
        *("name", "aliases", "errors", "key", "limit", "per", "units", "weights", "tags"),
        *("batch_size", "batch_timeout"),
    }
)
"""Fields with these names are data and nothing else: they are common words of payloads."""
_OPTIONS = JobOptions.__struct_fields__
_DEFAULTS = JobOptions()


def with_class_options(options: JobOptions, cls: type[Any]) -> JobOptions:
    """Return the options of a job class; those of `@app.job(...)` override its own.

    Raises:
        ConfigError: the default of a field cannot be known before a job is made, or a field is
            named like an option that all jobs of a class have in common, or an attribute like one
            that no class can have.
    """
    parameters = inspect.signature(cls).parameters
    own: dict[str, Any] = {}
    for name in _OPTIONS:
        if name in parameters:
            if name in FIELDS:
                own |= _default_of(name, parameters[name], cls)
            elif name not in DATA and _is_left_out(options, name):
                raise ConfigError(
                    f"the field {name!r} of {cls.__qualname__} must not be named like an option of "
                    f"all its jobs, got {name!r}; for the option, write it without an annotation "
                    f"or as @app.job({name}=...); for data, rename the field"
                )
        elif _is_plain(found := inspect.getattr_static(cls, name, DEFAULT)):
            own[name] = found
    for name in own.keys() & {"batch_size", "batch_timeout"}:
        raise ConfigError(
            f"{name} must be an option of a function, got {own[name]!r} as an attribute of "
            f"{cls.__qualname__}; make the handler a function, or rename the attribute"
        )
    if "aliases" in own:
        own["aliases"] = checked_aliases(own["aliases"])
    if options.retry is not None or options.max_retries is not None:
        own = {name: own[name] for name in own.keys() - {"retry", "max_retries"}}
    return replace(options, **{name: own[name] for name in own if _is_left_out(options, name)})


def option_fields(cls: type[Any]) -> tuple[str, ...]:
    """Return which fields of a job class are options of its jobs."""
    parameters = inspect.signature(cls).parameters
    return tuple(name for name in FIELDS if name in parameters)


def options_in(fields: tuple[str, ...], arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that the arguments of one job give."""
    return {name: arguments[name] for name in fields if arguments.get(name) is not None}


def _default_of(name: str, parameter: inspect.Parameter, cls: type[Any]) -> dict[str, Any]:
    default = parameter.default
    if default is parameter.empty or default is None:
        return {}
    if not isinstance(default, int | float | str) and type(default).__module__ != "datetime":
        raise ConfigError(
            f"the field {name!r} of {cls.__qualname__} is also an option of its jobs, so its "
            "default must be a plain value; give one, or rename the field"
        )
    return {name: default}


def _is_plain(found: object) -> bool:
    return found is not DEFAULT and not hasattr(type(found), "__get__")


def _is_left_out(options: JobOptions, name: str) -> bool:
    given, default = getattr(options, name), getattr(_DEFAULTS, name)
    return given is default or given == default
