"""The servers of a Redis: where they are, which one has the keys, and how to connect to it."""
