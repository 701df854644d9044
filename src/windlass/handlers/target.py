"""Owns the code of a kind: how it is called, with what, and how its result is encoded."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import cached_property
from typing import Any

from msgspec import Struct, field

from windlass.core.claims.room import Pool
from windlass.core.payloads.codec import PayloadCodec, encode_json
from windlass.core.payloads.protobuf.forms import Messages
from windlass.core.payloads.protobuf.hints import messages_in
from windlass.core.payloads.secret import Cipher, Sealing
from windlass.handlers.context import Context
from windlass.handlers.dependencies import Dependencies
from windlass.handlers.provided import Need, Overrides


class Target(Struct, frozen=True, kw_only=True, dict=True):
    """The code of a kind: how to call it, where it runs, its parameters and its result."""

    call: Callable[..., Any]
    """Takes the context, the payload, and the values of dependencies if there are any."""
    pool: Pool
    codec: PayloadCodec
    payload: Callable[[tuple[Any, ...], Mapping[str, Any]], Any]
    result: Any
    needs: tuple[Need, ...] = ()
    """The parameters that are provided values."""
    dependencies: Dependencies | None = None
    """What each run opens for itself."""
    parameters: frozenset[str] | None = None
    """The names of the arguments; None if the payload is one value."""
    defaults: Mapping[str, Any] = field(default_factory=dict)
    """The defaults of arguments that are not given."""
    result_cipher: Cipher | None = None
    """Encrypts the secrets in a result; None if it has none."""
    cipher: Cipher | None = None
    """Encrypts the secrets in the results of its steps."""

    @property
    def has_secrets(self) -> bool:
        """Whether its payload or its result can have secrets."""
        return self.codec.has_secrets or self.result_cipher is not None

    @cached_property
    def result_messages(self) -> Messages:
        """The protobuf messages that can be in its result."""
        return messages_in(self.result)

    def needs_under(self, overrides: Overrides) -> tuple[Need, ...]:
        """Return all provided values that a run needs, those of its dependencies among them."""
        dependencies = self.dependencies
        return self.needs + (() if dependencies is None else dependencies.plan(overrides).needs)

    def call_here(self, context: Context, value: Any) -> Awaitable[Any]:
        """Call an `async def` handler, with its dependencies around it."""
        call, dependencies = self.call, self.dependencies
        if dependencies is None:
            answer: Awaitable[Any] = call(context, value)
            return answer
        return dependencies.call(context, lambda injected: call(context, value, injected))

    def call_elsewhere(
        self, context: Context, value: Any, elsewhere: Callable[[Callable[[], Any]], Awaitable[Any]]
    ) -> Awaitable[Any]:
        """Call a `def` handler where it does not block, with its dependencies around it."""
        call, dependencies = self.call, self.dependencies
        if dependencies is None:
            return elsewhere(lambda: call(context, value))
        return dependencies.call_in_thread(
            context, lambda injected: call(context, value, injected), elsewhere
        )

    def encode_result(self, kind: str, value: Any, *, limit: int) -> bytes:
        """Encode the handler's return value, for a job of its kind or of an alias.

        Raises: PayloadInvalid: the value has no JSON form. PayloadTooLarge: it takes more bytes
        than the limit allows.
        """
        cipher = self.result_cipher
        sealing = None if cipher is None else Sealing(cipher, "result", kind)
        return encode_json(kind, value, limit=limit, sealing=sealing, messages=self.result_messages)
