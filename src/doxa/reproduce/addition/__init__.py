"""MNIST addition (Chapters 4 and 6)."""
