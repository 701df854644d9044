"""Owns the names that `windlass new` accepts for packages and handlers."""

from __future__ import annotations

import keyword
import re
import sys

_NAME = re.compile(r"[a-z](?:[a-z0-9_]*[a-z0-9])?")
_MAX_LENGTH = 30
"""Longer names would break lines of the templates."""
_TAKEN = {
    *("annotated_types", "anyio", "click", "h11", "idna", "markupsafe", "sqlparse"),
    *("asgiref", "django", "django_tasks", "docs", "dotenv", "fastapi", "handler", "handlers"),
    *("hiredis", "httpx2", "jinja2", "msgspec", "mypy", "psycopg", "pydantic", "pytest", "rich"),
    *("ruff", "src", "starlette", "tests", "typer", "uvicorn", "windlass"),
}
"""Modules and directories that a project has besides its own package."""
_NAMES_IN_TESTS = {"app", "jobs", "task", "travel"}
"""What the module and the tests of a handler call other things."""


def check_package_name(name: str) -> str:
    """Return the name of a package, or of a package inside others: `shop.jobs`.

    Raises:
        ValueError: it is no name, or the name of another module; the message suggests one.
    """
    first, *inner = name.split(".")
    if first in sys.stdlib_module_names or first in _TAKEN:
        raise ValueError(
            f"NAME must not be that of a module which the project imports, got {name!r}; "
            f"write {_suggestion(first)}"
        )
    for part in (first, *inner):
        _check_part("NAME", part, name)
    return name


def check_handler_name(name: str) -> str:
    """Return the name of a handler, which is also that of its module.

    Raises:
        ValueError: it is no name; the message suggests one.
    """
    if name in _NAMES_IN_TESTS:
        raise ValueError(
            f"the name of a handler must not be one that its tests use, got {name!r}; write "
            f"run_{name}"
        )
    _check_part("the name of a handler", name, name)
    return name


def _check_part(subject: str, part: str, whole: str) -> None:
    if not _NAME.fullmatch(part) or keyword.iskeyword(part):
        raise ValueError(
            f"{subject} must be lower-case letters, digits and underscores, begin with a letter, "
            f"end with no underscore and be no keyword of Python, got {whole!r}; "
            f"write {_suggestion(part)}"
        )
    if len(part) > _MAX_LENGTH:
        raise ValueError(
            f"{subject} must have at most {_MAX_LENGTH} characters, got {len(part)} in {whole!r}; "
            "choose a shorter one"
        )


def _suggestion(part: str) -> str:
    """Return a valid name that resembles what was typed."""
    spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", part).lower()
    plain = re.sub(r"[^a-z0-9]+", "_", spaced).strip("_").lstrip("_0123456789")
    if not plain:
        return "shop, for example"
    taken = plain in sys.stdlib_module_names or plain in _TAKEN or keyword.iskeyword(plain)
    return f"{plain}_jobs" if taken else plain
