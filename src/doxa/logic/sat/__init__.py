"""Clauses, normal forms and solvers."""
