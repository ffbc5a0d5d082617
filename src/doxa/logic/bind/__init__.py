"""What symbols mean: networks, tensors, tables and functions, and the data of a call."""
