"""Owns the page of JSON fields: the documents of `--json` and of the API."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import windlass
from tools.site.reference.chapter import Chapter, Page
from tools.site.reference.markdown import code, marked, slug, table
from windlass.core.document_fields import COMMANDS, EACH, ROUTES, SHAPES, field_of
from windlass.web.actions.registry import ACTIONS
from windlass.web.api.routes import ENDPOINTS, PREFIX

_PATH = "reference/json.md"
_SOURCES = (
    *("core/documents.py", "core/audit.py", "core/deploys.py", "core/jobs/bulk.py"),
    *("core/workflows/step_rows.py", "app/workflows/flow_rows.py", "app/control/why.py"),
    *("app/doctor/report.py", "app/deploy_check/report.py", "cli/actions/run_here.py"),
)
"""Modules that make documents, beside the commands."""
_MAKERS = ("_facts", "_summary", "_parts", "document", "_document", "_attempt", "_error")
"""How the functions are called that make documents."""


def _names() -> Iterator[str]:
    """Yield the fields that the code writes, as they stand in its source, and those of routes."""
    source = Path(windlass.__file__).parent
    for path in [*(source / each for each in _SOURCES), *(source / "cli/commands").glob("*.py")]:
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if _makes_document(node):
                yield from _keys(node)
    for endpoint in ENDPOINTS:
        yield from endpoint.keys


def _makes_document(node: ast.AST) -> bool:
    if isinstance(node, ast.FunctionDef):
        return node.name.endswith(_MAKERS)
    return isinstance(node, ast.Call) and ast.unparse(node.func) == "show.document"


def _keys(node: ast.AST) -> Iterator[str]:
    for each in ast.walk(node):
        if isinstance(each, ast.Dict):
            for key in each.keys:
                if isinstance(key, ast.Constant) and isinstance(key.value, str):
                    yield key.value


def _anchor(name: str) -> str:
    return f"field-{name}"


_INTRO = (
    "# JSON fields\n\n"
    "The documents that commands write with `--json`, and with which the API answers. Fields are "
    "stable: they are added, and not renamed. Times are ISO 8601 in UTC, durations are seconds; "
    "secrets are masked.\n\n"
    "## Documents of commands\n"
)
_API = (
    "## Documents of the API\n\n"
    f"Below `{PREFIX}`; parameters are in `{PREFIX}/openapi.json`. "
    "[Who may open it](../web.md#who-may-open-it).\n"
)
_ACTIONS = (
    "## Actions of the API\n\n"
    f"A POST to `{PREFIX}/actions/NAME` with a JSON object, whose fields are in "
    f"`{PREFIX}/openapi.json`; the answer has a `message`.\n"
)


def _pages() -> list[Page]:
    of_commands = [
        (code(f"windlass {name} --json"), _linked(*shapes)) for name, shapes in COMMANDS.items()
    ]
    of_routes = [(code(each.path), each.summary, _linked(ROUTES[each.path])) for each in ENDPOINTS]
    parts = [_INTRO, table(["command", "document"], of_commands)]
    parts += [_API, table(["route", "what it has", "document"], of_routes)]
    of_actions = [(code(each.name), each.label, each.role.value) for each in ACTIONS.values()]
    parts += [_ACTIONS, table(["action", "its button on the page", "role"], of_actions)]
    seen: set[str] = set()
    for shape in sorted(SHAPES):
        parts.append(f"## {shape.capitalize()} {{ #{slug(shape)} }}\n")
        parts.append(table(["field", "what it is"], _rows(shape, seen)))
    return [Page(_PATH, "\n".join(parts))]


def _rows(shape: str, seen: set[str]) -> Iterator[tuple[str, str]]:
    for name, given in SHAPES[shape].items():
        field = field_of(given)
        of = f" → {_linked(field.shape)}" if field.shape else ""
        shown = "*any name*" if name == EACH else code(name)
        if name not in seen:
            seen.add(name)
            shown = marked(_anchor(name), shown)
        yield shown, field.text + of


def _linked(*shapes: str) -> str:
    return " or ".join(f"[{each}](#{slug(each)})" for each in shapes)


CHAPTER = Chapter(
    subject="JSON field",
    title="JSON fields",
    summary="every field of the documents of `--json` and of the API",
    path=_PATH,
    names=_names,
    anchor=_anchor,
    pages=_pages,
    remedy="say what it means in windlass.core.document_fields",
)
