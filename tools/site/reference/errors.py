"""Owns the page of errors: when each is raised, and what to do about it."""

from __future__ import annotations

import inspect

import windlass
from tools.site.reference.chapter import Chapter, Page
from tools.site.reference.docstrings import prose, section
from windlass import WindlassError

_PATH = "reference/errors.md"


def _errors() -> dict[str, type[WindlassError]]:
    found = {name: getattr(windlass, name) for name in windlass.__all__}
    return {
        name: value
        for name, value in found.items()
        if inspect.isclass(value) and issubclass(value, WindlassError)
    }


def _anchor(name: str) -> str:
    return f"error-{name}"


def _ordered() -> list[str]:
    """Return the names of errors, each after its base class."""
    known = _errors()

    def path(name: str) -> list[str]:
        return [each.__name__ for each in reversed(known[name].__mro__) if each.__name__ in known]

    return sorted(known, key=path)


_INTRO = (
    "# Errors\n\n"
    "All are subclasses of `WindlassError`, and importable from `windlass`. Messages have the "
    "form *what is wrong; what to do*. Exceptions of your handlers are never changed: what "
    "becomes of their jobs is described in [Failures and retries]"
    "(../guide.md#failures-and-retries).\n"
)


def _pages() -> list[Page]:
    known = _errors()
    parts = [_INTRO]
    for name in _ordered():
        doc = inspect.cleandoc(known[name].__doc__ or "")
        remedy = " ".join(section(doc, "Remedy").split())
        if not remedy:
            continue
        bases = [each.__name__ for each in known[name].__bases__ if each.__name__ in known]
        above = " ".join(f"Subclass of [{each}](#{_anchor(each)})." for each in bases)
        parts.append(f"## {name} {{ #{_anchor(name)} }}\n\n{prose(doc)}\n\n{above}\n\n")
        parts.append(f"**What to do:** {remedy}\n")
    return [Page(_PATH, "\n".join(parts))]


CHAPTER = Chapter(
    subject="error",
    title="Errors and what to do",
    summary="every error with its cause and its remedy",
    path=_PATH,
    names=_errors,
    anchor=_anchor,
    pages=_pages,
    remedy="add a section `Remedy:` to its docstring",
)
