"""Leases, moves, redrives and audits: the parts that all protocols share."""
