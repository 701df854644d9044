"""The releases of the past are found by their tags, in order, each with the sources that it had."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.released import NEXT, TODAY, Release, upgrades

pytestmark = pytest.mark.skipif(not shutil.which("git"), reason="git is not installed")


def git(root: Path, *words: str) -> None:
    who = ["-c", "user.name=tests", "-c", "user.email=tests@localhost", "-c", "tag.gpgsign=false"]
    subprocess.run(["git", "-C", str(root), *who, *words], check=True, capture_output=True)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Give a repository with two releases, and changes since then."""
    root = tmp_path / "repository"
    (root / "src").mkdir(parents=True)
    git(root.parent, "init", "--quiet", str(root))
    for tag in ("v0.2.0", "v0.10.0", "nightly", "v1.0.0-rc1"):
        (root / "src" / "shop.py").write_text(f"release = {tag!r}\n")
        git(root, "add", ".")
        git(root, "commit", "--quiet", "--no-gpg-sign", "-m", f"Release {tag}")
        git(root, "tag", tag)
    return root


def test_each_release_is_upgraded_to_the_one_after_it(repository: Path) -> None:
    assert [(old.name, new.name) for old, new in upgrades(repository)] == [
        ("v0.2.0", "v0.10.0"),
        ("v0.10.0", TODAY),
        (TODAY, NEXT),
    ]


def test_a_release_has_the_sources_of_its_tag(repository: Path, tmp_path: Path) -> None:
    for name, text in (("v0.2.0", "'v0.2.0'"), ("v0.10.0", "'v0.10.0'"), (TODAY, "'v1.0.0-rc1'")):
        sources = Release(name).sources(tmp_path, repository)
        assert text in (sources / "shop.py").read_text()
        assert Release(name).sources(tmp_path, repository) == sources


def test_without_a_history_only_the_next_release_follows(tmp_path: Path) -> None:
    assert upgrades(tmp_path) == [(Release(TODAY), Release(NEXT))]
