"""A program that watches the GPUs of its node and prints every picture, until its input ends."""

import json
import logging
import os
import sys
from dataclasses import asdict
from pathlib import Path

from deviceplugin.gpus import health
from deviceplugin.gpus.hardware import Hardware
from deviceplugin.gpus.health import HealthWatch
from deviceplugin.gpus.inventory import Choice
from deviceplugin.gpus.nvml import Nvml


def main() -> None:
    logging.basicConfig(stream=sys.stderr, format="%(message)s", level=logging.INFO)
    options = json.loads(sys.argv[1])
    health.HANG_S = options.get("hang_s", health.HANG_S)
    health.STOP_S = options.get("stop_s", health.STOP_S)
    choice = Choice(frozenset(options.get("ours", ())), frozenset(options.get("others", ())))

    def publish(hardware: Hardware) -> None:
        counts = {f"{uuid} {xid}": count for (uuid, xid), count in watch.xid_counts.items()}
        print(json.dumps({**asdict(hardware), "xids": counts}), flush=True)

    watch = HealthWatch(
        Nvml(),
        publish,
        choice,
        quiet_s=options.get("quiet_s", 0.0),
        kernel_list=Path(os.devnull),
    )
    watch.start()
    sys.stdin.read()
    watch.stop()


main()
