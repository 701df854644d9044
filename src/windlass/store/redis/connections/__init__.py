"""Connections to Redis: opening, keeping and closing them, and the meaning of their errors."""
