"""The source of the site has every page of docs, and copies of what they link to."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.site.navigation import outside_navigation
from tools.site.reference.chapter import Page
from tools.site.stage import Stage


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Return a small repository with links out of docs."""
    root = tmp_path / "repository"
    for name, text in {
        "docs/index.md": "[a](metrics.md#up) [b](../deploy/alerts.yml) [c](https://example.org)\n",
        "docs/metrics.md": "# Metrics\n\n```text\n[not](../a/link)\n```\n[d](runbooks/)\n",
        "docs/runbooks/README.md": "[e](../../bench/README.md#web) [f](../reference/sql.md)\n",
        "docs/images/now.png": "",
        "bench/README.md": "[g](../docs/metrics.md) [h](results.txt)\n",
        "bench/results.txt": "42",
        "deploy/alerts.yml": "groups: []",
        "deploy/unused.yml": "",
    }.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


@pytest.fixture
def staged(repository: Path, tmp_path: Path) -> Path:
    """Return the source of the site of that repository."""
    folder = tmp_path / "staged"
    Stage(repository, folder).fill([Page("reference/sql.md", "# SQL\n")])
    return folder


def test_pages_files_and_generated_pages_are_there_and_nothing_else(staged: Path) -> None:
    found = {each.relative_to(staged).as_posix() for each in staged.rglob("*") if each.is_file()}
    assert found == {
        *("index.md", "metrics.md", "runbooks/README.md", "images/now.png", "reference/sql.md"),
        *("project/bench/README.md", "project/bench/results.txt", "project/deploy/alerts.yml"),
    }


def test_a_generated_page_replaces_the_page_of_docs_with_its_links(
    repository: Path, tmp_path: Path
) -> None:
    """Prevents copies of source files on the site, which only the page in the repository links."""
    (repository / "docs/reference").mkdir()
    (repository / "docs/reference/sql.md").write_text("[source](../../deploy/unused.yml)\n")
    folder = tmp_path / "staged"
    Stage(repository, folder).fill([Page("reference/sql.md", "# SQL\n")])
    assert (folder / "reference/sql.md").read_text() == "# SQL\n"
    assert not (folder / "project/deploy/unused.yml").exists()


def test_links_lead_to_the_copies_and_blocks_stay_as_they_are(staged: Path) -> None:
    def read(name: str) -> str:
        return (staged / name).read_text()

    assert read("index.md") == (
        "[a](metrics.md#up) [b](project/deploy/alerts.yml) [c](https://example.org)\n"
    )
    assert "[not](../a/link)" in read("metrics.md")
    assert "[d](runbooks/README.md)" in read("metrics.md")
    assert read("runbooks/README.md") == (
        "[e](../project/bench/README.md#web) [f](../reference/sql.md)\n"
    )
    assert read("project/bench/README.md") == "[g](../../metrics.md) [h](results.txt)\n"


def test_a_page_that_the_navigation_lacks_is_found(staged: Path, tmp_path: Path) -> None:
    config = tmp_path / "mkdocs.yml"
    config.write_text("nav:\n  - Home: index.md\n  - Reference:\n      - reference/sql.md\n")
    (found,) = outside_navigation(config, staged)
    assert found.startswith("metrics.md is not in the navigation")


def test_an_example_that_the_navigation_lacks_is_found(tmp_path: Path) -> None:
    page = tmp_path / "source/project/examples/mailer/README.md"
    page.parent.mkdir(parents=True)
    page.write_text("# Mailer")
    config = tmp_path / "mkdocs.yml"
    config.write_text("nav:\n  - Home: index.md\n")
    (found,) = outside_navigation(config, tmp_path / "source")
    assert found.startswith("project/examples/mailer/README.md is not in the navigation")


def test_the_page_of_an_example_has_its_code_and_other_pages_have_none(tmp_path: Path) -> None:
    for name, text in {
        "docs/index.md": "[a](../examples/README.md)\n",
        "examples/README.md": "[b](mailer/README.md)\n",
        "examples/mailer/README.md": "# Mailer\n",
        "examples/mailer/app.py": "app = 1\n",
        "examples/mailer/orders/tasks.py": "tasks = 2\n",
        "examples/mailer/orders/__init__.py": "",
        "examples/mailer/orders/migrations/0001_initial.py": "made = 3\n",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    Stage(tmp_path, tmp_path / "stage").fill([])
    page = (tmp_path / "stage/project/examples/mailer/README.md").read_text()
    assert page.startswith("# Mailer\n\n## The code\n\n`app.py`:\n\n```python\napp = 1\n```\n")
    assert page.endswith("`orders/tasks.py`:\n\n```python\ntasks = 2\n```\n")
    assert "made" not in page
    overview = (tmp_path / "stage/project/examples/README.md").read_text()
    assert overview == "[b](mailer/README.md)\n"
