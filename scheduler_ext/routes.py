"""The verbs, the explanation, health and metrics over HTTP: decoding, encoding, nothing decided."""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from operator import attrgetter
from typing import TypeVar
from urllib.parse import parse_qs

import msgspec

from scheduler_ext.binding import Binder
from scheduler_ext.connection import HttpError, Response
from scheduler_ext.explain import explain
from scheduler_ext.holdings import RefusedError
from scheduler_ext.metrics import Metrics
from scheduler_ext.ratings import Ratings
from scheduler_ext.reasons import Cause, Reason
from scheduler_ext.server import Route
from scheduler_ext.turns import undisturbed
from scheduler_ext.verbs import Verbs
from scheduler_ext.wire import (
    BindingArgs,
    BindingResult,
    ExtenderArgs,
    FilterResult,
    MetaPod,
    MetaVictims,
    PreemptionArgs,
    PreemptionResult,
)

__all__ = ["VERBS_PREFIX", "Service"]

VERBS_PREFIX = "/scheduler"

T = TypeVar("T")

_encode = msgspec.json.Encoder().encode
_EXTENDER_ARGS = msgspec.json.Decoder(ExtenderArgs)
_BINDING_ARGS = msgspec.json.Decoder(BindingArgs)
_PREEMPTION_ARGS = msgspec.json.Decoder(PreemptionArgs)


