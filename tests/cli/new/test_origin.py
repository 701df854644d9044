"""From where the installed Windlass is."""

from __future__ import annotations

from importlib import metadata

import pytest

from windlass.cli.new.origin import installed_from


@pytest.mark.parametrize(
    ("found", "origin"),
    [
        (None, ""),
        ('{"url": "file:///srv/windlass", "dir_info": {"editable": true}}', "file:///srv/windlass"),
        (
            '{"url": "file:///srv/w.whl", "archive_info": {"hash": "sha256=00"}}',
            "file:///srv/w.whl",
        ),
        (
            '{"url": "https://example.org/w", "vcs_info": {"vcs": "git", "commit_id": "c0ffee"}}',
            "git+https://example.org/w@c0ffee",
        ),
        (
            '{"url": "file:///srv/all", "dir_info": {}, "subdirectory": "windlass"}',
            "file:///srv/all#subdirectory=windlass",
        ),
        ("not JSON", ""),
        ("{}", ""),
    ],
    ids=["by name", "checkout", "wheel", "repository", "subdirectory", "garbled", "empty"],
)
def test_the_address_from_which_windlass_was_installed_is_found(
    found: str | None, origin: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Installed:
        def read_text(self, name: str) -> str | None:
            return found if name == "direct_url.json" else None

    monkeypatch.setattr(metadata, "distribution", lambda _: Installed())
    assert installed_from() == origin


def test_windlass_that_is_not_installed_is_from_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "distribution", missing)
    assert installed_from() == ""
