"""The console over HTTP: pages, static files, JSON API, live updates, log-in, audit log."""
