"""The kernel takes every limit of a wait, also one that is a moment short of whole seconds."""

from __future__ import annotations

import socket
import struct

import pytest

from windlass.store.redis.connections.blocking_connection import timeval

_TICK_SECONDS = 0.02
"""What the kernel may round a limit up to, at most."""


@pytest.mark.parametrize("seconds", [1e-9, 0.25, 0.9999999, 1.0, 29.9999995, 30.0, 86_400.5])
def test_the_kernel_takes_a_limit_and_waits_no_shorter(seconds: float) -> None:
    with socket.socket() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, timeval(seconds))
        taken = sock.getsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, 16)
    whole, micros = struct.unpack("ll", taken)
    assert seconds <= whole + micros / 1e6 <= seconds + _TICK_SECONDS
