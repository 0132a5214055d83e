"""How containers reach their GPUs: what of the driver they are given, by which road."""

import errno
import json
from pathlib import Path

import pytest

from deviceplugin.container import gpuaccess
from deviceplugin.container.driverfiles import library_mounts
from deviceplugin.container.gpuaccess import (
    CdiAccess,
    NodeAccess,
    RuntimeAccess,
    SimulatedAccess,
    choose_access,
)
from deviceplugin.container.grant import Mount
from deviceplugin.gpus.devicenodes import borrow_nodes
from deviceplugin.gpus.hardware import Hardware
from tests.unit.agent.agent_node import gpu, uuid


def _driver(host: Path) -> None:
    for path in ("dev/nvidiactl", "dev/nvidia-uvm", "dev/nvidia0"):
        (host / path).parent.mkdir(parents=True, exist_ok=True)
        (host / path).touch()
    folder = host / "usr/lib/x86_64-linux-gnu"
    folder.mkdir(parents=True)
    for name in ("libcuda.so.570.1", "libnvidia-ml.so.570.1", "libcuda.so.550.9"):
        (folder / name).touch()


def test_device_nodes_come_with_the_drivers_libraries(tmp_path: Path) -> None:
    _driver(tmp_path)
    access = NodeAccess(tmp_path)
    access.prepare(Hardware((gpu(0), gpu(1)), driver="570.1"))
    grant = access.grant((gpu(0),))
    assert [str(each.host) for each in grant.devices] == [
        "/dev/nvidia0",
        "/dev/nvidiactl",
        "/dev/nvidia-uvm",
    ]
    library = Path("/usr/lib/x86_64-linux-gnu/libcuda.so.570.1")
    assert Mount(library, Path("/usr/lib64/libcuda.so.1")) in grant.mounts
    assert Mount(library, Path("/usr/lib/x86_64-linux-gnu/libcuda.so.1")) in grant.mounts
    assert not any("550" in str(each.host) for each in grant.mounts)


def test_the_cdi_file_follows_the_gpus_and_is_written_back_when_removed(tmp_path: Path) -> None:
    _driver(tmp_path)
    access = CdiAccess(tmp_path / "cdi", tmp_path)
    access.prepare(Hardware((gpu(0),), driver="570.1"))
    written = json.loads(access.path.read_text())
    assert written["kind"] == "aliquot.dev/gpu"
    assert [each["name"] for each in written["devices"]] == [uuid(0)]
    assert written["devices"][0]["containerEdits"]["deviceNodes"][0]["path"] == "/dev/nvidia0"
    # Each in two folders: libcuda under two names, and NVML.
    assert len(written["containerEdits"]["mounts"]) == 6
    access.prepare(Hardware((gpu(0), gpu(1)), driver="570.1"))
    assert len(json.loads(access.path.read_text())["devices"]) == 2
    inode = access.path.stat().st_ino
    access.prepare(Hardware((gpu(0), gpu(1)), driver="570.1"))
    assert access.path.stat().st_ino == inode
    access.path.unlink()
    access.prepare(Hardware((gpu(0), gpu(1)), driver="570.1"))
    assert access.path.exists()
    assert access.grant((gpu(1),)).cdi == (f"aliquot.dev/gpu={uuid(1)}",)


def test_a_cdi_file_that_cannot_be_written_is_named_and_tried_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    _driver(tmp_path)
    folder = tmp_path / "cdi"
    folder.touch()  # no folder can be made there
    access = CdiAccess(folder, tmp_path)
    access.prepare(Hardware((gpu(0),), driver="570.1"))
    access.refresh()
    assert access.problem.startswith(f"{access.path}, by which containers find their GPU, cannot")
    assert "a folder with room that the agent may write to" in access.problem
    assert caplog.text.count(str(access.path)) == 1
    folder.unlink()
    access.refresh()
    assert access.problem == ""
    assert access.path.exists()


@pytest.mark.parametrize("kind", [CdiAccess, NodeAccess])
def test_a_driver_without_its_libraries_is_told_with_the_remedy(
    tmp_path: Path, kind: type[CdiAccess] | type[NodeAccess], caplog: pytest.LogCaptureFixture
) -> None:
    """Else every container would start, and find no CUDA."""
    _driver(tmp_path)
    access = CdiAccess(tmp_path / "cdi", tmp_path) if kind is CdiAccess else NodeAccess(tmp_path)
    access.prepare(Hardware((gpu(0),), driver="580.2"))
    access.refresh()
    assert access.problem.startswith(f"libcuda.so.580.2 is in none of {tmp_path}/usr/lib/")
    assert "--gpu-access runtime" in access.problem
    assert caplog.text.count("libcuda.so.580.2") == 1
    access.prepare(Hardware((gpu(0),), driver="570.1"))
    assert access.problem == ""


