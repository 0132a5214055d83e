"""Whatever road a program takes to the driver's functions, it meets its cap."""

import platform
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from simgpu.node import LIBRARIES
from tests.capped import GIB, SHIM, Share
from tests.native.road_programs import LINK, SHARED, SOURCES, build
from tests.simulated import simulated_node

CAPPED = (
    "init=0 count=1 context=0 total=1024 alloc=2 managed=2 pitch=2 create=2 async=2 array=2 "
    "little=0 took=16 freed=0 back=1\n"
)
"""All that asks for 2 GiB is out of memory (2), a little is not, and comes back."""


@pytest.fixture
def share(tmp_path: Path) -> Iterator[Share]:
    """One GiB of the second of two GPUs."""
    with simulated_node("2xA100-80G") as node:
        yield Share.make(node, tmp_path / "run", {1: GIB})


LIBRARY = (*SHARED, "-DIN_LIBRARY", *LINK)


@pytest.mark.parametrize("road", ["default", "next"])
def test_names_in_the_global_scope(share: Share, road: str) -> None:
    program = build("road.c", "-Wl,--no-as-needed", *LINK)
    assert share.run([program, road]).stdout == CAPPED


@pytest.mark.parametrize(
    "name", ["libcuda.so.1", "libcuda.so", str(LIBRARIES / "libcuda.so.1"), "a link to it"]
)
@pytest.mark.parametrize("road", ["dlopen", "dlmopen"])
def test_a_handle_of_the_driver(share: Share, road: str, name: str, tmp_path: Path) -> None:
    more = {}
    if name in ("libcuda.so", "a link to it"):
        link = tmp_path / ("libcuda.so" if name == "libcuda.so" else "driver.so")
        link.symlink_to(LIBRARIES / "libcuda.so.1")
        name = str(link)
        more["LD_LIBRARY_PATH"] = f"{tmp_path}:{LIBRARIES}"
    assert share.run([build("road.c"), road, name], **more).stdout == CAPPED


def test_the_handle_of_the_program(share: Share) -> None:
    program = build("road.c", "-Wl,--no-as-needed", *LINK)
    assert share.run([program, "dlopen-null"]).stdout == CAPPED


@pytest.mark.parametrize("road", ["dlvsym-2.2.5", "dlvsym-2.34", "dlsym-dlsym"])
def test_dlsym_that_was_looked_up(share: Share, road: str) -> None:
    assert share.run([build("road.c"), road]).stdout == CAPPED


@pytest.mark.parametrize("version", [11030, 12000, 13040])
@pytest.mark.parametrize("road", ["proc", "proc-per-thread", "proc2", "proc2-per-thread"])
def test_the_drivers_own_lookup(share: Share, road: str, version: int) -> None:
    assert share.run([build("road.c"), road, str(version)]).stdout == CAPPED


@pytest.mark.parametrize(
    "road",
    ["deepbind-linked", "deepbind-lazy", "deepbind-dlsym", "namespace-linked", "namespace-dlsym"],
)
def test_libraries_that_look_elsewhere_first(share: Share, road: str) -> None:
    lazily = ("-Wl,-z,lazy",) if "lazy" in road else ("-Wl,-z,now",)
    library = build("linked.c", *LIBRARY, *lazily)
    assert share.run([build("road.c"), road, library]).stdout == CAPPED


def test_a_library_that_asks_for_what_comes_after_it(share: Share) -> None:
    library = build("linked.c", *LIBRARY)
    assert share.run([build("road.c"), "library-next", library]).stdout == CAPPED


@pytest.mark.parametrize("where", ["main", "constructor"])
def test_link_time_symbols(share: Share, where: str) -> None:
    flags = ("-DIN_CONSTRUCTOR",) if where == "constructor" else ()
    assert share.run([build("linked.c", *flags, *LINK)]).stdout == CAPPED


def test_static_objects_of_cpp(share: Share) -> None:
    if shutil.which("c++") is None:
        pytest.skip("c++ is not installed")
    assert share.run([build("statics.cpp", *LINK, compiler="c++")]).stdout == CAPPED


