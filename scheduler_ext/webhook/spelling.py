"""Names that look like ours and are not: nobody reads them, and their author should know."""

from collections.abc import Iterable
from difflib import get_close_matches

from aliquot.protocol import names
from scheduler_ext.webhook.findings import Findings
from scheduler_ext.webhook.pod import OURS, Json, amounts, containers

__all__ = ["check_annotation_names", "check_resource_names"]

_PREFIX = f"{names.DOMAIN}/"
_OF_USERS = (
    *(names.POLICY, names.WEIGHT, names.GPUS, names.GPU_MODEL, names.GPU_UUID, names.PLACEMENT),
    *(names.GROUP, names.GROUP_SIZE, names.SHIM, names.RESIZE),
)
_OF_US = (names.PLAN, names.ACTUAL, names.RESIZED, names.RETRY)


def check_annotation_names(given: Iterable[str], findings: Findings) -> None:
    for name in sorted(given):
        if name.startswith(_PREFIX) and name not in (*_OF_USERS, *_OF_US):
            findings.warn(f"nobody reads the annotation {name}; {_advice(name, _OF_USERS)}")


def check_resource_names(pod: Json, findings: Findings) -> None:
    for container, _ in containers(pod):
        for name in sorted({*amounts(container, "limits"), *amounts(container, "requests")}):
            if name.startswith(_PREFIX) and name not in OURS:
                findings.warn(
                    f"container {container['name']} waits for {name}, which no node offers; "
                    f"{_advice(name, OURS)}"
                )


def _advice(name: str, known: tuple[str, ...]) -> str:
    close = get_close_matches(name.removeprefix(_PREFIX), [n.removeprefix(_PREFIX) for n in known])
    if close:
        return f"did you mean {_PREFIX}{close[0]}?"
    return f"there are {', '.join(known)}"
