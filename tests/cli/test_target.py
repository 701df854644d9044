"""Which app and which store are meant by --app, --url, WINDLASS_APP and WINDLASS_URL."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.cli.conftest import Shell


def test_an_app_brings_its_own_url(shell: Shell) -> None:
    shell.write("shop.py", "from windlass import Windlass\napp = Windlass('sqlite:///own.db')\n")
    said = shell.ok("migrate", "--app", "shop:app", "--json")
    assert said.json["store"] == str(shell.directory / "own.db")


@pytest.mark.parametrize("place", ["environment", ".env"])
def test_the_app_is_found_by_its_variable(
    shell: Shell, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    shell.write("shop.py", "from windlass import Windlass\napp = Windlass('sqlite:///own.db')\n")
    if place == "environment":
        monkeypatch.setenv("WINDLASS_APP", "shop:app")
    else:
        shell.write(".env", "WINDLASS_APP=shop:app\n")
    assert shell.ok("migrate", "--json").json["store"].endswith("/own.db")


def test_a_url_on_the_command_line_wins_over_that_of_the_app(shell: Shell) -> None:
    shell.write("shop.py", "from windlass import Windlass\napp = Windlass('sqlite:///own.db')\n")
    said = shell.ok("migrate", "--app", "shop:app", "--url", "sqlite:///other.db", "--json")
    assert said.json["store"].endswith("/other.db")


def test_a_url_on_the_command_line_spares_the_import_of_the_app_in_the_variable(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WINDLASS_APP", "missing:app")
    shell.ok("migrate", "--url", "sqlite:///other.db")
    shell("migrate").refused("there is no module 'missing'")


def test_without_an_app_the_settings_say_where_the_jobs_are(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    shell.write("windlass.toml", "url = 'sqlite:///toml.db'\n")
    assert shell.ok("migrate", "--json").json["store"].endswith("/toml.db")
    monkeypatch.setenv("WINDLASS_URL", "sqlite:///env.db")
    assert shell.ok("migrate", "--json").json["store"].endswith("/env.db")


def test_an_app_may_be_an_attribute_of_an_attribute(shell: Shell) -> None:
    shell.write(
        "shop.py",
        "from windlass import Windlass\nclass Deep:\n    app = Windlass('sqlite:///own.db')\n",
    )
    assert shell.ok("migrate", "--app", "shop:Deep.app", "--json").json["store"].endswith("own.db")


@pytest.mark.parametrize("reference", ["shop", "shop:", ":app", "shop.py:app", "./shop:app"])
def test_what_names_no_app_is_wrong_usage(shop: Shell, reference: str) -> None:
    shop("jobs", "list", "--app", reference).refused("write module:attribute", code=2)


@pytest.mark.parametrize(
    ("source", "reference", "told"),
    [
        ("", "missing:app", "there is no module 'missing'; it was looked for in /"),
        ("", "shop.jobs:app", "there is no module 'shop.jobs'"),
        ("import missing_library", "shop:app", "importing 'shop' failed: ModuleNotFoundError"),
        ("1 / 0", "shop:app", "importing 'shop' failed: ZeroDivisionError: division by zero"),
        ("def (", "shop:app", "importing 'shop' failed: SyntaxError"),
        ("", "shop:app", "there is none in 'shop'; write there: app = Windlass()"),
        ("app = 5", "shop:app", "'shop:app' is not a Windlass app"),
        (
            "from windlass import Windlass\nqueue = Windlass()",
            "shop:app",
            "did you mean shop:queue?",
        ),
        (
            "from windlass import Windlass\napp = Windlass(slot=3)",
            "shop:app",
            "'slot' is not a setting; did you mean 'slots'?",
        ),
    ],
)
def test_an_app_that_cannot_be_had_is_told_in_one_line(
    shell: Shell, source: str, reference: str, told: str
) -> None:
    shell.write("shop.py", source)
    shell("jobs", "list", "--app", reference).refused(told)
