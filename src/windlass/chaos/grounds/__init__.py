"""The stores that chaos runs on, each with what can be done to it."""
