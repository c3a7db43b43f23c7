"""The jobs of the shop: ``tambo work shop.jobs`` runs them."""

from __future__ import annotations

from tambomq.jobs import Jobs

mail = Jobs("mail")  # the server is that of the settings: TAMBO_REDIS_URL


@mail.job(attempts=5, timeout_s=30)
async def welcome(to: str, *, lang: str = "en") -> str:
    """Greet a new customer."""
    greeting = {"en": "Welcome", "de": "Willkommen"}[lang]
    return f"{greeting}, {to}!"