def test_a_driver_where_gke_installs_it_is_found(tmp_path: Path) -> None:
    home = tmp_path / "home/kubernetes/bin/nvidia"
    for file in ("lib64/libcuda.so.570.1", "bin/nvidia-smi"):
        (home / file).parent.mkdir(parents=True)
        (home / file).touch()
    access = NodeAccess(tmp_path)
    access.prepare(Hardware((gpu(0),), driver="570.1"))
    assert access.problem == ""
    sources = {str(each.host) for each in access.grant((gpu(0),)).mounts}
    assert sources == {
        "/home/kubernetes/bin/nvidia/lib64/libcuda.so.570.1",
        "/home/kubernetes/bin/nvidia/bin/nvidia-smi",
    }


@pytest.mark.parametrize("name", ["gpucomp", "tileiras", "pkcs11-openssl3"])
def test_libraries_that_are_asked_for_by_version_keep_it(tmp_path: Path, name: str) -> None:
    _driver(tmp_path)
    library = f"usr/lib/x86_64-linux-gnu/libnvidia-{name}.so.570.1"
    (tmp_path / library).touch()
    mounts = library_mounts(tmp_path, "570.1")
    assert Mount(Path("/") / library, Path("/") / library) in mounts
    assert {str(each.container) for each in mounts if name in str(each.host)} == {
        f"/{library}",
        f"/usr/lib64/libnvidia-{name}.so.570.1",
    }


def test_names_that_programs_load_libraries_by(tmp_path: Path) -> None:
    _driver(tmp_path)
    for name in ("libnvidia-nvvm.so.570.1", "libnvidia-nvvm70.so.4", "libnvidia-cfg.so.570.1"):
        (tmp_path / "usr/lib/x86_64-linux-gnu" / name).touch()
    names = {each.container.name for each in library_mounts(tmp_path, "570.1")}
    assert names == {
        "libcuda.so",
        "libcuda.so.1",
        "libnvidia-ml.so.1",
        "libnvidia-cfg.so.1",
        "libnvidia-nvvm.so.4",
        "libnvidia-nvvm70.so.4",
    }
    assert library_mounts(tmp_path, "") == ()


@pytest.mark.parametrize("place", ["usr/bin", "run/nvidia/driver/usr/bin"])
def test_nvidia_smi_is_where_people_call_it(tmp_path: Path, place: str) -> None:
    program = Path(place) / "nvidia-smi"
    (tmp_path / program.parent).mkdir(parents=True)
    (tmp_path / program).touch()
    assert library_mounts(tmp_path, "570.1") == (
        Mount(Path("/") / program, Path("/usr/bin/nvidia-smi")),
    )


def test_libraries_of_debians_packages_are_found(tmp_path: Path) -> None:
    folder = tmp_path / "usr/lib/x86_64-linux-gnu/nvidia/current"
    folder.mkdir(parents=True)
    (folder / "libcuda.so.570.1").touch()
    assert Mount(
        Path("/usr/lib/x86_64-linux-gnu/nvidia/current/libcuda.so.570.1"),
        Path("/usr/lib/x86_64-linux-gnu/libcuda.so.1"),
    ) in library_mounts(tmp_path, "570.1")


def test_nvidias_runtime_is_told_to_add_nothing(tmp_path: Path) -> None:
    """A CUDA image asks it for all GPUs, and where it is the default it would give them."""
    _driver(tmp_path)
    cdi = CdiAccess(tmp_path / "cdi", tmp_path)
    cdi.prepare(Hardware((gpu(0),), driver="570.1"))
    edits = json.loads(cdi.path.read_text())["containerEdits"]
    assert edits["env"] == ["NVIDIA_VISIBLE_DEVICES=void"]
    for access in (cdi, NodeAccess(tmp_path)):
        env = access.grant((gpu(0),)).env
        assert env["NVIDIA_VISIBLE_DEVICES"] == "void"
        assert env["TRITON_LIBCUDA_PATH"] == "/usr/lib64"


