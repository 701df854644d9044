"""Owns the root of the error tree, and errors of configuration and of calls."""

from __future__ import annotations


class WindlassError(Exception):
    """Anything that Windlass raises.

    Remedy:
        Catch it to handle all errors of Windlass in one place; catch a subclass to handle
        one.
    """


class ConfigError(WindlassError):
    """A setting, URL or registration that cannot work as it stands.

    Remedy:
        Correct what the message names; it says what is allowed. `windlass doctor` shows
        every setting, its value and where it came from.
    """


class ImportFailed(ConfigError):
    """A module of the app raised while it was imported; `__cause__` is that exception.

    Remedy:
        Run `python -c "import MODULE"` in the same environment, and correct what it shows.
    """


class ProviderError(WindlassError):
    """The value of a `provider` could not be opened, or is not open, for a `reason`.

    Remedy:
        Correct the provider that the message names, or register it with `app.provide`; ask
        for provided values only inside a worker or `app.open_provided()`.
    """

    def __init__(self, provider: str, reason: str) -> None:
        super().__init__(provider, reason)
        self.provider = provider
        self.reason = reason

    def __str__(self) -> str:
        return f"the provider {self.provider!r} {self.reason}"


class CalledFromEventLoop(WindlassError):
    """A blocking call was made in a running event loop, which it would stop.

    Remedy:
        Await the form with an `a`: `await handler.aenqueue(...)`.
    """

    def __init__(self, called: str, instead: str) -> None:
        super().__init__(called, instead)
        self.called = called
        self.instead = instead

    def __str__(self) -> str:
        return f"{self.called} would block the running event loop; write {self.instead}"
