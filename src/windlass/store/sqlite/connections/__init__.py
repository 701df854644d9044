"""Access to the database file: connections, threads, and the lock between processes."""
