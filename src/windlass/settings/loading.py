"""Owns which value wins, and where it came from.

Flags win over the environment, that over `.env`, that over `windlass.toml`, that over the defaults.
Within one of these, `WINDLASS_...` wins over the other names. Only values that win are read.
Nothing is kept between calls; `${NAME}` inside `.env` is python-dotenv's to expand.
"""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any, cast

from windlass.core.errors import ConfigError
from windlass.settings.files import read_dotenv, read_toml
from windlass.settings.model import Settings
from windlass.settings.readers import Unit
from windlass.settings.rules import RULES, Rule

_UNUSED = ("REDIS_URL",)
_OTHERS = ("WINDLASS_APP", "WINDLASS_CONFIG", "WINDLASS_DEBUG")
"""Variables that are no settings: where those are, which app is meant, and how to fail."""
DEFAULT = "default"
"""The source of a setting that nobody has given."""
_REPR = reprlib.Repr()
_REPR.maxstring = _REPR.maxother = 80


@dataclass(frozen=True, kw_only=True)
class Setting:
    """A value that won, where it came from, and how to show it without giving a password away."""

    value: object = field(repr=False)
    source: str
    shown: str


@dataclass(frozen=True, kw_only=True)
class Resolved:
    """The settings, where each came from, and what is set but means nothing to this release."""

    settings: Settings
    sources: Mapping[str, Setting]
    warnings: tuple[str, ...] = ()
    unused: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class SettingHelp:
    """What a person wants to know about a setting."""

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
    """Find the value of every setting; a flag that is None or an empty list was not given.

    `code` is what a program gave as arguments; only flags win over that.

    Raises:
        ConfigError: a value is wrong, a file cannot be read, or two names contradict each other.
    """
    dotenv = read_dotenv(directory / ".env")
    file, toml = read_toml(directory, environ.get("WINDLASS_CONFIG", dotenv.get("WINDLASS_CONFIG")))
    given, coded = _given(flags), _given(code)
    _refuse_unknown(given, "a flag")
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
        unused=tuple(label for label, name in variables if name in _UNUSED),
    )


def describe_settings() -> Iterator[SettingHelp]:
    """Tell about every setting, for the docs and `--help`."""
    for name, rule in RULES.items():
        yield SettingHelp(
            field=name,
            variable=_variable(name),
            other_names=rule.names,
            default=rule.default or rule.show(getattr(Settings(), name)),
            accepts=rule.accepts("seconds"),
            doc=rule.doc,
        )


@dataclass(frozen=True)
class _Layer:
    """One place where values are given: by field names, or by the names of variables."""

    values: Mapping[str, object]
    label: Callable[[str], str]
    by_field: bool = False

    def names(self, name: str, rule: Rule) -> list[str]:
        """Tell by which names the setting is given here."""
        own = name if self.by_field else _variable(name)
        others = () if self.by_field else rule.names
        return [own] if own in self.values else [each for each in others if each in self.values]

    def read(self, name: str, rule: Rule) -> object:
        """Read the value that is given here by a name."""
        unit: Unit = rule.unit if name in rule.names else "seconds"
        try:
            return rule.read(self.values[name], unit)
        except (TypeError, ValueError):
            # Without its cause, which would show the value, and that may hold a password.
            told = f"{self.label(name)} (not shown)" if rule.secret else self.tell(name)
            raise ConfigError(f"{told} is wrong: write {rule.accepts(unit)}") from None

    def tell(self, name: str) -> str:
        return f"{self.label(name)} = {_REPR.repr(self.values[name])}"


def _resolve(name: str, rule: Rule, layers: tuple[_Layer, ...], default: object) -> Setting:
    for layer in layers:
        names = layer.names(name, rule)
        values = [layer.read(given, rule) for given in names]
        if any(value != values[0] for value in values):
            told = " and ".join(layer.tell(given) for given in names)
            remedy = f"keep one of them, or set {_variable(name)}, which wins"
            raise ConfigError(f"{told} give {name} different values: {remedy}")
        if values:
            source = layer.label(names[0])
            return Setting(value=values[0], source=source, shown=rule.show(values[0]))
    return Setting(value=default, source=DEFAULT, shown=rule.show(default))


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
            yield f"{label} is set, and there is no such setting{hint}"


def _nearest(name: str) -> str | None:
    """Find the field that somebody may have meant, by its own name or another."""
    meant = {other.lower(): known for known, rule in RULES.items() for other in rule.names}
    meant |= {known: known for known in RULES}
    near = get_close_matches(name.lower().replace("-", "_"), meant, n=1)
    return meant[near[0]] if near else None


def _variable(name: str) -> str:
    return f"WINDLASS_{name.upper()}"
