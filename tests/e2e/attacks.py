"""What hostile pods run against their limits, by what comes of it."""

from typing import Any

from tests.e2e.workloads import pod

__all__ = [
    "BEYOND_CAP",
    "CAP",
    "CAP_BYTES",
    "NO_GPU",
    "OWN_LOADER",
    "PREVENTED",
    "REPORTED",
    "hostile_pod",
]

CAP = "2Gi"
CAP_BYTES = 2 << 30
# Without the shim a program sees both GPUs of its node, and not which of them it was given.
BEYOND_CAP = "take=4096 use=1 take=4096"

DRIVER = "/usr/local/lib/aliquot/driver/libcuda.so.1"

# A program that goes on while its account is attacked; what it said is told afterwards.
BEFORE = """
client see take=1024 fill wait > /tmp/said &
until grep -q waiting /tmp/said; do sleep 0.2; done
"""
AFTERWARDS = """
cat /tmp/said
wait
"""

DAMAGE = f"""{BEFORE}
dd if=/dev/urandom of=/run/aliquot/memory/usage bs=1k count=8 seek=1 conv=notrunc
client take=1024 > /tmp/second 2>&1
{AFTERWARDS}"""

REWRITE = """
for limits in /etc/aliquot/*/limits; do
    cat /dev/zero > $limits; rm -f $limits; mv $limits /tmp; umount $limits
done
exec client see fill wait
"""

UNLOAD = """
rm -f /etc/ld.so.preload; true > /etc/ld.so.preload; umount /etc/ld.so.preload
rm -f /usr/local/lib/aliquot/libaliquot.so
exec client see fill wait
"""

FORK = """
client take=512 wait > /tmp/first &
until grep -q waiting /tmp/first; do sleep 0.2; done
client see fill wait &
wait
"""

PREVENTED = {
    "unsets LD_PRELOAD": "exec env -u LD_PRELOAD client see fill wait",
    "empties its environment": (
        "exec env -i LD_LIBRARY_PATH=$LD_LIBRARY_PATH ALIQUOT_SIM_STATE=$ALIQUOT_SIM_STATE "
        "/usr/local/bin/client see fill wait"
    ),
    "sets our variables": (
        "exec env ALIQUOT_LIMITS=/tmp ALIQUOT_MEMORY=80Gi ALIQUOT_RUN=x client see fill wait"
    ),
    "copies the driver": (
        f"cp {DRIVER} /tmp/driver.so; CUDA_LIBRARY=/tmp/driver.so exec client see fill wait"
    ),
    "names the driver by its path": f"CUDA_LIBRARY={DRIVER} exec client see fill wait",
    "writes to its limits": REWRITE,
    "removes the shim": UNLOAD,
    "damages its account": DAMAGE,
    "forks": FORK,
}

NO_GPU = {
    "starts with garbage for an account": (
        "head -c 60000 /dev/urandom > /run/aliquot/memory/usage; exec client see fill"
    ),
    "moves its limits away": "mv /etc/aliquot /gone && exec client see fill",
}

# A loader that reads another file than /etc/ld.so.preload: no library can prevent that.
OWN_LOADER = """
sed 's|/etc/ld.so.preload|/etc/ld.so.nothing|' /lib64/ld-linux-x86-64.so.2 > /tmp/loader
chmod +x /tmp/loader
exec /tmp/loader /usr/bin/python3 /usr/local/bin/client """

REPORTED = {
    "takes more than its cap past the shim": (OWN_LOADER + f"{BEYOND_CAP} wait", "over-cap"),
    "keeps below its cap, but without the shim": (OWN_LOADER + "take=512 wait", "shim-missing"),
    "wipes its account": (
        f"{BEFORE} head -c 65536 /dev/zero > /run/aliquot/memory/usage; {AFTERWARDS}",
        "account-damaged",
    ),
    "removes its account": (
        f"{BEFORE} rm -f /run/aliquot/memory/usage; {AFTERWARDS}",
        "account-damaged",
    ),
}


def hostile_pod(command: str, name: str = "hostile") -> dict[str, Any]:
    made = pod(name, memory=CAP, compute=20)
    made["spec"]["containers"][0]["command"] = ["sh", "-c", command]
    return made
