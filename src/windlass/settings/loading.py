"""Owns the precedence of settings, and the source of each value.

Flags win over the environment, that over `.env`, that over `windlass.toml`, that over the defaults.
Within one of these, `WINDLASS_...` wins over the other names. Only values that win are parsed. An
empty variable is not set: that is how compose files and CI systems leave one out. Nothing is kept
between calls; `${NAME}` inside `.env` is python-dotenv's to expand.
"""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, cast

from msgspec import Struct

from windlass.core.errors import ConfigError
from windlass.core.values.names import nearest
from windlass.settings.files import read_dotenv, read_toml
from windlass.settings.model import Settings
from windlass.settings.parsers import Unit
from windlass.settings.rules import RULES, Rule

_OTHERS = ("WINDLASS_ACTOR", "WINDLASS_APP", "WINDLASS_CONFIG", "WINDLASS_DEBUG")
"""Variables of Windlass that are not settings."""
DEFAULT = "default"
"""The source of a setting that is not given."""
_REPR = reprlib.Repr()
_REPR.maxstring = _REPR.maxother = 80


class Setting(Struct, frozen=True, kw_only=True):
    """A value, its source, and its text without passwords."""

    value: object
    source: str
    shown: str

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        """Leave out the value, which may contain a password."""
        return [("source", self.source), ("shown", self.shown)]

    def __repr__(self) -> str:
        return f"Setting(source={self.source!r}, shown={self.shown!r})"


class Resolved(Struct, frozen=True, kw_only=True):
    """The settings, the source of each, and warnings about variables that are no settings."""

    settings: Settings
    sources: Mapping[str, Setting]
    warnings: tuple[str, ...] = ()


class SettingHelp(Struct, frozen=True, kw_only=True):
    """The documentation of a setting."""

    field: str
    variable: str
    other_names: tuple[str, ...]
    default: str
    accepts: str
    doc: str


def load_settings(
    flags: Mapping[str, object] | None = None,
    *,
    code: Mapping[str, object] | None = None,
    environ: Mapping[str, str],
    directory: Path,
) -> Resolved:
    """Return the value of every setting; a flag that is None or an empty list is not given.

    `code` has the arguments of a program; only flags win over those.

    Raises:
        ConfigError: a value is wrong, a file cannot be read, or two names contradict each other.
    """
    environ, dotenv = _filled(environ), _filled(read_dotenv(directory / ".env"))
    file, toml = read_toml(directory, environ.get("WINDLASS_CONFIG", dotenv.get("WINDLASS_CONFIG")))
    given, coded = _given(flags), _given(code)
    _refuse_unknown(given, "an option of a worker")
    _refuse_unknown(coded, "a setting")
    _refuse_unknown(toml, f"a key of {file}")
    layers = (
        _Layer(given, lambda name: "--" + name.replace("_", "-"), by_field=True),
        _Layer(coded, lambda name: f"Windlass({name}=...)", by_field=True),
        _Layer(environ, lambda name: name),
        _Layer(dotenv, lambda name: f".env: {name}"),
        _Layer(toml, lambda name: f"{file}: {name}", by_field=True),
    )
    defaults = Settings()
    sources = {
        name: _resolve(name, rule, layers, getattr(defaults, name)) for name, rule in RULES.items()
    }
    values = cast("dict[str, Any]", {name: found.value for name, found in sources.items()})
    variables = [(layer.label(name), name) for layer in layers[2:4] for name in layer.values]
    return Resolved(
        settings=Settings(**values),
        sources=sources,
        warnings=tuple(_unknown_variables(variables)),
    )


def describe_settings() -> Iterator[SettingHelp]:
    """Yield the documentation of every setting, for the docs and `--help`."""
    for name, rule in RULES.items():
        yield SettingHelp(
            field=name,
            variable=_variable(name),
            other_names=(*rule.names, *rule.fallbacks),
            default=rule.default or rule.show(getattr(Settings(), name)),
            accepts=rule.accepts("seconds"),
            doc=rule.doc,
        )


class _Layer(Struct, frozen=True):
    """One source of values, by field names or by the names of variables."""

    values: Mapping[str, object]
    label: Callable[[str], str]
    by_field: bool = False

    def names(self, name: str, rule: Rule) -> list[str]:
        own = name if self.by_field else _variable(name)
        others = () if self.by_field else rule.names
        return [own] if own in self.values else [each for each in others if each in self.values]

    def read(self, name: str, rule: Rule) -> object:
        unit: Unit = rule.unit if name in rule.names else "seconds"
        try:
            return rule.read(self.values[name], unit)
        except (TypeError, ValueError):
            # Without its cause, which would show the value: it may have a password.
            got = "a value that is not shown" if rule.secret else _REPR.repr(self.values[name])
            raise ConfigError(
                f"{self.label(name)} must be {rule.accepts(unit)}, got {got}"
            ) from None

    def tell(self, name: str) -> str:
        return f"{self.label(name)} = {_REPR.repr(self.values[name])}"


def _resolve(name: str, rule: Rule, layers: tuple[_Layer, ...], default: object) -> Setting:
    for layer in layers:
        names = layer.names(name, rule)
        values = [layer.read(other, rule) for other in names]
        if any(value != values[0] for value in values):
            given = " and ".join(layer.tell(other) for other in names)
            remedy = f"keep one of them, or set {_variable(name)}, which takes precedence"
            raise ConfigError(f"{given} give {name} different values: {remedy}")
        if values:
            source = layer.label(names[0])
            return Setting(value=values[0], source=source, shown=rule.show(values[0]))
    for layer in layers:
        for other in () if layer.by_field else rule.fallbacks:
            if other in layer.values:
                value = layer.read(other, rule)
                return Setting(value=value, source=layer.label(other), shown=rule.show(value))
    return Setting(value=default, source=DEFAULT, shown=rule.show(default))


def _filled(variables: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in variables.items() if value.strip()}


def _given(values: Mapping[str, object] | None) -> dict[str, object]:
    return {name: raw for name, raw in (values or {}).items() if raw not in (None, [], (), {})}


def _refuse_unknown(values: Mapping[str, object], what: str) -> None:
    for name in values:
        if name not in RULES:
            near = _nearest(name)
            hint = f"did you mean {near!r}?" if near else f"there are: {', '.join(RULES)}"
            raise ConfigError(f"{_REPR.repr(name)} is not {what}; {hint}")


def _unknown_variables(variables: list[tuple[str, str]]) -> Iterator[str]:
    known = {*_OTHERS, *map(_variable, RULES)}
    for label, name in variables:
        if name.startswith("WINDLASS_") and name not in known:
            near = _nearest(name.removeprefix("WINDLASS_"))
            hint = f"; did you mean {_variable(near)}?" if near else ""
            yield f"{label} is set, but there is no such setting{hint}"


def _nearest(name: str) -> str | None:
    meant = {other.lower(): known for known, rule in RULES.items() for other in rule.names}
    meant |= {known: known for known in RULES}
    near = nearest(name.lower().replace("-", "_"), meant)
    return meant[near] if near else None


def _variable(name: str) -> str:
    return f"WINDLASS_{name.upper()}"
