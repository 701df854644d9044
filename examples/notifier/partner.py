"""A partner's server that misbehaves on request, as receivers of webhooks do in production."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

Answer = int | str
"""A status; or "slow": all is well, and late; or "hang": the same, too late for anybody."""
_TAKES = {"slow": 0.1, "hang": 3.0}
_OK = 200


class Partner:
    """A server on a port of its own. Answers are used up one by one; after those, all is well."""

    def __init__(self, *answers: Answer, retry_after: int | None = None) -> None:
        self.answers = list(answers)
        self.retry_after = retry_after
        self.asked = 0
        """How many requests there were."""
        self.got: dict[str, Any] = {}
        """The events that it has taken, by their idempotency keys; so each of them once."""
        self.signatures: list[str] = []
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._port = 0
        self._server: ThreadingHTTPServer | None = None

    @property
    def url(self) -> str:
        """Where it is, also while it is away."""
        return f"http://127.0.0.1:{self._port}/hooks"

    def __enter__(self) -> Self:
        self.come()
        return self

    def __exit__(self, *_: object) -> None:
        self.go()

    def come(self) -> None:
        """Listen, on the same port as before."""
        self._closing.clear()
        partner = self

        class Hooks(_Hooks):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                headers = {name.lower(): value for name, value in self.headers.items()}
                self.reply(partner.hear(body, headers), partner.retry_after)

        self._server = ThreadingHTTPServer(("127.0.0.1", self._port), Hooks)
        self._port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, args=[0.01], daemon=True).start()

    def go(self) -> None:
        """Be away: connections are refused."""
        self._closing.set()
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None

    def hear(self, body: bytes, headers: dict[str, str]) -> int:
        """Take an event, or not, and return the status to answer with."""
        with self._lock:
            self.asked += 1
            answer = self.answers.pop(0) if self.answers else _OK
            self.signatures.append(headers["x-signature"])
            if isinstance(answer, str) or answer == _OK:
                self.got.setdefault(headers["idempotency-key"], json.loads(body))
        if isinstance(answer, str):
            self._closing.wait(_TAKES[answer])
            return _OK
        return answer


class _Hooks(BaseHTTPRequestHandler):
    def reply(self, status: int, retry_after: int | None) -> None:
        try:
            self.send_response(status)
            if retry_after is not None:
                self.send_header("Retry-After", str(retry_after))
            self.send_header("Content-Length", "0")
            self.end_headers()
        except OSError:
            return  # The client has given up.

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - as it is there.
        """Say nothing: what was sent is in the log of the worker."""
