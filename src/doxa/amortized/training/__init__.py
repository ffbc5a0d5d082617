"""Priors over beliefs, losses and loops: how an inference model learns."""
