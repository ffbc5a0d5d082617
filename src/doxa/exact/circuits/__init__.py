"""Circuits: compiled, stored, evaluated."""
