"""Owns the reading of docstrings: of classes, of their attributes, of arguments, of remedies."""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Callable
from itertools import pairwise
from typing import Any


def attribute_docs(cls: type[Any]) -> dict[str, str]:
    """Return the texts below the attributes of a class, by their names."""
    (node,) = ast.parse(textwrap.dedent(inspect.getsource(cls))).body
    found: dict[str, str] = {}
    body: list[Any] = getattr(node, "body", [])
    for before, after in pairwise(body):
        target = before.targets[0] if isinstance(before, ast.Assign) else None
        target = before.target if isinstance(before, ast.AnnAssign) else target
        is_text = isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)
        if isinstance(target, ast.Name) and is_text:
            found[target.id] = " ".join(str(ast.literal_eval(after.value)).split())
    return found


def section(doc: str, title: str) -> str:
    """Return the body of a section such as `Args:`, dedented; empty without one."""
    found = re.search(rf"^{title}:\n((?:[ ]+.*\n|\n)+)", f"{doc}\n", re.MULTILINE)
    return textwrap.dedent(found[1]).strip() if found else ""


def argument_docs(function: Callable[..., Any]) -> dict[str, str]:
    """Return what the section `Args:` says of each argument."""
    body = section(inspect.getdoc(function) or "", "Args")
    entries = re.findall(r"^(\w+): ((?:.*)(?:\n[ ]+.*)*)", body, re.MULTILINE)
    return {name: " ".join(text.split()) for name, text in entries}


def prose(doc: str) -> str:
    """Return a docstring without its sections."""
    return re.split(r"^(?:Args|Raises|Remedy|Example|Returns):\n", doc, flags=re.MULTILINE)[
        0
    ].strip()
