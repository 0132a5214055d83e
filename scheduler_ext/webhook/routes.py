"""The webhook over HTTP: where the API server sends its reviews."""

from collections.abc import Callable, Mapping

from scheduler_ext.connection import HttpError, Response
from scheduler_ext.server import Route
from scheduler_ext.webhook.configuration import MUTATE_PATH, VALIDATE_PATH
from scheduler_ext.webhook.review import MalformedReviewError, Webhook

__all__ = ["webhook_routes"]


def webhook_routes(webhook: Webhook) -> list[Route]:
    return [
        Route("POST", MUTATE_PATH, _handler(webhook.mutate)),
        Route("POST", VALIDATE_PATH, _handler(webhook.validate)),
    ]


def _handler(
    answer: Callable[[bytes], bytes],
) -> Callable[[bytes, Mapping[str, str]], Response]:
    def handle(body: bytes, _: Mapping[str, str]) -> Response:
        try:
            return Response(answer(body))
        except MalformedReviewError as error:
            raise HttpError(400, str(error)) from None
        except RecursionError:
            # Nothing here calls itself, except to read and copy what came.
            raise HttpError(400, "the body is nested too deeply") from None

    return handle
