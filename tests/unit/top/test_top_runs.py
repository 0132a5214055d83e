"""Runs of this machine as a node: rates between two looks, with and without NVML."""

from typing import Any

import pytest

from aliquot.top.runs import GpuState, RunsLook, node_view

GIB = 1 << 30
GPU = GpuState("GPU-a", 1, "NVIDIA L4", 24 * GIB, 5 * GIB, 40.0)


def run(busy_s: float = 1.0, throttled_s: float = 0.0, **more: Any) -> dict[str, Any]:
    return {
        "id": "train",
        "policy": "burst",
        "weight": 1,
        "gpus": [
            {
                "index": 1,
                "uuid": "GPU-a",
                "limit_bytes": 4 * GIB,
                "used_bytes": 3 * GIB,
                "peak_bytes": 4 * GIB,
                "refused": 2,
                "compute_percent": 30.0,
                "busy_ns": int(busy_s * 1e9),
                "throttled_ns": int(throttled_s * 1e9),
                "launches": 10,
            }
        ],
        "commands": [{"pid": 7, "command": ["python", "-c", "a\nb"]}],
        "processes": [],
        **more,
    }


def look(at_s: float, *runs: dict[str, Any], gpus: tuple[GpuState, ...] = (GPU,)) -> RunsLook:
    return RunsLook(at_s, 1e9 + at_s, gpus, runs)


def test_a_run_is_shown_with_what_it_did_since_the_last_look() -> None:
    told = node_view("laptop", look(2, run(2.0, 0.5)), look(0, run(1.0, 0.0)))
    (gpu,) = told.gpus
    assert (gpu.model, gpu.utilization_percent, gpu.memory_used_bytes) == (
        "NVIDIA L4",
        40.0,
        5 * GIB,
    )
    (only,) = gpu.slices
    assert (only.namespace, only.pod, only.container) == ("", "train", "python -c 'a b'")
    assert (only.compute_used_percent, only.throttled_percent) == (50.0, 25.0)
    assert (only.memory_used_bytes, only.memory_refusals) == (3 * GIB, 2)


@pytest.mark.parametrize("before", [None, look(0), look(0, run(9.0, 9.0)), look(2, run())])
def test_a_run_that_cannot_be_compared_has_no_rates(before: RunsLook | None) -> None:
    (gpu,) = node_view("laptop", look(2, run()), before).gpus
    assert gpu.slices[0].compute_used_percent is None
    assert gpu.slices[0].throttled_percent is None


def test_without_nvml_its_gpu_is_known_by_the_run_alone() -> None:
    (gpu,) = node_view("laptop", look(1, run(), gpus=()), None).gpus
    assert (gpu.uuid, gpu.index, gpu.memory_bytes) == ("GPU-a", 1, 0)
    assert len(gpu.slices) == 1


def test_several_commands_of_a_run_are_counted() -> None:
    two = [{"pid": 1, "command": ["a"]}, {"pid": 2, "command": ["b"]}]
    (gpu,) = node_view("laptop", look(1, run(commands=two)), None).gpus
    assert gpu.slices[0].container == "a and 1 more"
    (gpu,) = node_view("laptop", look(1, run(commands=[])), None).gpus
    assert gpu.slices[0].container == "(ended)"
