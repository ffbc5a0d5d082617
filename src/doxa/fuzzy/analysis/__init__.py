"""What operators and their gradients do, computed and never looked up."""
