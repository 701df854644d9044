"""Owns the Lua files: each script, made of its own body and the functions that it needs.

A script's source runs anew in every call, so a function that it does not need costs time. Files say
what they need in a line `-- requires:`; a test compares that with what they use. Functions that
only one branch needs are made in it, where a line `-- here:` names them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from windlass.store.redis.connections.script import Script

_DIRECTORY = "lua"
_LIBRARY = "library"
_NAME, _REQUIRES, _HERE, _FLAGS = "-- name: ", "-- requires: ", "-- here: ", "-- flags: "


class Part(NamedTuple):
    """A function of the library, or the body of a script, and what it needs."""

    requires: tuple[str, ...]
    flags: str
    source: str
    here: tuple[str, ...] = ()
    """What it needs in the place of the line that names it, and nowhere else."""


class LuaFiles(NamedTuple):
    """All functions of the library in the order of their definition, and all scripts."""

    functions: Mapping[str, Part]
    scripts: Mapping[str, Part]


@cache
def load_files() -> LuaFiles:
    """Read the Lua files."""
    directory = Path(__file__).parent / _DIRECTORY
    functions: dict[str, Part] = {}
    for file in ("formats", "indexes", "leases", "changes"):
        text = (directory / _LIBRARY / f"{file}.lua").read_text("utf-8")
        for block in text.split(_NAME)[1:]:
            name, _, source = block.partition("\n")
            functions[name] = _part(source)
    scripts = {
        file.stem: _part(file.read_text("utf-8")) for file in sorted(directory.glob("*.lua"))
    }
    return LuaFiles(MappingProxyType(functions), MappingProxyType(scripts))


@cache
def load_scripts(*, sharded: bool = False, clock: str = "") -> Mapping[str, Script]:
    """Return the scripts by name; `sharded` wakes workers as a cluster wants it.

    `clock` is the source of another function `clock`, for tests.
    """
    lua = load_files()
    functions = {name: part.source for name, part in lua.functions.items()}
    if clock:
        functions["clock"] = clock
    publish = "SPUBLISH" if sharded else "PUBLISH"
    return MappingProxyType(
        {
            name: Script.of(name, _composed(script, lua.functions, functions, publish))
            for name, script in lua.scripts.items()
        }
    )


def needed(part: Part, functions: Mapping[str, Part]) -> set[str]:
    """Return the names of all functions that a part needs, directly or not."""
    return _closure((*part.requires, *part.here), functions)


def _closure(names_of: Sequence[str], functions: Mapping[str, Part]) -> set[str]:
    names: set[str] = set()
    todo = list(names_of)
    while todo:
        name = todo.pop()
        if name not in names:
            names.add(name)
            todo += functions[name].requires
    return names


def _composed(
    script: Part, functions: Mapping[str, Part], sources: Mapping[str, str], publish: str
) -> str:
    at_once = _closure(script.requires, functions)
    later = needed(script, functions) - at_once
    first = f"#!lua flags={script.flags}" if script.flags else "#!lua"
    parts = [first]
    if "wake" in at_once | later:
        parts.append(f"local PUBLISH = '{publish}'")
    # In the order of the library: a local function must be defined before its first use.
    parts += [sources[name] for name in functions if name in at_once]
    inner = "\n".join(sources[name] for name in functions if name in later)
    return "\n".join([*parts, script.source.replace(_HERE, inner), ""])


def _part(text: str) -> Part:
    requires: tuple[str, ...] = ()
    here: tuple[str, ...] = ()
    flags = ""
    lines = []
    for line in text.splitlines():
        if line.startswith(_REQUIRES):
            requires = tuple(line.removeprefix(_REQUIRES).split())
        elif line.startswith(_FLAGS):
            flags = line.removeprefix(_FLAGS).strip()
        elif (code := line.strip()).startswith(_HERE):
            here = tuple(code.removeprefix(_HERE).split())
            lines.append(_HERE)
        elif code and not code.startswith("--"):
            lines.append(code)
    return Part(requires, flags, "\n".join(lines), here)
