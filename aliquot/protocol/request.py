"""What a pod asks of GPUs, read from its annotations and its containers' limits."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum

from aliquot.protocol import names
from aliquot.protocol.quantity import QuantityError, parse_quantity

__all__ = ["ContainerRequest", "PodRequest", "RequestError", "Role", "Selection", "read_request"]

POLICIES = ("fixed", "burst", "best-effort")
PLACEMENTS = ("pack", "spread", "fragmentation")
WHOLE_PERCENT = 100
MOST_GPUS = 16
MOST_MODELS = 100
WEIGHT_MOST = 1000
# All bind calls of a group wait for each other at the same time, each on a connection of its own.
GROUP_SIZE_MOST = 256
# The API server's own limit for a resource.
_MOST_AMOUNT = 2**63 - 1
_GROUP_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?")
_WORD = re.compile(r"[a-z0-9]+")
_TWICE_EXCLUDED = re.compile(r"!\s*!")
_EXAMPLES = {names.GPU_MODEL: "A100,H100 or !T4", names.GPU_UUID: "GPU-8f6c2a31-... or !GPU-..."}


class RequestError(ValueError):
    """A request that can never work as written; the text says how to write it."""


class Role(Enum):
    """When a container runs: beside the others, before them, or before and beside them."""

    APP = "app"
    INIT = "init"
    SIDECAR = "sidecar"


@dataclass(frozen=True, slots=True)
class ContainerRequest:
    """Totals over all GPUs of the container. Without memory it asks for whole GPUs."""

    name: str
    memory_units: int
    compute_percent: int
    role: Role = Role.APP

    @property
    def asks(self) -> bool:
        return bool(self.memory_units or self.compute_percent)


@dataclass(frozen=True, slots=True)
class Selection:
    """Which GPUs a pod wants or does not want, by model or by uuid."""

    wanted: frozenset[str] = frozenset()
    excluded: frozenset[str] = frozenset()

    def admits_uuid(self, uuid: str) -> bool:
        return (not self.wanted or uuid in self.wanted) and uuid not in self.excluded

    def admits_model(self, model: str) -> bool:
        """Whole words count: `A100` is an `NVIDIA A100-SXM4-80GB`, and `A10` is not."""
        words = _words(model)
        if any(_words(name) <= words for name in self.excluded):
            return False
        return not self.wanted or any(_words(name) <= words for name in self.wanted)


@dataclass(frozen=True, slots=True)
class PodRequest:
    containers: tuple[ContainerRequest, ...]
    """Those that ask for something of ours."""
    gpus: int = 1
    """Over how many GPUs each container's request is split."""
    models: Selection = Selection()
    uuids: Selection = Selection()
    policy: str | None = None
    """None: the node's default."""
    weight: int = 1
    placement: str | None = None
    """None: the cluster's default."""
    group: str | None = None
    group_size: int = 1
    shim_off: bool = False

    def gpus_of(self, container: ContainerRequest) -> int:
        """How many GPUs the container gets: as annotated, or one for each whole hundred."""
        if self.gpus > 1:
            return self.gpus
        return max(1, container.compute_percent // WHOLE_PERCENT)

    def is_whole(self, container: ContainerRequest) -> bool:
        """Whether it takes all of its GPUs, memory included."""
        return (
            not container.memory_units
            and container.compute_percent == self.gpus_of(container) * WHOLE_PERCENT
        )


def read_request(
    annotations: Mapping[str, str],
    containers: Iterable[tuple[str, Mapping[str, str], Role]],
) -> PodRequest:
    """`containers` are names, resource limits and roles, in the pod's order."""
    request = PodRequest(
        containers=tuple(asked for each in containers if (asked := _container(*each)).asks),
        gpus=_number(annotations, names.GPUS, 1, MOST_GPUS),
        models=_selection(annotations, names.GPU_MODEL),
        uuids=_selection(annotations, names.GPU_UUID),
        policy=_one_of(annotations, names.POLICY, POLICIES),
        weight=_number(annotations, names.WEIGHT, 1, WEIGHT_MOST),
        placement=_one_of(annotations, names.PLACEMENT, PLACEMENTS),
        group=_group(annotations),
        group_size=_number(annotations, names.GROUP_SIZE, 1, GROUP_SIZE_MOST),
        shim_off=_one_of(annotations, names.SHIM, ("on", "off")) == "off",
    )
    for container in request.containers:
        _check(request, container)
    return request


def _container(name: str, limits: Mapping[str, str], role: Role) -> ContainerRequest:
    return ContainerRequest(
        name,
        memory_units=_count(limits, names.MEMORY_RESOURCE, name),
        compute_percent=_count(limits, names.COMPUTE_RESOURCE, name),
        role=role,
    )


def _count(limits: Mapping[str, str], resource: str, container: str) -> int:
    try:
        value = parse_quantity(limits.get(resource, "0"))
    except QuantityError as error:
        raise RequestError(f"container {container}: {resource}: {error}") from None
    if 0 <= value <= _MOST_AMOUNT and value == int(value):
        return int(value)
    example = "30 for 30 percent of one GPU" if resource == names.COMPUTE_RESOURCE else "4Gi or 16"
    raise RequestError(
        f"container {container}: {resource} must be a whole number, not {limits[resource]}; "
        f"write it like {example}"
    )


def _check(request: PodRequest, container: ContainerRequest) -> None:
    percent, gpus = container.compute_percent, request.gpus_of(container)
    if request.gpus == 1 and percent > WHOLE_PERCENT and percent % WHOLE_PERCENT:
        raise RequestError(
            f"container {container.name}: {percent} percent is more than one GPU and no multiple "
            f"of 100; ask for whole GPUs (100, 200, ...), or split a share with {names.GPUS}"
        )
    if percent > WHOLE_PERCENT * gpus:
        raise RequestError(
            f"container {container.name}: {gpus} GPUs have {WHOLE_PERCENT * gpus} percent, "
            f"{percent} were asked; raise {names.GPUS} or ask for less"
        )
    if gpus > MOST_GPUS:
        raise RequestError(
            f"container {container.name}: {percent} percent are {gpus} whole GPUs, a container can "
            f"have {MOST_GPUS} at most; split the work over several pods"
        )
    named = len(request.uuids.wanted)
    if named and named < gpus:
        raise RequestError(
            f"container {container.name} needs {gpus} different GPUs, {names.GPU_UUID} names only "
            f"{named}; name at least {gpus}, or ask for fewer"
        )
    for what, amount in (("memory units", container.memory_units), ("percent", percent)):
        if amount % gpus:
            raise RequestError(
                f"container {container.name}: {amount} {what} cannot be split evenly over "
                f"{gpus} GPUs; ask for a multiple of {gpus}"
            )


def _selection(annotations: Mapping[str, str], name: str) -> Selection:
    text = annotations.get(name, "")
    items = [item.strip() for item in text.split(",") if item.strip()]
    wanted = frozenset(item for item in items if not item.startswith("!"))
    excluded = frozenset(item[1:].strip() for item in items if item.startswith("!"))
    example = _EXAMPLES[name]
    if text and not items:
        # An empty text is what a template makes of no value; commas are somebody's mistake.
        raise RequestError(
            f"{name}: {text!r} names nothing; write it like {example}, or leave it out for any GPU"
        )
    for item in items:
        # A name without a letter or digit would select every GPU or none, depending on its side.
        if not _words(item) or _TWICE_EXCLUDED.match(item):
            raise RequestError(f"{name}: {item!r} names nothing; write it like {example}")
    for item in sorted(wanted & excluded):
        raise RequestError(f"{name} both wants and excludes {item!r}; keep one of the two")
    if name == names.GPU_MODEL:
        _check_models(wanted, excluded)
    return Selection(wanted, excluded)


def _check_models(wanted: frozenset[str], excluded: frozenset[str]) -> None:
    """Names of one model may differ in case, or one may say more than the other."""
    if len(wanted) + len(excluded) > MOST_MODELS:
        # Each is compared with each below, and with each model of the cluster later.
        raise RequestError(f"{names.GPU_MODEL} names more than {MOST_MODELS} models; name fewer")
    for item in sorted(wanted):
        for other in sorted(excluded):
            if _words(other) <= _words(item):
                raise RequestError(
                    f"{names.GPU_MODEL} both wants {item!r} and excludes it by {other!r}; keep one "
                    f"of the two"
                )


def _words(name: str) -> frozenset[str]:
    return frozenset(_WORD.findall(name.casefold()))


def _group(annotations: Mapping[str, str]) -> str | None:
    group = annotations.get(names.GROUP)
    if (group is None) != (names.GROUP_SIZE not in annotations):
        there, missing = (
            (names.GROUP, names.GROUP_SIZE)
            if group is not None
            else (names.GROUP_SIZE, names.GROUP)
        )
        raise RequestError(f"{there} needs {missing} beside it: pods of a group start all or none")
    if group is not None and not _GROUP_NAME.fullmatch(group):
        raise RequestError(
            f"{names.GROUP} must be up to 63 lower-case letters, digits, '-' and '.', starting and "
            f"ending with a letter or digit, not {group!r}"
        )
    return group


def _number(annotations: Mapping[str, str], name: str, default: int, most: int) -> int:
    text = annotations.get(name)
    if text is None:
        return default
    # The length first: Python refuses to read numbers of thousands of digits.
    short = text.isascii() and text.isdigit() and len(text) <= 9
    if not short or not 1 <= int(text) <= most:
        raise RequestError(f"{name} must be a whole number from 1 to {most}, not {text!r}")
    return int(text)


def _one_of(annotations: Mapping[str, str], name: str, choices: tuple[str, ...]) -> str | None:
    text = annotations.get(name)
    if text is not None and text not in choices:
        raise RequestError(f"{name} must be one of {', '.join(choices)}, not {text!r}")
    return text
