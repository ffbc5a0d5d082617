"""Digits from labels, and networks that do not reason: what there is to be gained."""
