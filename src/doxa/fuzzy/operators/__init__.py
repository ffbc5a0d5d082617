"""Negations, t-norms, t-conorms and implications, one family in each file."""
