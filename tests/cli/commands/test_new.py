"""`windlass new` writes projects and handlers, and never changes a file that exists."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from windlass.cli.new.templates import File
from windlass.cli.new.writing import plan_new

if TYPE_CHECKING:
    from tests.cli.conftest import Shell


def tree(directory: Path) -> dict[str, str]:
    """Return all files of a directory, with their texts."""
    return {
        path.relative_to(directory).as_posix(): path.read_text()
        for path in directory.rglob("*")
        if path.is_file()
    }


def test_a_project_is_written_to_a_directory_of_its_name(shell: Shell) -> None:
    said = shell.ok("new", "shop", "--store", "postgres", "--with", "web,fastapi").out
    written = tree(shell.directory / "shop")
    assert "windlass[fastapi,postgres,web]" in written["pyproject.toml"]
    assert "from shop.app import app" in written["src/shop/handlers/mail.py"]
    assert f"wrote {len(written)} files" in said
    assert all(f"\n  {path}\n" in said for path in written)
    assert said.endswith("next:\n  cd shop\n  make test\n  make dev\n")


def test_a_dry_run_lists_the_same_files_and_writes_none(shell: Shell) -> None:
    listed = shell.ok("new", "shop", "--dry-run").out.splitlines()
    assert listed[0].startswith("would write ")
    assert not tree(shell.directory)
    shell.ok("new", "shop")
    assert sorted(each.strip() for each in listed[1:]) == sorted(tree(shell.directory / "shop"))


def test_a_directory_with_anything_in_it_is_not_written_to(shell: Shell) -> None:
    (shell.directory / "shop").mkdir()
    shell.write("shop/notes.txt", "mine")
    shell("new", "shop").refused("shop must be a new or empty directory", "--into shop")
    assert tree(shell.directory) == {"shop/notes.txt": "mine"}


def test_into_a_directory_keeps_files_besides_code(shell: Shell) -> None:
    shell.write("README.md", "mine")
    shell.write(".gitignore", "mine")
    said = shell.ok("new", "shop", "--into", ".").out
    written = tree(shell.directory)
    assert written["README.md"] == written[".gitignore"] == "mine"
    assert "pyproject.toml" in written
    assert "  README.md exists, and is kept as it is\n" in said
    assert "  README.md\n" not in said


def test_into_a_directory_with_such_a_module_writes_nothing(shell: Shell) -> None:
    (shell.directory / "src/shop").mkdir(parents=True)
    shell.write("src/shop/app.py", "mine")
    before = tree(shell.directory)
    shell("new", "shop", "--into", ".").refused("src/shop/app.py must not exist", "another name")
    assert tree(shell.directory) == before


def test_into_an_existing_project_writes_an_app_handlers_and_a_test(shell: Shell) -> None:
    shell.write("pyproject.toml", "mine")
    (shell.directory / "src/shop").mkdir(parents=True)
    shell.write("src/shop/__init__.py", "mine")
    shell.write("src/shop/app.py", "that of a web framework")
    shell("new", "shop", "--into", ".").refused("src/shop/app.py must not exist")
    said = shell.ok("new", "shop.jobs", "--into", ".", "--store", "redis").out
    written = tree(shell.directory)
    assert written.pop("pyproject.toml") == written.pop("src/shop/__init__.py") == "mine"
    assert set(written) == {
        "src/shop/app.py",
        *(f"src/shop/jobs/{name}.py" for name in ("__init__", "app", "config", "mailer")),
        *(f"src/shop/jobs/handlers/{name}.py" for name in ("__init__", "mail")),
        "tests/test_mail.py",
    }
    assert "from shop.jobs.app import app" in written["src/shop/jobs/handlers/mail.py"]
    assert 'windlass_app = "shop.jobs.app:app"' in said
    assert "windlass[redis]" in said


def test_into_a_project_without_src_writes_beside_its_package(shell: Shell) -> None:
    shell.write("pyproject.toml", "mine")
    (shell.directory / "shop").mkdir()
    shell.ok("new", "shop", "--into", ".")
    assert "shop/handlers/mail.py" in tree(shell.directory)
    assert not (shell.directory / "src").exists()
    shell.ok("new", "handler", "invoice")
    assert {"shop/handlers/invoice.py", "tests/test_invoice.py"} <= set(tree(shell.directory))


def test_an_existing_project_gets_no_framework(shell: Shell) -> None:
    shell.write("pyproject.toml", "mine")
    said = shell("new", "shop", "--into", ".", "--with", "web")
    said.refused("--with must be left out", "docs/web.md", code=2)


def test_a_name_with_dots_is_for_existing_projects(shell: Shell) -> None:
    shell("new", "shop.jobs").refused("NAME must have no dots", "write jobs", code=2)


def test_a_directory_that_does_not_exist_is_refused(shell: Shell) -> None:
    shell("new", "shop", "--into", "there").refused("--into must be a directory that exists")


@pytest.mark.parametrize(
    ("args", "parts"),
    [
        (["my-shop"], ["got 'my-shop'", "write my_shop"]),
        (["class"], ["keyword", "class_jobs"]),
        (["shop", "invoice"], ["NAME must be one word", "'invoice'"]),
        (["shop", "--with", "flask"], ["--with must be some of", "'flask'"]),
        (["shop", "--with", "django,fastapi"], ["one framework"]),
        (["shop", "--store", "mysql"], ["sqlite", "postgres", "redis"]),
        (["handler"], ["windlass new handler NAME"]),
        (["handler", "send-invoice"], ["write send_invoice"]),
    ],
)
def test_a_wrong_usage_names_the_remedy(shell: Shell, args: list[str], parts: list[str]) -> None:
    shell("new", *args).refused(*parts, code=2)
    assert not tree(shell.directory)


@pytest.mark.parametrize("framework", ["", "django"])
def test_another_handler_comes_with_its_test(shell: Shell, framework: str) -> None:
    shell.ok("new", "shop", "--with", framework)
    said = shell.ok("new", "handler", "send_invoice", "--into", "shop").out
    written = tree(shell.directory / "shop")
    assert "def send_invoice(" in written["src/shop/handlers/send_invoice.py"]
    assert "def test_send_invoice_is_done(" in written["tests/test_send_invoice.py"]
    assert ("import TestCase" in written["tests/test_send_invoice.py"]) == bool(framework)
    assert "wrote 2 files" in said


def test_a_handler_that_exists_is_not_overwritten(shell: Shell) -> None:
    shell.ok("new", "shop")
    before = tree(shell.directory)
    shell("new", "handler", "mail", "--into", "shop").refused("handlers/mail.py", "must not exist")
    assert tree(shell.directory) == before


def test_a_handler_needs_a_project(shell: Shell) -> None:
    shell("new", "handler", "invoice").refused("handlers/", "got none", "--into DIR")


def test_a_file_that_appears_between_plan_and_writing_is_not_overwritten(tmp_path: Path) -> None:
    plan = plan_new(tmp_path / "shop", [File(path="app.py", text="ours")])
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop/app.py").write_text("mine")
    with pytest.raises(FileExistsError):
        plan.write()
    assert (tmp_path / "shop/app.py").read_text() == "mine"
