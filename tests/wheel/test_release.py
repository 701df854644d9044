"""`make release` builds an sdist and a wheel that pass twine's check, install and run the demo."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools import release
from windlass.version import __version__

pytestmark = pytest.mark.timeout(600)


def test_a_release_is_built_checked_installed_and_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    changelog = tmp_path / "CHANGELOG.md"  # The real one has lines that no release has yet.
    changelog.write_text(f"## {__version__}\n\n- Jobs.\n")
    assert release.main(tmp_path / "dist", changelog) == 0
    printed = capsys.readouterr().out
    assert "twine check --strict" in printed
    assert "windlass demo" in printed
    assert f"windlass {__version__} is ready" in printed
    assert sorted(path.suffix for path in (tmp_path / "dist").iterdir()) == [".gz", ".whl"]


def test_a_release_without_a_heading_in_the_changelog_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(release, "read_version", lambda _: "99.0.0")
    assert release.main(tmp_path / "dist") == 1
    assert "## 99.0.0" in capsys.readouterr().err
