"""Refinement of random vectors towards 3-SAT formulas (Chapter 4)."""
