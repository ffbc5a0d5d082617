"""Engines for a problem: enumeration, elimination, compilation, and the planner between them."""
