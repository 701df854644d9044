"""Owns the releases of the past as sources that processes can run: one for each tag, and today's.

Nothing is installed: a release runs with the libraries that are there. Until the first tag, today's
code is the only release, and its successor is today's code with one migration more.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
TODAY, NEXT = "today", "next"
_TAG = re.compile(r"v(\d+)\.(\d+)\.(\d+)")


class Release(NamedTuple):
    """A release: a tag, today's code, or the next release, which is today's as well."""

    name: str

    @property
    def environ(self) -> dict[str, str]:
        """What its processes need beside its sources."""
        return {"RELEASE_IS_NEXT": "1" if self.name == NEXT else ""}

    def sources(self, directory: Path, root: Path = ROOT) -> Path:
        """Return where its sources are: a copy in the directory, of a tag as they were then."""
        target = directory / f"release-{self.name}"
        if target.exists():
            return target / "src"
        if self.name in (TODAY, NEXT):
            shutil.copytree(root / "src", target / "src", ignore=shutil.ignore_patterns("*.pyc"))
            return target / "src"
        target.mkdir()
        archive = _git(root, "archive", "--format=tar", self.name, "src")
        subprocess.run(["tar", "-x", "-C", str(target)], input=archive, check=True)
        return target / "src"


def upgrades(root: Path = ROOT) -> list[tuple[Release, Release]]:
    """Return each release with the one after it, the oldest first; the last is the next one's."""
    names = [*_tags(root), TODAY, NEXT]
    return [(Release(before), Release(after)) for before, after in pairwise(names)]


def _tags(root: Path) -> list[str]:
    """Return the tags of releases in their order; a clone may have none, or no history at all."""
    try:
        lines = _git(root, "tag", "--list", "v*").decode().split()
    except (OSError, subprocess.CalledProcessError):
        return []
    found = {tag: match for tag in lines if (match := _TAG.fullmatch(tag))}
    return sorted(found, key=lambda tag: tuple(map(int, found[tag].groups())))


def _git(root: Path, *words: str) -> bytes:
    command = ["git", "-C", str(root), *words]
    return subprocess.run(command, check=True, capture_output=True).stdout
