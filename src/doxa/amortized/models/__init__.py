"""Inference models under one autoregressive face."""
