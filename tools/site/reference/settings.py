"""Owns the page of settings: names, variables, defaults, valid values."""

from __future__ import annotations

from msgspec.structs import fields

from tools.site.reference.chapter import Chapter, Page
from tools.site.reference.markdown import code, marked, table
from windlass.settings import describe_settings
from windlass.settings.model import Settings

_PATH = "reference/settings.md"


def _anchor(name: str) -> str:
    return f"setting-{name}"


def _pages() -> list[Page]:
    rows = [
        (
            marked(_anchor(each.field), code(each.field)),
            ", ".join(code(name) for name in (each.variable, *each.other_names)),
            each.default,
            f"{each.doc} Valid: {each.accepts}.",
        )
        for each in describe_settings()
        if each.doc
    ]
    text = (
        "# Settings\n\n"
        "Where settings come from, and which goes first: [Configuration](../configuration.md). In "
        "code, each is an argument of `Windlass(...)` by its name.\n\n"
    )
    return [Page(_PATH, text + table(["setting", "variables", "default", "what it is"], rows))]


CHAPTER = Chapter(
    subject="setting",
    title="Settings",
    summary="every setting with its variables, default and valid values",
    path=_PATH,
    names=lambda: [each.name for each in fields(Settings)],
    anchor=_anchor,
    pages=_pages,
    remedy="give it a rule with a text in windlass.settings.rules",
)
