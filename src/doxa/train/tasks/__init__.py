"""Tasks: data, networks and knowledge, trained, measured and compared."""
