"""Figures for Prometheus: families, histograms and the exposition format."""
