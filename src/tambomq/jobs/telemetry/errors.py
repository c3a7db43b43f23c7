"""Middleware that reports what jobs raise, to Sentry or to a function. Imports no service's SDK."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, TypeAlias

from tambomq.errors import CancelJob, RetryIn
from tambomq.jobs.context import Context

Middleware: TypeAlias = Callable[[Context], AbstractAsyncContextManager[None]]
ReportIf: TypeAlias = Callable[[Context, Exception], bool]

NOT_ERRORS = (RetryIn, CancelJob)
"""A function raises these to decide what happens to its job: they are not failures."""


def capture_errors(
    capture: Callable[[Exception, Context], Any], *, report_if: ReportIf | None = None
) -> Middleware:
    """Return middleware that calls *capture* with what a run raises, which goes on as before.

    `RetryIn` and `CancelJob` are not reported, nor errors for which *report_if* returns false.
    """

    @asynccontextmanager
    async def middleware(context: Context) -> AsyncIterator[None]:
        try:
            yield
        except NOT_ERRORS:
            raise
        except Exception as error:
            if report_if is None or report_if(context, error):
                capture(error, context)
            raise

    return middleware


def sentry_errors(*, arguments: bool = False, report_if: ReportIf | None = None) -> Middleware:
    """Return middleware that reports what a run raises to Sentry, within a scope of its own.

    Call ``sentry_sdk.init`` yourself. *arguments*: send those of the job too, which may be
    personal data. See `capture_errors`.
    """

    @asynccontextmanager
    async def middleware(context: Context) -> AsyncIterator[None]:
        import sentry_sdk  # noqa: PLC0415  (the user's choice, and no dependency of ours)

        with sentry_sdk.isolation_scope() as scope:
            _describe(scope, context, arguments=arguments)
            report = capture_errors(
                lambda error, _: sentry_sdk.capture_exception(error), report_if=report_if
            )
            async with report(context):
                yield

    return middleware


def _describe(scope: Any, context: Context, *, arguments: bool) -> None:
    scope.clear_breadcrumbs()
    scope.set_transaction_name(f"{context.queue}.{context.name}", source="task")
    scope.set_tag("job.queue", context.queue)
    scope.set_tag("job.name", context.name)
    facts = {"id": context.job_id, "attempt": context.attempt}
    if arguments:
        facts["arguments"] = context.payload
    scope.set_context("job", facts)
