"""Scripts of the Redis store: the Lua files, the calls of them, and the form of what is stored."""
