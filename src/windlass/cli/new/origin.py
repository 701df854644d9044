"""Owns where the installed Windlass is from, so that a new project requires the same one."""

from __future__ import annotations

from importlib import metadata

import msgspec
from msgspec import Struct


class _Repository(Struct):
    vcs: str
    commit_id: str


class _DirectUrl(Struct):
    """The file `direct_url.json` of a package that was not installed by its name (PEP 610)."""

    url: str
    vcs_info: _Repository | None = None
    subdirectory: str = ""


def installed_from() -> str:
    """Return the address from which Windlass was installed; empty if it was found by its name."""
    try:
        text = metadata.distribution("windlass").read_text("direct_url.json")
        found = None if text is None else msgspec.json.decode(text, type=_DirectUrl)
    except (metadata.PackageNotFoundError, OSError, msgspec.MsgspecError):
        return ""
    if found is None:
        return ""
    code = found.vcs_info
    place = found.url if code is None else f"{code.vcs}+{found.url}@{code.commit_id}"
    return f"{place}#subdirectory={found.subdirectory}" if found.subdirectory else place
