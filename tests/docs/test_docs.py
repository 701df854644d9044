"""Every code block in the README and the docs runs, as a reader would run it: from top to bottom.

A `python` block that begins with a comment like `# app.py` is written to that file, and so is a
`proto` block with `// mail.proto`; the other `python` blocks are run in one program per page. Each
`$` line of a `console` block is run in a shell and must succeed; a worker stays in the background
until the page ends, and must then drain and exit with 0. Whatever else `windlass` or `python` is
asked to do is done by a fork of a process that has loaded Windlass, and nothing of a page. The page
on PostgreSQL gets an empty database, whose URL is in the environment, and its `sql` blocks run
there; its `javascript` is run by tests/system/test_node.py, since that needs a package from npm.
The page on Redis gets an empty server. The files of the page on Django are a project; with Django
5.2 they are changed as their comments say. The steps of the tutorial are one reading, in one
directory, and change its files (see edits.py): test_tutorial.py follows them.

On pages for beginners, the output below a command is compared with its own (see transcript.py),
that of a worker included. A file that such a page runs by `python FILE` is not imported before.
`py`, `ruby` and `elixir` are programs of other libraries, not run; see test_coming_from.py.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

import django
import psycopg
import pytest

from tests.docs.edits import edit_of
from tests.docs.roles import with_own_roles
from tests.docs.transcript import Transcript, exchanges
from tests.support.postgres.wheel import installations, newest
from tools.site.reference import generated_pages
from windlass.settings import SettingHelp, describe_settings

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    page.relative_to(ROOT).as_posix()
    for page in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
)
_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_FILE = re.compile(r"# (\w+(?:/\w+)*\.py)\n")
_PROTO = re.compile(r"// (\w+\.proto)\n")
OF_OTHERS = {"py", "ruby", "elixir"}
KNOWN = {"python", "console", "text", "sh", "toml", "ini", "sql", "javascript", "yaml", "proto"}
KNOWN |= OF_OTHERS
WITH_OUTPUT = ("docs/start.md", "docs/tutorial/", "docs/coming-from/")
"""Pages whose console blocks show what their commands print."""
STEPS = [page for page in PAGES if re.match(r"docs/tutorial/\d", page)]
"""The steps of the tutorial, in their order."""
ON_POSTGRES = "docs/postgresql.md"
ON_REDIS = "docs/redis.md"
ON_DJANGO = "docs/django.md"
_WORKERS = (["windlass", "worker"], ["python", "manage.py", "windlass", "worker"])


_ON_DJANGO_5 = {
    "from django.tasks import": "from django_tasks import",
    '# "django_tasks",': '"django_tasks",',
}
"""What the page on Django says to change before Django 6.0, which has no tasks of its own."""


class Block(NamedTuple):
    """A fenced block of a page."""

    language: str
    text: str


def blocks_of(page: str) -> list[Block]:
    return [Block(*match) for match in _BLOCK.findall((ROOT / page).read_text("utf-8"))]


def programs_of(page: str) -> set[str]:
    """Return the files that a page runs itself."""
    consoles = [block.text for block in blocks_of(page) if block.language == "console"]
    return set(re.findall(r"^\$ python ([\w/]+\.py)", "\n".join(consoles), re.MULTILINE))


@pytest.fixture
def environment(tmp_path: Path, programs: str, request: pytest.FixtureRequest) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("WINDLASS_")}
    path = [programs, str(Path(sys.executable).parent), os.environ["PATH"]]
    if request.node.callspec.params["page"] == ON_POSTGRES:
        kept["WINDLASS_URL"] = request.getfixturevalue("own_database")
        path.insert(2, str(installations()[newest()] / "bin"))  # For psql.
    if request.node.callspec.params["page"] == ON_REDIS:
        kept["WINDLASS_URL"] = request.getfixturevalue("redis_server").url
    if request.node.callspec.params["page"] == ON_DJANGO:
        path.remove(programs)  # `manage.py windlass` takes the place of its own process.
        kept["DJANGO_SETTINGS_MODULE"] = "settings"
    if request.node.callspec.params["page"].startswith(WITH_OUTPUT):
        kept["WINDLASS_LOG_FORMAT"] = "console"  # As at a terminal.
        kept["NO_COLOR"] = "1"
    return {
        **kept,
        "PATH": os.pathsep.join(path),
        "PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT / "src")]),
        "PYTHONWARNINGS": "error",
        "COLUMNS": "200",
    }


def _for_this_django(text: str) -> str:
    if django.VERSION < (6, 0):
        for line, changed in _ON_DJANGO_5.items():
            text = text.replace(line, changed)
    return text


class Reader:
    """Somebody who types in what a page shows, in an empty directory."""

    def __init__(
        self, page: str, directory: Path, environment: dict[str, str], background: ExitStack
    ) -> None:
        self._shows_output = page.startswith(WITH_OUTPUT)
        self._is_exact = page in STEPS  # Their programs move the clock by hand.
        self._programs = programs_of(page) if self._shows_output else set()
        self._transcript = Transcript()
        self._directory = directory
        self._environment = environment
        self._background = background
        self._program: list[str] = []
        self._ran = 0

    def follow(self, block: Block) -> None:
        if block.language == "python" and (edit := edit_of(block.text)):
            file = self._directory / edit.file
            file.write_text(edit.apply(file.read_text("utf-8")), "utf-8")
            return
        if block.language == "python" and not _FILE.match(block.text):
            self._program.append(block.text)
            return
        self.catch_up()
        if block.language == "console":
            for command, shown in exchanges(block.text):
                self._type(command, shown if self._shows_output else [])
        elif block.language == "python" and (name := _FILE.match(block.text)):
            file = self._directory / name[1]
            file.parent.mkdir(exist_ok=True)
            file.write_text(_for_this_django(block.text))
            if name[1] in self._programs:
                return
            module = name[1].removesuffix(".py").replace("/", ".")
            # A project of Django's is set up first, as its manage.py does.
            set_up = "import django; django.setup(); " if self._is_in_app(file) else ""
            self._run(["python", "-c", f"{set_up}import {module}"])
            if name[1].startswith("test_"):
                self._run(["python", "-m", "pytest", "-q", "-x", name[1]])
        elif block.language == "proto" and (schema := _PROTO.match(block.text)):
            (self._directory / schema[1]).write_text(block.text)
        elif block.language == "sql":
            url = self._environment["WINDLASS_URL"]
            with psycopg.connect(url) as db:
                db.execute(with_own_roles(block.text, url).encode())

    def _is_in_app(self, file: Path) -> bool:
        return file.parent != self._directory and "DJANGO_SETTINGS_MODULE" in self._environment

    def catch_up(self) -> None:
        """Run the page's program as far as it was read, unless nothing of it is new.

        It starts anew, since a block goes on where the last one ended; blocks between which nothing
        else is done run together.
        """
        if len(self._program) > self._ran:
            self._ran = len(self._program)
            (self._directory / "page.py").write_text("\n".join(self._program))
            self._run(["python", "page.py"])

    def _type(self, command: str, shown: list[str]) -> None:
        command = self._transcript.translate(command)
        if command.split() in _WORKERS or command.split()[:2] == _WORKERS[0]:
            self._background.enter_context(self._worker(command.split(), shown))
        elif command.split()[:2] == ["windlass", "web"]:
            printed = open_page(command.split(), self._directory, self._environment)
            self._compare(shown, printed)
        elif self._is_exact and command.startswith("python "):
            assert self._run(["sh", "-c", command]).splitlines() == shown
        else:
            self._compare(shown, self._run(["sh", "-c", command]))

    def _compare(self, shown: list[str], printed: str) -> None:
        assert self._transcript.missing(shown, printed) == [], printed

    def _run(self, command: list[str]) -> str:
        done = subprocess.run(
            command,
            cwd=self._directory,
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
        return done.stdout + done.stderr

    @contextmanager
    def _worker(self, command: list[str], shown: list[str]) -> Iterator[None]:
        command[0] = str(Path(sys.executable).parent / command[0])
        with (
            (self._directory / "worker.log").open("w+") as log,
            subprocess.Popen(
                command, cwd=self._directory, env=self._environment, stdout=log, stderr=log
            ) as worker,
        ):
            try:
                yield
                await_start(worker, self._directory / "worker.log")
                worker.send_signal(signal.SIGTERM)
                code = worker.wait(timeout=60)
                log.seek(0)
                assert code == 0, log.read()
                log.seek(0)
                self._compare(shown, log.read())
            finally:
                worker.kill()


def await_start(worker: subprocess.Popen[bytes], log: Path) -> None:
    """Wait until a worker has logged that it started: earlier, a signal would just kill it."""
    while worker.poll() is None and "worker.started" not in log.read_text("utf-8"):
        time.sleep(0.05)


def open_page(command: list[str], directory: Path, environment: dict[str, str]) -> str:
    """Serve the web page on a free port, look at it, and return what the command printed."""
    command = [str(Path(sys.executable).parent / command[0]), *command[1:], "--port", "0"]
    with subprocess.Popen(
        command, cwd=directory, env=environment, stderr=subprocess.PIPE, text=True
    ) as server:
        try:
            assert server.stderr is not None
            printed = server.stderr.readline()
            address = re.search(r"http://\S+", printed)
            assert address is not None
            with urllib.request.urlopen(address[0], timeout=60) as answer:
                assert b"windlass" in answer.read().lower()
            server.send_signal(signal.SIGTERM)
            server.wait(timeout=60)
            return printed
        finally:
            server.kill()


@pytest.mark.timeout(300)  # A long page is many programs, one after the other.
@pytest.mark.parametrize("page", [page for page in PAGES if page not in STEPS])
def test_every_block_of_a_page_runs(page: str, tmp_path: Path, environment: dict[str, str]) -> None:
    with ExitStack() as background:
        reader = Reader(page, tmp_path, environment, background)
        for block in blocks_of(page):
            reader.follow(block)
        reader.catch_up()


@pytest.mark.parametrize("page", PAGES)
def test_every_block_of_a_page_says_what_it_is(page: str) -> None:
    """A block without a language would silently not be run."""
    assert {block.language for block in blocks_of(page)} <= KNOWN


GENERATED = {(ROOT / "docs" / page.path).resolve() for page in generated_pages()}
"""Pages that exist only on the site: `make docs` checks the links to them, with anchors."""


@pytest.mark.parametrize("page", PAGES)
def test_every_relative_link_of_a_page_leads_somewhere(page: str) -> None:
    text = (ROOT / page).read_text("utf-8")
    links = [link for link in re.findall(r"\]\(([^)#]+)\)", text) if "://" not in link]
    targets = [(ROOT / page).parent.joinpath(link).resolve() for link in links]
    assert not [each for each in targets if each not in GENERATED and not each.exists()]


@pytest.mark.parametrize("setting", list(describe_settings()), ids=lambda setting: setting.field)
def test_the_table_of_settings_is_true(setting: SettingHelp) -> None:
    also = ", ".join(f"`{name}`" for name in setting.other_names)
    cells = [f"`{setting.field}`", f"`{setting.variable}`", also, setting.default, setting.doc]
    row = f"| {' | '.join(cells)} |"
    assert row in (ROOT / "docs/configuration.md").read_text("utf-8").splitlines()
