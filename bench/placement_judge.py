"""Replays decisions against the rules alone: nothing over-committed, nothing feasible refused."""

from bench.placement_files import Event
from scheduler_ext.placement import Decision, Node, Request


class _Left:
    """What one node has left, in plain numbers: the judge shares no code with the judged."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.cpu = node.cpu_milli
        self.memory = node.memory_mib
        self.compute = [1000] * len(node.gpus)
        self.gpu_memory = [gpu.memory_units for gpu in node.gpus]

    def carries(self, device: int, request: Request) -> bool:
        gpu = self.node.gpus[device]
        memory = request.gpu_memory_units
        return (
            (not request.models or gpu.model in request.models)
            and gpu.model not in request.excluded_models
            and (not request.uuids or gpu.uuid in request.uuids)
            and gpu.uuid not in request.excluded_uuids
            and self.compute[device] >= request.compute_milli
            and self.gpu_memory[device] >= (gpu.memory_units if memory is None else memory)
        )

    def has_room(self, request: Request) -> bool:
        if self.cpu < request.cpu_milli or self.memory < request.memory_mib:
            return False
        devices = range(len(self.compute))
        return sum(self.carries(device, request) for device in devices) >= request.gpus

    def book(self, devices: tuple[int, ...], request: Request, sign: int) -> None:
        self.cpu -= sign * request.cpu_milli
        self.memory -= sign * request.memory_mib
        for device in devices:
            memory = request.gpu_memory_units
            whole = self.node.gpus[device].memory_units
            self.compute[device] -= sign * request.compute_milli
            self.gpu_memory[device] -= sign * (whole if memory is None else memory)


def faults(
    nodes: list[Node], events: list[Event], decisions: dict[str, Decision | None]
) -> list[str]:
    """One sentence for each decision that breaks a rule; empty when all is well."""
    left = {node.name: _Left(node) for node in nodes}
    found: list[str] = []
    booked: dict[str, Decision] = {}
    for event in events:
        request = event.pod.request
        if not event.arrives:
            decision = booked.pop(event.seq, None)
            if decision:
                left[decision.node].book(decision.devices, request, -1)
            continue
        decision = decisions[event.seq]
        if decision is None:
            room = next((name for name, node in left.items() if node.has_room(request)), None)
            if room:
                found.append(f"{event.seq} was left out, though it fits on {room}")
            continue
        node = left[decision.node]
        in_range = all(device < len(node.compute) for device in decision.devices)
        right_count = len(set(decision.devices)) == len(decision.devices) == request.gpus
        enough = node.cpu >= request.cpu_milli and node.memory >= request.memory_mib
        if not (
            in_range
            and right_count
            and enough
            and all(node.carries(device, request) for device in decision.devices)
        ):
            found.append(f"{event.seq} does not fit on {decision.devices} of {decision.node}")
            continue
        node.book(decision.devices, request, 1)
        booked[event.seq] = decision
    return found
