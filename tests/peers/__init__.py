"""Foreign clients for tests. `scripts/peers` installs each beside its manifest."""
