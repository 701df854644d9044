"""Owns sessions of people who logged in with the token: a signed cookie, and a bound on guesses."""

from __future__ import annotations

import hashlib
import hmac
import time
from collections import OrderedDict, deque
from collections.abc import Callable

COOKIE = "windlass_session"
SESSION_SECONDS = 12 * 3600
MAX_ADDRESSES = 1024
FAILURE_SECONDS = 60
_MAX_FAILURES = 10


class Sessions:
    """Makes and checks cookies that prove knowledge of the token, without containing it."""

    def __init__(self, token: str, clock: Callable[[], float] = time.time) -> None:
        self._token = token.encode()
        self._key = hashlib.sha256(b"windlass web session\0" + self._token).digest()
        self._clock = clock
        self._failures: OrderedDict[str, deque[float]] = OrderedDict()

    def knows(self, given: str, address: str) -> bool:
        """Return whether this is the token; record a failure of the address if it is not.

        The time that it takes does not depend on the token.
        """
        if hmac.compare_digest(given.encode(errors="replace"), self._token):
            return True
        failures = self._failures.setdefault(address, deque(maxlen=_MAX_FAILURES))
        failures.append(self._clock())
        self._failures.move_to_end(address)
        if len(self._failures) > MAX_ADDRESSES:
            self._failures.popitem(last=False)
        return False

    def log_in(self, given: str, address: str) -> str | None:
        """Return a new cookie if this is the token; record a failure if it is not."""
        if not self.knows(given, address):
            return None
        until = str(int(self._clock()) + SESSION_SECONDS)
        return f"{until}.{self._signature(until)}"

    def is_throttled(self, address: str) -> bool:
        """Return whether an address has to wait, since too many of its tokens were wrong lately."""
        failures = self._failures.get(address)
        if failures is None or len(failures) < _MAX_FAILURES:
            return False
        return self._clock() - failures[0] < FAILURE_SECONDS

    def is_valid(self, cookie: str) -> bool:
        """Return whether a cookie was signed with this token, and has not expired."""
        until, _, signature = cookie.partition(".")
        if not until.isascii() or not until.isdigit() or len(until) > 12:
            return False
        expected = self._signature(until)
        is_signed = hmac.compare_digest(signature.encode(errors="replace"), expected.encode())
        return is_signed and int(until) > self._clock()

    def _signature(self, until: str) -> str:
        return hmac.new(self._key, until.encode(), hashlib.sha256).hexdigest()