class Service:
    def __init__(
        self, verbs: Verbs, binder: Binder, metrics: Metrics, not_ready: Callable[[bool], str]
    ) -> None:
        """`not_ready(leading)`: why we cannot serve, and with `leading` not kube-scheduler; empty
        when we can."""
        self._verbs = verbs
        self._binder = binder
        self._metrics = metrics
        self._not_ready = not_ready
        self._ratings = Ratings(verbs.state.cluster)

    def routes(self) -> list[Route]:
        """For kube-scheduler and for administrators: whoever can call these can place pods."""
        return [
            self._route("filter", self._alone(self._filter)),
            self._route("prioritize", self._alone(self._prioritize)),
            self._route("preempt", self._preempt),
            self._route("bind", self._bind),
            Route("GET", "/explain", self._explain),
            *self.open_routes(),
        ]

    def open_routes(self) -> list[Route]:
        """For everybody in the cluster."""
        return [
            Route("GET", "/metrics", self._metrics_text),
            Route("GET", "/livez", lambda *_: _text("ok")),
            Route("GET", "/readyz", self._ready),
        ]

    def _route(self, name: str, handler: Callable[[bytes], bytes]) -> Route:
        def handle(body: bytes, _: Mapping[str, str]) -> Response:
            if text := self._not_ready(True):
                # Closed, so that the next call finds whoever leads instead of us again.
                raise HttpError(503, text, close=True)
            with self._metrics.timed(name):
                try:
                    return Response(handler(body))
                except HttpError:
                    self._metrics.failed(name)
                    raise

        return Route("POST", f"{VERBS_PREFIX}/{name}", handle)

    def _alone(self, handler: Callable[[bytes], bytes]) -> Callable[[bytes], bytes]:
        """From the first byte to the last: what happens in the cluster meanwhile is taken in
        afterwards, instead of piece by piece while kube-scheduler waits."""

        def handle(body: bytes) -> bytes:
            with self._verbs.state.lock, undisturbed():
                return handler(body)

        return handle

    def _filter(self, body: bytes) -> bytes:
        args = _decode(_EXTENDER_ARGS, body)
        names = _names(args)
        try:
            result = self._verbs.filter(args.pod, names)
        except RefusedError as error:
            self._metrics.failed("filter")
            return _encode(FilterResult([], {}, {}, str(error)))
        causes = Counter(map(attrgetter("cause"), result.failed.values()))
        self._metrics.rejected(causes)
        if result.failed and not result.passed:
            self._metrics.fitted_nowhere()
        may_change, permanent = _by_permanence(result.failed, causes)
        return _encode(FilterResult(result.passed, may_change, permanent))

    def _prioritize(self, body: bytes) -> bytes:
        args = _decode(_EXTENDER_ARGS, body)
        names = _names(args)
        try:
            rated = self._verbs.rate(args.pod, names)
        except RefusedError as error:
            raise HttpError(409, str(error)) from None
        return self._ratings.encode(names, rated.rows, rated.scores)

    def _preempt(self, body: bytes) -> bytes:
        args = _decode(_PREEMPTION_ARGS, body)
        given = args.node_name_to_meta_victims
        if given is None:
            raise HttpError(400, _NEEDS_NAMES)
        victims = {node: [pod.uid for pod in each.pods or ()] for node, each in given.items()}
        try:
            found = self._verbs.preempt(args.pod, victims)
        except RefusedError as error:
            raise HttpError(409, str(error)) from None
        return _encode(
            PreemptionResult(
                {
                    node: MetaVictims(
                        [MetaPod(uid) for uid in each.uids],
                        given[node].num_pdb_violations + each.violations,
                    )
                    for node, each in found.items()
                }
            )
        )

    def _bind(self, body: bytes) -> bytes:
        args = _decode(_BINDING_ARGS, body)
        try:
            self._binder.bind(args.pod_namespace, args.pod_name, args.pod_uid, args.node)
        except RefusedError as error:
            self._metrics.failed("bind")
            return _encode(BindingResult(str(error)))
        return _encode(BindingResult())

    def _explain(self, _: bytes, headers: Mapping[str, str]) -> Response:
        if text := self._not_ready(False):
            raise HttpError(503, text)
        asked = parse_qs(headers[":query"]).get("pod", [""])[0]
        namespace, slash, name = asked.partition("/")
        if not (namespace and slash and name):
            raise HttpError(400, "name the pod: /explain?pod=NAMESPACE/NAME")
        with self._verbs.state.lock:
            pod = self._verbs.state.pod_named(namespace, name)
        if pod is None:
            raise HttpError(404, f"there is no pod {asked[:300]} that asks for GPUs and still runs")
        return Response(_encode(explain(self._verbs, pod, time.monotonic())))

    def _metrics_text(self, _: bytes, __: Mapping[str, str]) -> Response:
        return Response(self._metrics.text(), content_type="text/plain; version=0.0.4")

    def _ready(self, _: bytes, __: Mapping[str, str]) -> Response:
        if text := self._not_ready(False):
            raise HttpError(503, text)
        return _text("ok")


_NEEDS_NAMES = (
    "the names of nodes are missing: set `nodeCacheCapable: true` for this extender in the "
    "KubeSchedulerConfiguration"
)


def _names(args: ExtenderArgs) -> list[str]:
    if args.node_names is None:
        raise HttpError(400, _NEEDS_NAMES)
    return args.node_names


def _by_permanence(
    failed: Mapping[str, Reason], causes: Iterable[Cause]
) -> tuple[dict[str, str], dict[str, str]]:
    """Texts of what may change and of what will not; mostly all nodes are one or the other."""
    texts = dict(zip(failed, map(attrgetter("text"), failed.values()), strict=True))
    are_permanent = {cause.is_permanent for cause in causes}
    if are_permanent == {True}:
        return {}, texts
    if True not in are_permanent:
        return texts, {}
    permanent = {name: reason.text for name, reason in failed.items() if reason.cause.is_permanent}
    return {name: text for name, text in texts.items() if name not in permanent}, permanent


def _decode(decoder: msgspec.json.Decoder[T], body: bytes) -> T:
    try:
        return decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise HttpError(400, f"the body is not what kube-scheduler sends: {error}") from None
    except RecursionError:
        raise HttpError(400, "the body is nested too deeply") from None


def _text(text: str) -> Response:
    return Response(text.encode(), content_type="text/plain")
