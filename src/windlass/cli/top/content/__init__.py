"""The content of `windlass top` as text, without a terminal: panels, alarms and sheets."""
