"""Backups of the server's data: written while it runs, verified by loading them, and restored."""
