"""The Redis store: jobs in Redis or Valkey, for any number of hosts."""

from windlass.store.redis.spaces import RedisSpaces
from windlass.store.redis.store import RedisStore

__all__ = ["RedisSpaces", "RedisStore"]
