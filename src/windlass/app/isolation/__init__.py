"""How a child process finds the app and its handlers."""
