"""Owns the remedies that `windlass doctor` gives for an error.

Errors say `<problem>; <remedy>`. Where one does not, the remedy follows from its type.
"""

from __future__ import annotations

import re
from pathlib import Path

from windlass.core.errors import ConfigError, StoreUnavailable, WindlassError
from windlass.core.failures.describe import where
from windlass.core.jobs.queries import Finding

_INSTALL = re.compile(r"pip install .+")
_FRAME = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+)')
_REMEDY = re.compile(r"(?P<problem>.+)(?:; |\): )(?P<remedy>\S.+)", re.DOTALL)
_NO_REMEDY = ("it was ", "it is ", "there ")
"""The beginnings of a last part of a message that is no remedy."""


def of_load(error: WindlassError) -> Finding:
    """Return why an app cannot be loaded, and the remedy."""
    said = str(error)
    if said.startswith("importing "):
        return Finding(problem=said, remedy=_of_import(error))
    if said.startswith("there is no module"):
        remedy = "run this in the module's directory, or add that to PYTHONPATH"
        return Finding(problem=said, remedy=remedy)
    return _split(said) or Finding(problem=said, remedy=_of_setting(said))


def of_store(error: WindlassError, source: str) -> Finding:
    """Return the problem of a store, and the remedy; its URL came from a `source`."""
    said = str(error)
    if (install := _INSTALL.search(said)) is not None:
        return Finding(problem=said[: install.start()].rstrip(" :;"), remedy=install[0])
    where = f"correct its URL, which comes from {source}"
    if isinstance(error, StoreUnavailable) and "; " not in said:
        return Finding(problem=said, remedy=f"start the server, or {where}")
    return _split(said) or Finding(problem=said, remedy=where)


def _of_import(error: WindlassError) -> str:
    said = str(error.__cause__)
    if isinstance(error.__cause__, ConfigError) and said.partition(" ")[0].isupper():
        # It begins with a variable of the environment: the code that reads it is right.
        parts = _split(said)
        return _of_setting(said) if parts is None else parts.remedy
    frames = list(_FRAME.finditer(where(error.__cause__ or error)))
    if not frames:
        return "correct the module's name, or run this in its directory"
    # An exception in a package is most likely caused by the line of the user's code that called it.
    near = [each for each in frames if Path(each["file"]).is_relative_to(Path.cwd())] or frames
    return f"fix {near[-1]['file']}, line {near[-1]['line']}"


def _of_setting(said: str) -> str:
    """Return how to correct the setting, or the file of settings, that a message begins with."""
    if (setting := said.partition(" must be ")[0]) != said:
        source, _, name = setting.rpartition(": ")
        return f"correct {name} in {source}" if source else f"correct {name}"
    if (file := said.partition(" cannot be read: ")[0]) != said:
        variable, _, name = file.partition(" = ")
        return f"correct {variable}, or the file it names" if name else f"correct {file}"
    if (unknown := said.partition(" is not a ")[0]) != said:
        return f"remove {unknown}, or correct its name"
    return "correct the setting that the message names"


def _split(said: str) -> Finding | None:
    """Split a message where its remedy begins; None if it has none."""
    parts = _REMEDY.fullmatch(said)
    if parts is None or parts["remedy"].startswith(_NO_REMEDY):
        return None
    opened = parts["problem"].count("(") > parts["problem"].count(")")
    return Finding(problem=parts["problem"] + (")" if opened else ""), remedy=parts["remedy"])
