"""The screens of `windlass top`: the panels, sheets over them, and a question over both."""
