"""Owns the place for models, of which there are none: Django sends `post_migrate` only to apps
with a module of this name, and by it `manage.py migrate` makes the store.
"""
