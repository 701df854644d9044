"""Scripts are made of what they declare, and say what they may do when memory is full."""

from __future__ import annotations

import re

import pytest

from windlass.store.redis.scripting.script_files import load_files, load_scripts, needed

FILES = load_files()
VARIABLES = {
    "begin": ("P", "call", "now", "NIL", "STATE", "RUNNING", "TOKEN"),
    "moves": ("moves",),
    "memory": ("heads", "bodies", "results", "dirty", "counts", "lanes", "dues", "woken"),
}
"""What parts define that are not functions of their own name."""
REFUSED_WHEN_FULL = {"commit", "enqueue", "enqueue_any", "enqueue_one", "send", "stream_append"}
_TEXT = re.compile(r"'(?:[^'\\]|\\.)*'")


def uses(code: str, name: str) -> bool:
    """Return whether code uses what a part of the library defines, and does not define it."""
    names = VARIABLES.get(name, ())
    if not names:
        is_called = re.search(rf"(?<![\w.:]){name}\(", code) is not None
        return is_called and f"function {name}(" not in code
    is_local = rf"local [\w, ]*\b({'|'.join(names)})\b"
    used = re.search(rf"(?<![\w.:])({'|'.join(names)})(?!\w)", code)
    return used is not None and re.search(is_local, code) is None


@pytest.mark.parametrize("name", [*FILES.functions, *(f"{name}.lua" for name in FILES.scripts)])
def test_a_part_requires_all_that_it_uses(name: str) -> None:
    """Prevents: a script that fails in a branch that is rarely taken."""
    part = FILES.functions.get(name) or FILES.scripts[name.removesuffix(".lua")]
    code = _TEXT.sub("''", part.source)
    missing = {other for other in FILES.functions if other != name and uses(code, other)}
    assert missing <= needed(part, FILES.functions)


@pytest.mark.parametrize("name", FILES.scripts)
def test_only_what_adds_is_refused_when_memory_is_full(name: str) -> None:
    flags = FILES.scripts[name].flags
    assert (flags == "") == (name in REFUSED_WHEN_FULL)
    assert flags in ("", "allow-oom", "no-writes")


def test_a_script_has_no_function_that_it_does_not_need() -> None:
    scripts = load_scripts()
    assert b"local function leave" not in scripts["sweep"].source
    assert b"local function leave" in scripts["settle"].source
