"""`same` and `sum9`: digits with few labels and fuzzy logic (Chapter 3)."""
