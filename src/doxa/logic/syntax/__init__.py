"""Sorts, symbols, terms and formulas: the tree that everything else reads."""
