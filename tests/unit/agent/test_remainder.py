"""Who still holds a part of a GPU when no agent keeps the books any more."""

import os
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import pytest

from deviceplugin.booking.ledger import Allocation, Owner
from deviceplugin.booking.remainder import Records, why_in_use
from deviceplugin.booking.sharing import Sharing
from deviceplugin.booking.sources import ContainerKey, Held, Holder
from deviceplugin.tenants.mountedfiles import Use, uses_of
from deviceplugin.uninstall import _by_allocation
from tests.unit.agent.agent_node import MEMORY, UNIT, uuid

IDS = frozenset({f"m-{uuid(0)}-1"})
BUSY = Allocation(MEMORY, IDS, (uuid(0),), UNIT, owner=Owner("team", "busy", "main", "uid-1"))
LISTED = [Held(ContainerKey("team", "busy", "main"), {MEMORY: IDS})]
KEPT = [Holder("uid-1", "main", MEMORY, IDS)]


@pytest.mark.parametrize(
    ("records", "text"),
    [
        (Records([BUSY], LISTED, checkpoint=KEPT), "still held by team/busy/main"),
        # The journal was lost; the kubelet knows it.
        (Records([], LISTED, checkpoint=KEPT), "still held by team/busy/main"),
        # The kubelet does not list it, but somebody runs.
        (Records([BUSY], [], mounted={BUSY.name: "process 7"}), "still held by team/busy/main"),
        (Records([], [], mounted={"lib/x.so": "process 7"}), "still held by process 7"),
        (Records([BUSY], None, "it is away"), "(it is away); by the last records it was team/busy"),
        (Records([], None, "it is away", KEPT), "it was container main of pod uid-1"),
        (Records([BUSY], [], checkpoint=KEPT, kubelet_age_s=3), "3 s ago"),
        (Records([BUSY], [], checkpoint=None, kubelet_age_s=3), "held by team/busy/main"),
    ],
)
def test_whoever_may_still_hold_something_is_named(records: Records, text: str) -> None:
    assert text in why_in_use(records, Sharing())


@pytest.mark.parametrize(
    "records",
    [
        # It ended while no agent ran: the journal has it for ever, the checkpoint for long.
        Records([BUSY], [], checkpoint=KEPT),
        Records([BUSY], [], checkpoint=None),
        Records([BUSY], [], checkpoint=[], kubelet_age_s=3),
        Records([], [], checkpoint=[], kubelet_age_s=3),
        Records([], None, "it is away", []),
        # Of another plugin.
        Records([], None, "it is away", [Holder("uid-2", "main", "nvidia.com/gpu", IDS)]),
    ],
)
def test_what_nobody_holds_may_go(records: Records) -> None:
    assert why_in_use(records, Sharing()) == ""


class Host:
    """A tree that looks like /proc of a host whose /var/lib is a file system of its own."""

    def __init__(self, folder: Path) -> None:
        self.proc = folder / "proc"
        self.state = folder / "lib/aliquot"
        self.state.mkdir(parents=True)
        self.process("self", "4026531840", f"29 1 8:1 / / rw\n30 29 8:2 / {folder}/lib rw\n")

    def process(self, pid: str, namespace: str, mountinfo: str, cgroup: str = "0::/\n") -> None:
        process = self.proc / pid
        (process / "ns").mkdir(parents=True)
        (process / "ns/mnt").symlink_to(f"mnt:[{namespace}]")
        (process / "mountinfo").write_text(mountinfo)
        (process / "cgroup").write_text(cgroup)


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    return Host(tmp_path)


POD = "1b9d6bcd-bbfd-4b2d-9b5d-ab8dfbbd4bed"
TENANT = (
    "40 29 0:50 / / rw\n"
    "41 40 8:2 /aliquot/lib/libaliquot-1.so /usr/local/lib/aliquot/libaliquot.so ro\n"
    "42 40 8:2 /aliquot/alloc/m-12/limits /etc/aliquot/memory/limits ro\n"
)


def test_a_running_container_is_found_by_what_it_has_mounted(host: Host) -> None:
    host.process("7", "1", TENANT, f"0::/kubepods/pod{POD}/{'a' * 64}\n")
    host.process("8", "1", TENANT)  # of the same container
    uses = uses_of(host.state, host.proc)
    assert {each.path for each in uses} == {
        PurePosixPath("lib/libaliquot-1.so"),
        PurePosixPath("alloc/m-12/limits"),
    }
    assert len(uses) == 2
    (named,) = _by_allocation(uses)
    assert named == "m-12"


def test_a_library_alone_is_a_use(host: Host) -> None:
    uses = [Use(PurePosixPath("lib/x.so"), 7, POD)]
    assert _by_allocation(uses) == {"lib/x.so": f"process 7 of pod {POD}"}


@pytest.mark.parametrize(
    "mountinfo",
    [
        # An agent, a cleaner, another file system, another folder, a plain process of the host.
        "42 40 8:2 /aliquot /var/lib/aliquot rw\n",
        "42 40 8:2 / /var/lib rw\n",
        "42 40 8:7 /aliquot/alloc/m-12/limits /etc/aliquot/memory/limits ro\n",
        "42 40 8:2 /aliquot-other/alloc/m-12/limits /etc/aliquot/memory/limits ro\n",
        "29 1 8:1 / / rw\n50 30 0:77 / /var/lib/aliquot/alloc/m-12/usage rw\n",
        "nonsense\n",
    ],
)
def test_mounts_of_others_are_no_use(host: Host, mountinfo: str) -> None:
    host.process("7", "1", mountinfo)
    assert uses_of(host.state, host.proc) == []


def test_the_real_proc_can_be_read(tmp_path: Path) -> None:
    assert uses_of(tmp_path) == []
    assert uses_of(Path(os.sep) / "there-is-no-such-folder") == []
