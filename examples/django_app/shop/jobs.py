"""The jobs of the project: ``tambo work shop.jobs`` runs them, in the project's directory.

A worker is a process of its own, so Django is set up here, as in a script. Jobs that use the ORM
are plain functions: they run in threads, where Django may block.
"""

from __future__ import annotations

import os

import django
from django.apps import apps
from django.db import close_old_connections

from tambomq.jobs import Jobs

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "shop.settings")
if not apps.ready and not apps.loading:
    django.setup()

mail = Jobs("django-mail")  # the server is that of the settings: TAMBO_REDIS_URL


@mail.job(attempts=5, timeout_s=30)
def welcome(to: str, *, lang: str = "en") -> str:
    """Greet a new customer."""
    close_old_connections()  # as Django does before a request
    greeting = {"en": "Welcome", "de": "Willkommen"}[lang]
    return f"{greeting}, {to}!"
