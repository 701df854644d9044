"""`windlass web`: where it listens, what it refuses, and that it ends while pages are open."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from pathlib import Path
from urllib.request import urlopen

import pytest

from tests.cli.conftest import Shell

_APP = """
from windlass import Windlass

app = Windlass("sqlite:///shop.db")


@app.job
async def send_email(to: str) -> None: ...
"""


def test_other_hosts_need_a_token(shell: Shell) -> None:
    shell.ok("migrate")
    shell("web", "--host", "0.0.0.0").refused("--host must be a loopback", "WINDLASS_WEB_TOKEN")


def test_a_store_is_not_created_by_looking_at_it(shell: Shell) -> None:
    shell("web").refused("there is no store", "windlass migrate")


@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGTERM])
def test_the_server_ends_in_time_while_a_page_is_open(tmp_path: Path, ending: int) -> None:
    (tmp_path / "shop.py").write_text(_APP)
    run = [sys.executable, "-m", "windlass"]
    subprocess.run([*run, "migrate", "--app", "shop:app"], cwd=tmp_path, check=True, timeout=100)
    with subprocess.Popen(
        [*run, "web", "shop:app", "--port", "0", "--name", "here"],
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        text=True,
    ) as server:
        try:
            assert server.stderr is not None
            address = re.search(r"http://\S+/", server.stderr.readline())
            assert address is not None
            with urlopen(address[0] + "kinds", timeout=100) as page:
                assert "send_email" in page.read().decode()
            with urlopen(address[0] + "events", timeout=100) as stream:
                assert stream.readline()
                server.send_signal(ending)
                assert server.wait(60) == 0
        finally:
            server.kill()


def test_a_port_that_is_in_use_is_said_so(shell: Shell) -> None:
    import socket

    shell.ok("migrate")
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = str(other.getsockname()[1])
        shell("web", "--port", port).refused(f"cannot listen on 127.0.0.1, port {port}", "--port")
