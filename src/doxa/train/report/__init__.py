"""Reports: one HTML page with its pictures inside."""
