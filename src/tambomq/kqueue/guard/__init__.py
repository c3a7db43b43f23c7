"""Connections of users: their rights are checked before anything is forwarded."""
