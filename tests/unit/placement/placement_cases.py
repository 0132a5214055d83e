"""Made-up clusters and requests, and rules in plain Python that the vectorised code must meet."""

from itertools import combinations

from hypothesis import strategies as st

from scheduler_ext.placement import Cluster, Gpu, Link, Node, Request
from scheduler_ext.placement.holes import HoleValues

MODELS = ("A", "B")


def uniform_links(count: int, link: Link) -> tuple[tuple[Link, ...], ...]:
    return tuple(tuple(link for _ in range(count)) for _ in range(count))


def hole_value(values: HoleValues, compute_milli: int, memory_milli: int) -> float:
    compute, memory = compute_milli // values.step, memory_milli // values.step
    if values.table.shape[1] == 1:
        compute, memory = min(compute, memory), 0
    return float(values.table[compute, memory])


@st.composite
def link_tables(draw: st.DrawFn, count: int) -> tuple[tuple[Link, ...], ...]:
    if draw(st.booleans()):
        return ()
    pairs = {pair: draw(st.sampled_from(list(Link))) for pair in combinations(range(count), 2)}
    return tuple(
        tuple(pairs.get((min(a, b), max(a, b)), Link.NVLINK) for b in range(count))
        for a in range(count)
    )


@st.composite
def node_lists(draw: st.DrawFn) -> list[Node]:
    nodes = []
    for number in range(draw(st.integers(1, 5))):
        count = draw(st.sampled_from([0, 1, 2, 4]))
        model = draw(st.sampled_from(MODELS))
        memory = draw(st.sampled_from([40, 80]))
        nodes.append(
            Node(
                f"node-{number}",
                draw(st.sampled_from([8_000, 16_000, 32_000])),
                draw(st.sampled_from([16_384, 65_536])),
                tuple(Gpu(f"gpu-{number}-{d}", model, memory) for d in range(count)),
                draw(link_tables(count)),
            )
        )
    return nodes


@st.composite
def requests(draw: st.DrawFn) -> Request:
    gpus = draw(st.sampled_from([0, 1, 1, 1, 2, 3, 4]))
    cpu = draw(st.sampled_from([0, 1_000, 4_000, 9_000]))
    memory = draw(st.sampled_from([0, 2_048, 12_000]))
    if not gpus:
        return Request(cpu, memory)
    whole = draw(st.booleans())
    compute = 1000 if whole else draw(st.sampled_from([10, 250, 330, 500, 810]))
    units = (
        None if whole and draw(st.booleans()) else draw(st.sampled_from([1, 10, 20, 33, 40, 60]))
    )
    chosen = draw(st.sampled_from(["any", "any", "model", "not model", "uuid", "not uuid"]))
    models = frozenset(draw(st.sets(st.sampled_from(MODELS), min_size=1)))
    uuids = frozenset(
        draw(
            st.sets(
                st.sampled_from([f"gpu-{n}-{d}" for n in range(5) for d in range(4)]), min_size=1
            )
        )
    )
    return Request(
        cpu,
        memory,
        gpus,
        compute,
        units,
        models=models if chosen == "model" else frozenset(),
        excluded_models=models if chosen == "not model" else frozenset(),
        uuids=uuids if chosen == "uuid" else frozenset(),
        excluded_uuids=uuids if chosen == "not uuid" else frozenset(),
    )


def carries(cluster: Cluster, node: Node, device: int, request: Request) -> bool:
    """Whether a GPU can carry one share of the request, one comparison at a time."""
    row = cluster.row_of[node.name]
    gpu = node.gpus[device]
    asked = request.gpu_memory_units
    if request.models and gpu.model not in request.models:
        return False
    if gpu.model in request.excluded_models or gpu.uuid in request.excluded_uuids:
        return False
    if request.uuids and gpu.uuid not in request.uuids:
        return False
    if int(cluster.compute_free_milli[row, device]) < request.compute_milli:
        return False
    needed = gpu.memory_units if asked is None else asked
    return int(cluster.gpu_memory_free[row, device]) >= needed


def has_room(cluster: Cluster, node: Node, request: Request) -> bool:
    row = cluster.row_of[node.name]
    if int(cluster.cpu_free_milli[row]) < request.cpu_milli:
        return False
    if int(cluster.memory_free_mib[row]) < request.memory_mib:
        return False
    able = sum(carries(cluster, node, device, request) for device in range(len(node.gpus)))
    return able >= request.gpus


def connection(node: Node, devices: tuple[int, ...]) -> tuple[int, int]:
    """The weakest link of a set, then the sum of its links."""
    if not node.links:
        return (0, 0)
    pairs = [int(node.links[a][b]) for a, b in combinations(devices, 2)]
    return (min(pairs), sum(pairs))
