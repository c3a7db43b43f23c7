"""Who may do what: tokens and sessions, the limit of wrong tokens, and where requests come from."""
