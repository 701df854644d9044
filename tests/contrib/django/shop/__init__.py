"""A Django app for tests: orders, and tasks about them."""
