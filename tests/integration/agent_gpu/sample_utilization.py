"""A program that prints GPU time per process as the arbiter hears of it, until its input ends."""

import json
import select
import sys

from aliquot.utilization import Utilization
from deviceplugin.gpus.nvml import Nvml

PAUSE_S = 0.05


def main() -> None:
    (gpu,) = json.loads(sys.argv[1])["gpus"]
    nvml = Nvml()
    nvml.open()
    utilization = Utilization(nvml.utilization)
    asked = 0
    while not select.select([sys.stdin], [], [], PAUSE_S)[0]:
        asked += 1
        if asked == 20:
            nvml.open()  # as after a fault: handles of the old session are worth nothing
        for _, used_ns, span_s in utilization.news([gpu]):
            shares = {str(pid): used / span_s / 1e9 for (_, pid), used in used_ns.items()}
            print(json.dumps({"shares": shares, "asked": asked}), flush=True)
    nvml.close()


main()
