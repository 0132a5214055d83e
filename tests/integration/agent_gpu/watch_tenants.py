"""A program that looks after tenants and prints what every look has found, until its input ends."""

import json
import logging
import select
import sys
from pathlib import Path
from typing import Any

from deviceplugin.booking.allocator import ContainerAllocation
from deviceplugin.booking.sources import ContainerKey
from deviceplugin.gpus.nvml import Nvml
from deviceplugin.tenants.judgement import Breach
from deviceplugin.tenants.watch import TenantWatch

PAUSE_S = 0.1


def allocation(text: dict[str, Any]) -> ContainerAllocation:
    folder = Path(text["folder"])
    return ContainerAllocation(
        id=text["id"],
        key=ContainerKey("default", text["id"], "main"),
        pod_uid=text["pod_uid"],
        gpus=tuple(text["gpus"]),
        memory_units=16,
        compute_percent=100,
        whole=False,
        policy="fixed",
        weight=1,
        memory_limits=folder / "memory" / "limits",
        memory_usage=folder / "memory" / "usage",
        compute_limits=folder / "compute" / "limits",
        compute_usage=folder / "compute" / "usage",
        started=True,
        planned=None,
        member=None,
    )


def main() -> None:
    logging.basicConfig(stream=sys.stderr, format="%(message)s", level=logging.INFO)
    options = json.loads(sys.argv[1])
    allocations = [allocation(each) for each in options["allocations"]]
    told: list[Breach] = []
    nvml = Nvml()
    nvml.open()
    watch = TenantWatch(
        nvml,
        gpus=lambda: options["gpus"],
        allocations=lambda: allocations,
        shims=lambda: [Path(options["shim"])],
        report=told.append,
        proc=Path(options["proc"]),
    )
    looks = 0
    while not select.select([sys.stdin], [], [], PAUSE_S)[0]:
        watch.look()
        looks += 1
        lasting = [[breach.kind.value, breach.pod_uid] for breach in watch.breaches]
        texts = [[breach.kind.value, breach.text] for breach in told]
        print(json.dumps({"looks": looks, "told": texts, "lasting": lasting}), flush=True)
    nvml.close()


main()
