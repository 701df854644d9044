"""The settings and addresses of the shop."""
