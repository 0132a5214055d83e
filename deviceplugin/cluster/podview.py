"""What the agent makes of a pod that the API server shows."""

from collections.abc import Mapping

from aliquot.kubernetes.objects import Pod, created_s, request_of
from aliquot.protocol import assignment, names
from aliquot.protocol.assignment import Assignment, MalformedError
from aliquot.protocol.request import RequestError
from deviceplugin.booking.sources import PodView

__all__ = ["view_of"]


def view_of(pod: Pod) -> PodView:
    request, refusal = None, ""
    try:
        request = request_of(pod)
    except RequestError as error:
        refusal = str(error)
    metadata = pod.metadata
    return PodView(
        namespace=metadata.namespace,
        name=metadata.name,
        uid=metadata.uid,
        request=request,
        plan=_assignment(metadata.annotations, names.PLAN),
        actual=_assignment(metadata.annotations, names.ACTUAL),
        resize=metadata.annotations.get(names.RESIZE, ""),
        refusal=refusal,
        created_s=created_s(metadata),
    )


def _assignment(annotations: Mapping[str, str], name: str) -> Assignment | None:
    # One that makes no sense is as good as none: the agent then chooses, and writes what it gave.
    text = annotations.get(name)
    if text is None:
        return None
    try:
        return assignment.decode(text)
    except MalformedError:
        return None