@pytest.mark.parametrize("kind", [CdiAccess, NodeAccess])
def test_what_the_driver_gets_later_is_found(
    tmp_path: Path, kind: type[CdiAccess] | type[NodeAccess], caplog: pytest.LogCaptureFixture
) -> None:
    """The module for unified memory is loaded when somebody needs it first."""
    _driver(tmp_path)
    (tmp_path / "dev/nvidia-uvm").unlink()
    access = CdiAccess(tmp_path / "cdi", tmp_path) if kind is CdiAccess else NodeAccess(tmp_path)

    def nodes() -> list[str]:
        if isinstance(access, NodeAccess):
            return [str(each.host) for each in access.grant(()).devices]
        edits = json.loads(access.path.read_text())["containerEdits"]
        return [each["path"] for each in edits["deviceNodes"]]

    access.prepare(Hardware((gpu(0),), driver="570.1"))
    access.refresh()
    assert nodes() == ["/dev/nvidiactl"]
    assert caplog.text.count("nvidia-modprobe -u -c=0") == 1
    (tmp_path / "dev/nvidia-uvm").touch()
    access.refresh()
    assert nodes() == ["/dev/nvidiactl", "/dev/nvidia-uvm"]
    assert caplog.text.count("nvidia-modprobe -u -c=0") == 1


def test_a_node_without_gpus_has_no_cdi_file_and_keeps_one_from_before(tmp_path: Path) -> None:
    access = CdiAccess(tmp_path / "cdi", tmp_path)
    access.prepare(Hardware())
    access.refresh()
    assert not access.path.exists()
    CdiAccess(tmp_path / "cdi", tmp_path).prepare(Hardware((gpu(0),)))
    before = access.path.read_text()
    access.refresh()
    assert access.path.read_text() == before


def test_device_nodes_of_a_driver_that_came_after_us_are_taken_over(tmp_path: Path) -> None:
    host, own = tmp_path / "host/dev", tmp_path / "dev"
    host.mkdir(parents=True)
    own.mkdir()
    zero, null = Path("/dev/zero").stat(), Path("/dev/null").stat()
    (host / "nvidiactl").symlink_to("/dev/zero")  # anything that is a device node
    (host / "nvidia0").symlink_to("/dev/null")
    (host / "nvidia1").symlink_to("/dev/zero")
    (host / "nvidia-caps").mkdir()
    (host / "sda").symlink_to("/dev/null")
    (own / "nvidia0").symlink_to("/dev/null")
    (own / "nvidia1").symlink_to("/dev/null")  # of a driver that was loaded before
    made: list[tuple[Path, int, int]] = []
    borrow_nodes(tmp_path / "host", own, lambda *node: made.append(node))
    assert made == [
        (own / "nvidia1", zero.st_mode, zero.st_rdev),
        (own / "nvidiactl", zero.st_mode, zero.st_rdev),
    ]
    assert (own / "nvidia0").stat().st_rdev == null.st_rdev

    def forbidden(*_: object) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    borrow_nodes(tmp_path / "host", own, forbidden)
    borrow_nodes(tmp_path / "nowhere", own, forbidden)


def test_the_way_to_the_gpu_is_chosen_by_what_the_host_has(tmp_path: Path) -> None:
    assert isinstance(choose_access("auto", tmp_path), NodeAccess)
    (tmp_path / "usr/bin").mkdir(parents=True)
    (tmp_path / gpuaccess.RUNTIME_PROGRAMS[0]).touch()
    assert isinstance(choose_access("auto", tmp_path), RuntimeAccess)
    (tmp_path / "etc/cdi").mkdir(parents=True)
    assert isinstance(choose_access("auto", tmp_path), CdiAccess)
    assert isinstance(choose_access("nodes", tmp_path), NodeAccess)
    with pytest.raises(ValueError, match="no way to reach a GPU"):
        choose_access("magic", tmp_path)


def test_on_a_simulated_node_another_driver_is_mounted() -> None:
    access = SimulatedAccess(Path("/opt/driver"), Path("/run/sim/state"))
    grant = access.grant((gpu(0),))
    assert grant.env == {
        "LD_LIBRARY_PATH": "/usr/local/lib/aliquot/driver",
        "ALIQUOT_SIM_STATE": "/run/aliquot/driver/state",
    }
    assert Mount(Path("/run/sim"), Path("/run/aliquot/driver"), read_only=False) in grant.mounts
