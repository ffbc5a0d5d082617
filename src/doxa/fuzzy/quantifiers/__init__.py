"""Aggregators: what ∀ and ∃ compute, whole, in pieces, and as matrix products."""
