"""Windlass inside other frameworks: one package for each, which imports that framework."""
