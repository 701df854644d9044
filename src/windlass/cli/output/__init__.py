"""How commands show things: tables, JSON, numbers, details of jobs."""
