"""The AdmissionReview messages (admission.k8s.io/v1) around the decisions."""

import base64
from collections.abc import Callable
from typing import Any

import msgspec

from scheduler_ext.webhook.admission import Arrival, admit, confirm
from scheduler_ext.webhook.catalog import GpuCatalog
from scheduler_ext.webhook.findings import Findings
from scheduler_ext.webhook.patch import json_patch
from scheduler_ext.webhook.pod import ShapeError, check_shape
from scheduler_ext.webhook.quota import quota_warnings
from scheduler_ext.webhook.settings import WebhookSettings

__all__ = ["MalformedReviewError", "Webhook"]

_VERSION = "admission.k8s.io/v1"
_INVALID, _FORBIDDEN = 422, 403


class MalformedReviewError(ValueError):
    """What came is no AdmissionReview that we can answer; the text says why."""


class _Kind(msgspec.Struct):
    kind: str


class _User(msgspec.Struct):
    username: str = ""


class _Request(msgspec.Struct, rename="camel"):
    uid: str
    kind: _Kind
    operation: str
    namespace: str = ""
    user_info: _User = msgspec.field(default_factory=_User)
    object: Any = None
    old_object: Any = None


class _Review(msgspec.Struct, rename="camel"):
    api_version: str
    request: _Request


_decoder = msgspec.json.Decoder(_Review)


class Webhook:
    """`catalog` gives the GPUs known at the moment of the call; no method changes anything."""

    def __init__(self, settings: WebhookSettings, catalog: Callable[[], GpuCatalog]) -> None:
        self._settings = settings
        self._catalog = catalog

    def mutate(self, body: bytes) -> bytes:
        """Answers the mutating webhook: the pod converted and completed, or why it is refused."""
        request = _decode(body)
        if not _concerns_pods(request):
            return _answer(request, Findings())
        arrival = _arrival(request)
        pod, findings = admit(arrival, self._settings, self._catalog())
        operations = [] if findings.refusals else json_patch(arrival.pod, pod)
        return _answer(request, findings, operations)

    def validate(self, body: bytes) -> bytes:
        """Answers the validating webhook: pods as they will be stored, and quotas."""
        request = _decode(body)
        if request.kind.kind == "ResourceQuota":
            findings = Findings(warnings=quota_warnings(request.object, self._settings.unit_mib))
            return _answer(request, findings)
        if not _concerns_pods(request):
            return _answer(request, Findings())
        return _answer(request, confirm(_arrival(request), self._settings, self._catalog()))


def _decode(body: bytes) -> _Request:
    try:
        review = _decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise MalformedReviewError(f"the body is no AdmissionReview: {error}") from None
    if review.api_version != _VERSION:
        raise MalformedReviewError(f"only {_VERSION} is spoken here, not {review.api_version}")
    return review.request


def _concerns_pods(request: _Request) -> bool:
    return request.kind.kind == "Pod" and request.operation in ("CREATE", "UPDATE")


def _arrival(request: _Request) -> Arrival:
    try:
        old = check_shape(request.old_object) if request.operation == "UPDATE" else None
        pod = check_shape(request.object)
    except ShapeError as error:
        raise MalformedReviewError(str(error)) from None
    return Arrival(pod, old, request.namespace, request.user_info.username)


def _answer(
    request: _Request, findings: Findings, operations: list[dict[str, Any]] | None = None
) -> bytes:
    response: dict[str, Any] = {"uid": request.uid, "allowed": not findings.refusals}
    if findings.refusals:
        response["status"] = {
            "code": _FORBIDDEN if findings.forbidden else _INVALID,
            "reason": "Forbidden" if findings.forbidden else "Invalid",
            "message": "; ".join(findings.refusals),
        }
    if findings.warnings:
        response["warnings"] = findings.warnings
    if operations:
        response["patchType"] = "JSONPatch"
        response["patch"] = base64.b64encode(msgspec.json.encode(operations)).decode()
    return msgspec.json.encode(
        {"apiVersion": _VERSION, "kind": "AdmissionReview", "response": response}
    )
