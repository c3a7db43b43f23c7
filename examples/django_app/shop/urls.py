"""The pages of the project."""

from __future__ import annotations

from django.db import transaction
from django.http import HttpRequest, JsonResponse
from django.urls import path

from shop.jobs import welcome


def sign_up(request: HttpRequest) -> JsonResponse:
    """Add a job once the transaction is committed: a worker may be quicker than the commit."""
    to = request.GET["to"]
    transaction.on_commit(lambda: welcome.add_sync(to=to))
    return JsonResponse({"to": to}, status=202)


urlpatterns = [path("sign-up", sign_up)]
