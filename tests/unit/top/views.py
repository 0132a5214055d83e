"""Views to draw: a cluster with all that can be seen in one."""

from aliquot.protocol.view import ClusterView, GpuView, NodeView, SliceView, WaitingView

GIB = 1 << 30


def part(pod: str, namespace: str = "team", **more: object) -> SliceView:
    known: dict[str, object] = {
        "container": "main",
        "policy": "burst",
        "memory_limit_bytes": 16 * GIB,
        "memory_used_bytes": 4 * GIB,
        "memory_peak_bytes": 5 * GIB,
        "memory_refusals": 0,
        "compute_percent": 30.0,
        "compute_used_percent": 20.0,
        "throttled_percent": 0.0,
    }
    return SliceView(namespace=namespace, pod=pod, **{**known, **more})  # type: ignore[arg-type]


def gpu(index: int, *slices: SliceView, **more: object) -> GpuView:
    known: dict[str, object] = {
        "model": "NVIDIA A100-SXM4-80GB",
        "memory_bytes": 80 * GIB,
        "memory_advertised_bytes": 80 * GIB,
        "memory_used_bytes": 30 * GIB,
        "utilization_percent": 55.0,
    }
    uuid = f"GPU-00000000-0000-0000-0000-{index:012d}"
    return GpuView(uuid=uuid, index=index, slices=slices, **{**known, **more})  # type: ignore[arg-type]


CLUSTER = ClusterView(
    taken_at=1000.0,
    version="1",
    nodes=(
        NodeView(
            name="gpu-b",
            taken_at=1000.0,
            problem="the agent has not answered for 40 s",
            gpus=(gpu(0, unusable="it has fallen off the bus", utilization_percent=None),),
        ),
        NodeView(
            name="gpu-a",
            taken_at=1000.0,
            gpus=(
                gpu(
                    0,
                    part("train-0", memory_used_bytes=15 * GIB, throttled_percent=40.0),
                    part("chat-7d9f6c5b4-x2k9p", "web", compute_used_percent=65.0),
                    part("pair", container="one", memory_limit_bytes=1 << 29, memory_used_bytes=1),
                    part("pair", container="two", shim_missing=2),
                    part("soon", is_running=False, memory_used_bytes=None),
                ),
                gpu(
                    1,
                    part("whole", memory_limit_bytes=None, compute_percent=100.0),
                    part("new", compute_used_percent=None, throttled_percent=None),
                    part("refused-" + "x" * 240, "n" * 63, memory_refusals=12345),
                ),
            ),
        ),
    ),
    waiting=(
        WaitingView(
            namespace="team",
            pod="large",
            since=400.0,
            asks="48 GiB and 50 % of one GPU",
            reason="its GPUs are free on none of 2 nodes: GPU 1 of gpu-a is the largest, with "
            "40 of 48 GiB asked; delete or resize a pod there, or ask for less",
        ),
    ),
)
