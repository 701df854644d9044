"""Owns nothing: Django sends `post_migrate` only to apps that have a module of this name."""
