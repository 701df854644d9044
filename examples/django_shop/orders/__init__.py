"""Orders: their model, their tasks, their views."""
