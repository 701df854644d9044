"""Owns the channel between two processes of Windlass: msgpack frames over a socket pair.

The messages are declared beside their subject: between a worker and its supervisor in
`process.supervisor_channel`, between a worker and its children in `worker.isolation.protocol`.
"""

from __future__ import annotations

import asyncio
import os
import socket
import struct
import threading
from contextlib import suppress
from typing import Generic, TypeVar

import msgspec

_LENGTH = struct.Struct("<I")
_RECEIVE_BYTES = 65_536
_encoder = msgspec.msgpack.Encoder()
Received = TypeVar("Received")


def frame(message: msgspec.Struct) -> bytes:
    """Encode a message, with its length before it."""
    body = _encoder.encode(message)
    return _LENGTH.pack(len(body)) + body


class Channel(Generic[Received]):
    """One end of a channel, which reads messages with a decoder."""

    def __init__(self, end: socket.socket, decoder: msgspec.msgpack.Decoder[Received]) -> None:
        self._end = end
        self._decoder = decoder
        self._partial = bytearray()
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._unsent: list[bytes] = []
        self._is_sending = False
        self._broken = False
        self.is_garbled = False
        """Whether bytes arrived that are no message, so that nothing after them can be read."""

    def fileno(self) -> int:
        """Return the descriptor."""
        return self._end.fileno()

    def offer(self, message: msgspec.Struct, *, keep: bool = True) -> bool:
        """Send a message without waiting; return False if the other end is gone, or in a fork.

        A message that does not fit into the buffer is sent before the next one; without `keep` it
        is dropped.
        """
        if os.getpid() != self._pid:
            return False
        data = frame(message)
        with self._lock:
            if not self._flush() or not self._try_send(data):
                self._unsent += [data] if keep and not self._broken else []
        return not self._broken

    def send(self, message: msgspec.Struct) -> None:
        """Send a message of any size, blocking until it is out.

        Raises:
            OSError: the other end is gone.
        """
        with self._lock:
            self._end.sendall(frame(message))

    async def send_from_loop(self, message: msgspec.Struct) -> None:
        """Send a message of any size; messages that are offered meanwhile follow it."""
        loop = asyncio.get_running_loop()
        self._unsent.append(frame(message))
        self._is_sending = True
        try:
            while self._unsent:
                await loop.sock_sendall(self._end, self._unsent[0])
                self._unsent.pop(0)
        except BaseException as error:
            # A part of a frame may have been sent, so no other frame can follow.
            self._broken = True
            if not isinstance(error, OSError):
                raise
        finally:
            self._is_sending = False

    def receive(self) -> list[Received] | None:
        """Return the messages that have arrived, maybe none; None at the end.

        Waits for data if the socket blocks.
        """
        try:
            data = b"" if self.is_garbled else self._end.recv(_RECEIVE_BYTES)
        except BlockingIOError:
            return []
        except OSError:
            return None
        return self._decode(data) if data else None

    def receive_rest(self) -> list[Received]:
        """Return all messages that have arrived at a socket that does not block."""
        messages: list[Received] = []
        with suppress(OSError):
            while not self.is_garbled and (data := self._end.recv(_RECEIVE_BYTES)):
                messages += self._decode(data)
        return messages

    def finish_sending(self) -> None:
        """Let the other end read the end of the stream."""
        with suppress(OSError):
            self._end.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """Close this end."""
        self._end.close()

    def _flush(self) -> bool:
        while self._unsent and not self._is_sending and self._try_send(self._unsent[0]):
            self._unsent.pop(0)
        return not self._unsent

    def _try_send(self, data: bytes) -> bool:
        if self._broken:
            return False
        try:
            sent = self._end.send(data, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return False
        except OSError:
            sent = 0
        # Half a frame may have been sent, so no other frame can follow.
        self._broken = sent < len(data)
        return not self._broken

    def _decode(self, data: bytes) -> list[Received]:
        self._partial += data
        messages: list[Received] = []
        while len(self._partial) >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(self._partial)
            end = _LENGTH.size + length
            if len(self._partial) < end:
                break
            try:
                messages.append(self._decoder.decode(self._partial[_LENGTH.size : end]))
            except msgspec.MsgspecError:
                self.is_garbled = True
                break
            del self._partial[:end]
        return messages
