"""How pages stay up to date: shared reads, one watcher, Server-Sent Events."""
