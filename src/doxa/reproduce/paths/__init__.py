"""Cheapest paths across maps (Chapter 6)."""
