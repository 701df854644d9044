"""Users' functions, and everything that they see of their runs."""
