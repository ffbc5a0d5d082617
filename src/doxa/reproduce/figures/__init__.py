"""The dissertation's figures, drawn anew."""
