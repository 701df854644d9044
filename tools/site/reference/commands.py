"""Owns the page of the command line: every command with its arguments and options."""

from __future__ import annotations

from collections.abc import Iterator
from inspect import cleandoc
from typing import Any, NamedTuple

from typer.main import get_command

from tools.site.reference.chapter import Chapter, Page
from tools.site.reference.markdown import code, slug, table
from windlass.cli.root_command import cli
from windlass.core.document_fields import COMMANDS

_PATH = "reference/commands.md"


class Command(NamedTuple):
    """A command: its whole name, and the object of click behind it."""

    name: str
    command: Any


def commands() -> Iterator[Command]:
    """Yield every command, also groups of commands, in the order of the help."""
    yield from _walk(Command("windlass", get_command(cli)))


def _walk(group: Command) -> Iterator[Command]:
    yield group
    if hasattr(group.command, "list_commands"):
        for name in group.command.list_commands(None):
            found = group.command.get_command(None, name)
            yield from _walk(Command(f"{group.name} {name}", found))


def _names() -> Iterator[str]:
    for name, command in commands():
        yield name
        for each in command.params:
            if each.param_type_name == "option" and not each.hidden:
                yield f"{name} {each.opts[0]}"


def _anchor(name: str) -> str:
    return slug(name.replace(" --", " option "))


_INTRO = (
    "# Command line\n\n"
    "Every command with its options. What is common to all, exit codes and signals: "
    "[Command line guide](../cli.md). `--json` documents are explained in "
    "[JSON fields](json.md).\n"
)


def _pages() -> list[Page]:
    parts = [_INTRO]
    for name, command in commands():
        if text := cleandoc(command.help or ""):
            level = "##" if name.count(" ") < 2 else "###"
            parts.append(f"{level} `{name}` {{ #{_anchor(name)} }}\n\n{text}\n")
            parts += _usage(name, command)
    return [Page(_PATH, "\n".join(parts))]


def _usage(name: str, command: Any) -> Iterator[str]:
    own = name.removeprefix("windlass ")
    given = [each for each in command.params if not getattr(each, "hidden", False)]
    arguments = [each for each in given if each.param_type_name == "argument"]
    shown = " ".join(_metavar(each) for each in arguments)
    if not hasattr(command, "list_commands"):
        yield f"```text\n{f'{name} {shown}'.strip()} [OPTIONS]\n```\n"
    rows = [
        (
            f'<span id="{_anchor(f"{name} {each.opts[0]}")}"></span>'
            + ", ".join(code(f"{opt} {each.metavar or ''}".strip()) for opt in _written(each)),
            _default(each),
            each.help,
        )
        for each in given
        if each.param_type_name == "option" and each.help
    ]
    if rows:
        yield table(["option", "default", "what it does"], rows)
    if own in COMMANDS:
        shapes = " or ".join(f"[{each}](json.md#{slug(each)})" for each in COMMANDS[own])
        yield f"With `--json`, it writes: {shapes}.\n"


def _written(option: Any) -> tuple[str, ...]:
    return (*option.opts, *option.secondary_opts)


def _metavar(argument: Any) -> str:
    name = argument.metavar or argument.name.upper()
    several = f"{name}..." if argument.nargs == -1 else str(name)
    return several if argument.required else f"[{several}]"


def _default(option: Any) -> str:
    default = option.default
    if option.is_flag or default is None or callable(default) or not str(default):
        return ""
    return code(str(default))


CHAPTER = Chapter(
    subject="command or option of the command line",
    title="Command line",
    summary="every command with its arguments, options and defaults",
    path=_PATH,
    names=_names,
    anchor=_anchor,
    pages=_pages,
    remedy="give the command a docstring, and the option a help",
)
