"""`aliquot resize POD`: asks the node agent through an annotation, and waits for its answer."""

import sys
import time
import uuid
from argparse import Namespace
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from aliquot.errors import OperationError, UserError
from aliquot.kubernetes.client import ApiClient, connect
from aliquot.kubernetes.errors import ApiError, ApiServerError
from aliquot.kubernetes.objects import Pod, request_of
from aliquot.kubernetes.paths import pod_path
from aliquot.protocol import assignment, names, resize
from aliquot.protocol.assignment import MalformedError
from aliquot.protocol.quantity import QuantityError
from aliquot.protocol.request import PodRequest, RequestError
from aliquot.protocol.resize import Amounts, ResizeAnswer, ResizeRequest
from aliquot.sizes import format_size

__all__ = ["resize_pod"]

MIB = 1 << 20


def resize_pod(name: str, options: Namespace) -> int:
    client = connect(options.kubeconfig, options.context)
    try:
        namespace = options.namespace or client.namespace
        return _Resize(client, namespace, name, options).run()
    finally:
        client.close()


class _Resize:
    def __init__(self, client: ApiClient, namespace: str, name: str, options: Namespace) -> None:
        self._client = client
        self._path = pod_path(namespace, name)
        self._title = f"{namespace}/{name}"
        self._options = options

    def run(self) -> int:
        pod = self._read()
        request = self._request(pod)
        text = resize.encode(request)
        annotations = {names.RESIZE: text}
        try:
            self._client.patch(
                self._path, {"metadata": {"uid": pod.metadata.uid, "annotations": annotations}}
            )
        except ApiError as error:
            raise OperationError(f"pod {self._title} cannot be changed: {error}") from error
        answer = self._wait(pod, request.id)
        if answer is None:
            answer = self._withdraw(text, request.id)
        if answer is None:
            raise OperationError(
                f"the node agent of {pod.spec.node_name} has not answered within "
                f"{self._options.timeout:g} s, so the request was withdrawn; is the agent running "
                "there, and does it reach the API server?"
            )
        if answer.refusal:
            raise OperationError(f"pod {self._title} was not resized: {answer.refusal}")
        for container, amounts in answer.containers.items():
            print(f"pod {self._title}, container {container} now has {_text(amounts, answer)}")
        return 0

    def _read(self) -> Pod:
        try:
            pod = self._client.get(self._path, Pod)
        except ApiError as error:
            if error.not_found:
                raise UserError(
                    f"there is no pod {self._title}; name its namespace with -n"
                ) from None
            raise
        if not pod.spec.node_name:
            raise UserError(f"pod {self._title} has no node yet; change its limits and create anew")
        if pod.is_finished:
            raise UserError(f"pod {self._title} has finished ({pod.status.phase})")
        return pod

    def _request(self, pod: Pod) -> ResizeRequest:
        options = self._options
        container = self._container(pod)
        unit_mib = _unit_mib(pod)
        memory_units = compute_percent = None
        if options.memory is not None:
            try:
                memory_units = resize.units_for(options.memory, unit_mib)
            except QuantityError as error:
                raise UserError(f"--memory: {error}") from None
            if resize.counts_units(options.memory):
                meant = format_size(memory_units * unit_mib * MIB)
                print(f"--memory {options.memory} is that many units of {unit_mib} MiB: {meant}")
        if options.compute is not None:
            compute_percent = _percent(options.compute)
        wanted = {container: Amounts(memory_units, compute_percent)}
        return ResizeRequest(uuid.uuid4().hex[:12], wanted, unit_mib)

    def _container(self, pod: Pod) -> str:
        try:
            request = request_of(pod)
        except RequestError as error:
            raise UserError(f"pod {self._title} asks for GPUs in a wrong way: {error}") from None
        name = self._only_container(request)
        asked = {each.name: each for each in request.containers}
        if name not in asked:
            raise UserError(
                f"pod {self._title} has no container {name} with a part of a GPU; "
                f"there is {', '.join(asked) or 'none'}"
            )
        if request.is_whole(asked[name]):
            raise UserError(f"container {name} has whole GPUs; only parts of GPUs are resized")
        return name

    def _only_container(self, request: PodRequest) -> str:
        if self._options.container:
            return str(self._options.container)
        if len(request.containers) > 1:
            there_are = ", ".join(each.name for each in request.containers)
            raise UserError(f"say which container with -c; pod {self._title} has {there_are}")
        if not request.containers:
            raise UserError(f"pod {self._title} asks for no part of a GPU")
        return request.containers[0].name

    def _wait(self, pod: Pod, request_id: str) -> ResizeAnswer | None:
        began_s = time.monotonic()
        pause_s = 0.1
        with _progress() as show:
            while (waited_s := time.monotonic() - began_s) < self._options.timeout:
                show(f"waiting for the node agent of {pod.spec.node_name} ({waited_s:.0f} s)")
                time.sleep(min(pause_s, max(0.0, self._options.timeout - waited_s)))
                pause_s = min(1.0, pause_s * 1.5)
                try:
                    answer = self._answer(pod, request_id)
                except ApiServerError as error:
                    if isinstance(error, ApiError) and error.is_final:
                        raise
                    continue
                if answer is not None:
                    return answer
        return None

    def _answer(self, pod: Pod | None, request_id: str) -> ResizeAnswer | None:
        try:
            now = self._client.get(self._path, Pod)
        except ApiError as error:
            if error.not_found:
                raise OperationError(f"pod {self._title} was deleted meanwhile") from None
            raise
        if pod is not None and now.metadata.uid != pod.metadata.uid:
            raise OperationError(f"pod {self._title} was replaced by another one meanwhile")
        try:
            answer = resize.decode_answer(now.metadata.annotations.get(names.RESIZED, ""))
        except MalformedError:
            return None
        return answer if answer.id == request_id else None

    def _withdraw(self, text: str, request_id: str) -> ResizeAnswer | None:
        """An answer may have come at the last moment."""
        path = f"/metadata/annotations/{names.RESIZE.replace('/', '~1')}"
        steps = [{"op": "test", "path": path, "value": text}, {"op": "remove", "path": path}]
        try:
            self._client.patch(self._path, steps, kind="json")
        except ApiServerError as error:
            raise OperationError(
                f"the node agent has not answered within {self._options.timeout:g} s, and the "
                f"request could not be withdrawn: {error}"
            ) from error
        return self._answer(None, request_id)


def _percent(text: str) -> int:
    digits = text.removesuffix("%")
    is_short = 0 < len(digits) < 10  # Python reads no number of thousands of digits.
    if not (is_short and digits.isascii() and digits.isdigit() and int(digits)):
        raise UserError(f"--compute must be a whole percentage, not {text[:40]!r}")
    return int(digits)


def _unit_mib(pod: Pod) -> int:
    for name in (names.ACTUAL, names.PLAN):
        try:
            return assignment.decode(pod.metadata.annotations.get(name, "")).unit_mib
        except MalformedError:
            continue
    return ResizeRequest("", {}).unit_mib


def _text(amounts: Amounts, answer: ResizeAnswer) -> str:
    memory_bytes = (amounts.memory_units or 0) * answer.unit_mib * MIB
    return f"{format_size(memory_bytes)} of memory and {amounts.compute_percent} percent of compute"


@contextmanager
def _progress() -> Iterator[Callable[[str], None]]:
    """A line that is written over and over, for people only."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    try:
        yield lambda text: print(f"\r{text}", end="", file=sys.stderr, flush=True)
    finally:
        print("\r\x1b[K", end="", file=sys.stderr, flush=True)
