"""Single messages of each protocol: what Redis says of one, for `explain` to judge."""
