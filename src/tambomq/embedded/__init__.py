"""The bundled Valkey server: starts it, supervises it, keeps its data."""
