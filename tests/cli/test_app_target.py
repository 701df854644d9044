"""Which app and which store are meant by --app, --url, WINDLASS_APP and WINDLASS_URL."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.cli.conftest import Shell, Start


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


def test_an_empty_variable_leaves_the_app_to_the_file(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    shell.write("shop.py", "from windlass import Windlass\napp = Windlass('sqlite:///own.db')\n")
    shell.write(".env", "WINDLASS_APP=shop:app\n")
    monkeypatch.setenv("WINDLASS_APP", "")
    assert shell.ok("migrate", "--json").json["store"].endswith("/own.db")


def test_a_worker_does_not_begin_on_a_file_where_redis_was_meant(
    shop: Shell, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REDIS_URL", "redis://:hush@127.0.0.1:1")
    said = shop.ended(start("-m", "windlass", "queues", "list"))
    assert said.code != 0
    assert "127.0.0.1:1" in said.err
    assert "hush" not in said.err
    shop.ok("queues", "list", "--url", "sqlite:///windlass.db")
    shop.write("own.py", "from windlass import Windlass\napp = Windlass('sqlite:///own.db')\n")
    said = shop.ended(start("-m", "windlass", "worker", "own:app", "--burst"))
    assert said.code == 0, said.err


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
def test_a_reference_without_an_app_is_wrong_usage(shop: Shell, reference: str) -> None:
    shop("jobs", "list", "--app", reference).refused("named as module:attribute", code=2)


@pytest.mark.parametrize(
    ("source", "reference", "told"),
    [
        ("", "missing:app", "there is no module 'missing' in /"),
        ("", "shop.jobs:app", "there is no module 'shop.jobs'"),
        ("", "shop:app", "'shop' has none; define one there: app = Windlass()"),
        ("app = 5", "shop:app", "'shop:app' is not a Windlass app"),
        (
            "from windlass import Windlass\nqueue = Windlass()",
            "shop:app",
            "did you mean shop:queue?",
        ),
    ],
)
def test_an_app_that_cannot_be_loaded_is_reported_in_one_line(
    shell: Shell, source: str, reference: str, told: str
) -> None:
    shell.write("shop.py", source)
    shell("jobs", "list", "--app", reference).refused(told)


BROKEN = {
    "1 / 0": ("failed: ZeroDivisionError: division by zero", "    1 / 0"),
    "import missing_library": ("failed: ModuleNotFoundError", "    import missing_library"),
    "def (": ("failed: SyntaxError", "    def ("),
    "from windlass import Windlass; app = Windlass(concurency=3)": (
        "'concurency' is not a setting; did you mean 'concurrency'?",
        "    from windlass import Windlass; app = Windlass(concurency=3)",
    ),
}


@pytest.mark.parametrize("source", BROKEN)
@pytest.mark.parametrize("place", ["the app", "what it imports"])
def test_an_app_that_cannot_be_imported_is_reported_with_the_users_file_and_line(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, source: str, place: str
) -> None:
    told, code = BROKEN[source]
    file = "shop.py" if place == "the app" else "deeper.py"
    shell.write("shop.py", "import deeper")
    shell.write(file, f"# one\n# two\n{source}\n")
    monkeypatch.delitem(sys.modules, "deeper", raising=False)
    said = shell("jobs", "list", "--app", "shop:app")
    assert said.code == 1
    first, *frames = said.err.splitlines()
    assert first.startswith("error: importing 'shop' failed: ")
    assert told in first
    assert f'/{file}", line 3' in said.err
    assert code in frames
    assert "importlib" not in said.err
    assert "windlass/" not in said.err
    assert ('/shop.py", line 1, in <module>' in said.err) is (place == "what it imports")


def test_the_cause_of_a_failed_import_is_reported_with_its_place(shell: Shell) -> None:
    source = "try:\n    {}['host']\nexcept KeyError as e:\n    raise ValueError('no host') from e"
    shell.write("shop.py", source)
    err = shell("jobs", "list", "--app", "shop:app").err
    order = ("failed: ValueError: no host", "line 4", "which was caused by KeyError: 'host'\n")
    places = [err.index(each) for each in (*order, "line 2")]
    assert places == sorted(places)