@pytest.mark.parametrize("road", ["fork", "exec"])
def test_children(share: Share, road: str) -> None:
    assert share.run([build("road.c"), road]).stdout == CAPPED


def test_rust(share: Share, tmp_path: Path) -> None:
    if shutil.which("rustc") is None:
        pytest.skip("rustc is not installed")
    program = tmp_path / "road"
    command = ["rustc", "-O", "--edition=2021", SOURCES / "road.rs", "-o", program]
    subprocess.run(command, check=True, timeout=300)
    assert share.run([program]).stdout == "total=1024 alloc=2 little=0\n"


@pytest.mark.slow
def test_go(share: Share, tmp_path: Path) -> None:
    if shutil.which("go") is None:
        pytest.skip("go is not installed")
    program = tmp_path / "road"
    command = ["go", "build", "-o", str(program), str(SOURCES / "road.go")]
    subprocess.run(command, check=True, timeout=600)
    assert share.run([program]).stdout == "total=1024 alloc=2 little=0\n"


def test_a_program_without_a_driver_still_has_none(share: Share, tmp_path: Path) -> None:
    done = share.run([build("absent.c")], LD_LIBRARY_PATH=str(tmp_path))
    assert (
        done.stdout == "dlopen: none\ndefault: none, dlerror says so\nnext: none\nweak call: 100\n"
    )


def test_foreign_functions_of_the_same_name_stay_themselves(share: Share) -> None:
    library = build("foreign.c", *SHARED)
    assert (
        share.run([build("foreign_user.c"), library]).stdout
        == "cuMemAlloc_v2 of another library: 4711\n"
    )


@pytest.mark.parametrize("dlsym", ["leaves dlsym", "overrides dlsym"])
@pytest.mark.parametrize("place", ["before", "after"])
@pytest.mark.parametrize("road", ["linked", "dlopen"])
def test_beside_another_preloaded_library(share: Share, road: str, place: str, dlsym: str) -> None:
    flags = ("-DOVERRIDES_DLSYM", f'-DLIBC_VERSION="{_dlsym_version()}"')
    other = build("interposer.c", *SHARED, *(flags if dlsym.startswith("overrides") else ()))
    preload = [str(other), str(SHIM)] if place == "before" else [str(SHIM), str(other)]
    command = [build("linked.c", *LINK)] if road == "linked" else [build("road.c"), "dlopen"]
    command += ["libcuda.so.1"] if road == "dlopen" else []
    done = share.run(command, LD_PRELOAD=":".join(preload))
    assert done.stdout == CAPPED
    # Whoever comes first is called first; what stands behind us is passed by.
    reached = place == "before" and (road == "linked" or dlsym.startswith("overrides"))
    assert done.stderr == f"interposer: {2 if reached else 0}\n"


def test_a_driver_with_odd_habits_is_charged_once(share: Share) -> None:
    """It calls itself through symbols, hands our functions back, and others that it hides."""
    driver = build("odd_driver.c", *SHARED, "-Wl,-soname,libcuda.so.1", name="libcuda.so.1")
    uuid = share.node.snapshot().devices[1].uuid.removeprefix("GPU-").replace("-", "")
    done = share.run(
        [build("odd_user.c")], LD_LIBRARY_PATH=f"{driver.parent}:{LIBRARIES}", ODD_UUID=uuid
    )
    assert done.stdout.splitlines() == [
        *("alloc takes 64", "managed takes 64", "pitch takes 64", "left 0"),
        "a private address takes 64",
        # Its arguments are unknown, and what it takes could not be charged.
        "a newer one: 500, status 2, none",
    ], done.stderr


def _dlsym_version() -> str:
    """dlsym's version in this libc, by which a careful library asks for it."""
    return (
        "GLIBC_2.34"
        if tuple(map(int, platform.libc_ver()[1].split("."))) >= (2, 34)
        else ("GLIBC_2.17" if platform.machine() == "aarch64" else "GLIBC_2.2.5")
    )
