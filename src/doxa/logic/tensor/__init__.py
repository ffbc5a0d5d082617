"""Formulas as tensor programs: quantifiers are axes, guards are index lists."""
