"""Jobs that belong together: flows, steps, compensation and events."""
