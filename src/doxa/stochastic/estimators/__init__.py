"""Gradient estimators, one idea in each file."""
