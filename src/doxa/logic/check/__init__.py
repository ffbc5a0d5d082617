"""What can be said of knowledge before any data: mistakes, doubts, sorts."""
