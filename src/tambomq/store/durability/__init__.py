"""Durability per send: calls that count as done once the disk or replicas have them."""
