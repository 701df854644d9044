"""An app's own arguments win over the environment, flags win over them, and all of it is used."""

from __future__ import annotations

import asyncio
import sys
from importlib import import_module
from pathlib import Path

import pytest

from tests.support.app_on_store import Bed, in_state, serving
from windlass import ConfigError, State, Windlass


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_default_is_a_file_in_the_current_directory(bare: Path) -> None:
    app = Windlass()
    assert app.settings.url == "sqlite:///windlass.db"
    assert app.store.location == str(bare / "windlass.db")


def test_an_argument_wins_over_the_environment(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WINDLASS_URL", "sqlite:///other.db")
    monkeypatch.setenv("WINDLASS_CONCURRENCY", "7")
    monkeypatch.setenv("WINDLASS_MAX_RETRIES", "8")
    app = Windlass("memory://", concurrency=3)
    assert (app.settings.url, str(app.settings.concurrency)) == ("memory://", "3")
    assert app.settings.max_retries == 8
    assert app.resolved.sources["max_retries"].source == "WINDLASS_MAX_RETRIES"
    assert Windlass().settings.url == "sqlite:///other.db"


def test_configure_wins_over_the_arguments(bare: Path) -> None:
    app = Windlass("memory://", concurrency=3)
    app.configure(concurrency=4, url="sqlite:///new.db")
    assert (str(app.settings.concurrency), app.settings.url) == ("4", "sqlite:///new.db")
    assert app.store.location == str(bare / "new.db")


def test_settings_from_configure_apply_to_workers(bare: Path) -> None:
    app = Windlass("memory://", concurrency=3)
    app.configure(concurrency=4, threads=2, queues=["mail"])
    options = app.worker()._options
    assert (str(options.concurrency), options.threads, options.queues) == (
        "4",
        2,
        frozenset({"mail"}),
    )
    assert str(app.worker(concurrency=5)._options.concurrency) == "5"
    assert app.worker(concurrency=5)._options.threads == 2


def test_a_second_configure_keeps_the_earlier_settings(bare: Path) -> None:
    app = Windlass("memory://")
    app.configure(concurrency=4)
    app.configure(threads=2)
    assert (str(app.settings.concurrency), app.settings.threads) == ("4", 2)


def test_a_timeout_that_configure_sets_holds_for_handlers_registered_before(bed: Bed) -> None:
    """Prevents: `--timeout` on the command line, which comes after the import, means nothing."""
    app = bed.app()

    @app.job(max_retries=0)
    async def hang() -> None:
        await asyncio.Event().wait()

    app.configure(timeout="50ms")

    async def main() -> None:
        async with serving(app):
            job = await in_state(await hang.aenqueue(), State.DEAD, within=60)
            assert job.error is not None
            assert "50ms" in job.error.message

    asyncio.run(main())


def test_the_url_cannot_change_under_a_store_in_use(bare: Path) -> None:
    app = Windlass("memory://")
    assert app.store.location == "memory://"
    with pytest.raises(ConfigError, match="already open"):
        app.configure(url="sqlite:///late.db")
    app.configure(concurrency=9)
    assert str(app.settings.concurrency) == "9"


def test_a_worker_of_another_url_than_the_store_in_use_is_refused(bare: Path) -> None:
    """Prevents: `arun_worker(url=...)` works on the old store and says nothing."""
    app = Windlass("memory://")
    _ = app.store
    with pytest.raises(ConfigError, match=r"url|URL"):
        app.worker(url="sqlite:///other.db")


def test_unknown_settings_are_refused_with_the_nearest(bare: Path) -> None:
    with pytest.raises(ConfigError, match="did you mean 'concurrency'"):
        Windlass("memory://", concurency=3)  # type: ignore[call-arg]
    with pytest.raises(ConfigError, match="did you mean 'concurrency'"):
        Windlass("memory://").configure(concurency=3)  # type: ignore[call-arg]
    with pytest.raises(ConfigError, match="at least 1"):
        Windlass("memory://").worker(concurrency=0)


def test_imports_are_loaded_when_a_worker_is_made(
    bare: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (bare / "windlass_test_app.py").write_text(
        "from windlass import Windlass\n"
        "app = Windlass('memory://', imports=['windlass_test_handlers'])\n"
    )
    (bare / "windlass_test_handlers.py").write_text(
        "from windlass_test_app import app\n@app.job\nasync def greet() -> str:\n    return 'hi'\n"
    )
    monkeypatch.syspath_prepend(str(bare))
    app: Windlass = import_module("windlass_test_app").app
    assert "greet" not in app.registry
    app.worker()
    assert "greet" in app.registry
    app.worker()
    for name in ("windlass_test_app", "windlass_test_handlers"):
        del sys.modules[name]


def test_an_import_that_does_not_exist_is_a_config_error(bare: Path) -> None:
    app = Windlass("memory://", imports=["windlass_no_such_module"])
    with pytest.raises(ConfigError, match="importing 'windlass_no_such_module' failed"):
        app.worker()


def test_max_retries_of_the_app_hold_for_handlers_that_state_none(bed: Bed) -> None:
    app = bed.app(max_retries=0)

    @app.job
    async def fail() -> None:
        raise ValueError("no")

    async def main() -> None:
        async with serving(app):
            assert (await in_state(await fail.aenqueue(), State.DEAD)).failures == 1

    asyncio.run(main())
