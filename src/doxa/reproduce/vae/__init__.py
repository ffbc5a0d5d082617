"""Discrete variational autoencoders (Chapter 5)."""
