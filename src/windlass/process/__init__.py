"""Parts that every process of Windlass needs: services, clocks, signals, channels and figures."""

CHANNEL_VARIABLE = "WINDLASS_SUPERVISOR_CHANNEL"
"""The environment variable with the descriptors that a supervisor shares with a worker's process.

It is here because every process looks for it, and most need nothing else of this package.
"""
