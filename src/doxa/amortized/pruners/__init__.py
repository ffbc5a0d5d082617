"""Which values may come next, so that decoding never leaves what is possible."""
