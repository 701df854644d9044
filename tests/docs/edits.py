"""Owns the edits of a page: blocks that change a file which the reader has written before.

The first line of such a block says where it belongs: `# in shop.py, at the top`, among its imports;
`at the end`; `below app`, after that definition; `instead of pay`, in place of that definition.
"""

from __future__ import annotations

import ast
import re
from typing import NamedTuple

_EDIT = re.compile(r"# in (\w+\.py), (?:at the (top|end)|(below|instead of) (\w+))\n")


class Edit(NamedTuple):
    """A change of a file of the reader."""

    file: str
    place: str
    name: str
    text: str

    def apply(self, program: str) -> str:
        """Return a program with this change, as somebody would make it who does what it says."""
        lines = program.splitlines(keepends=True)
        if self.place == "end":
            return f"{program.rstrip()}\n\n\n{self.text}"
        if self.place == "top":
            begin = end = _first_import(program)
        else:
            begin, end = _definition(program, self.name)
        if self.place == "below":
            begin = end
        return "".join([*lines[:begin], self.text, *lines[end:]])


def edit_of(block: str) -> Edit | None:
    """Return the change that a block asks for; None if it is a whole file or a program."""
    match = _EDIT.match(block)
    if match is None:
        return None
    return Edit(match[1], match[2] or match[3], match[4] or "", block[match.end() :])


def outline(program: str) -> tuple[set[str], list[str]]:
    """Return the imports of a program, one by one, and its other lines, whatever their distance."""
    lines = program.splitlines()
    imports = set()
    for node in ast.parse(program).body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            source = f"from {node.module} " if isinstance(node, ast.ImportFrom) else ""
            imports |= {f"{source}import {alias.name}" for alias in node.names}
            lines[node.lineno - 1 : node.end_lineno] = [""] * _height(node)
    return imports, [line for line in lines if line]


def _height(node: ast.stmt) -> int:
    return (node.end_lineno or node.lineno) - node.lineno + 1


def _first_import(program: str) -> int:
    for node in ast.parse(program).body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            return node.lineno - 1
    raise LookupError("the program has no imports, so there is no place for more")


def _definition(program: str, name: str) -> tuple[int, int]:
    """Return the first line of a definition, with its decorators, and the line after it."""
    for node in ast.parse(program).body:
        if name in _names(node):
            decorators = getattr(node, "decorator_list", [])
            begin = min([node.lineno, *(each.lineno for each in decorators)])
            return begin - 1, node.end_lineno or node.lineno
    raise LookupError(f"the program defines no {name} to change")


def _names(node: ast.stmt) -> set[str]:
    match node:
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
            return {node.name}
        case ast.Assign():
            return {target.id for target in node.targets if isinstance(target, ast.Name)}
    return set()
