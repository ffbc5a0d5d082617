"""Run folders: configuration, checkpoints, resumption, metrics, results."""
