"""Whatever road a program takes to the driver's functions, it meets its cap."""

import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from simgpu.node import LIBRARIES
from tests.capped import GIB, ROOT, Share
from tests.simulated import simulated_node

SOURCES = Path(__file__).parent / "roads"

CAPPED = (
    "init=0 count=1 context=0 total=1024 alloc=2 managed=2 pitch=2 create=2 async=2 array=2 "
    "little=0 took=16 freed=0 back=1\n"
)
"""All that asks for 2 GiB is out of memory (2), a little is not, and comes back."""

Build = Callable[..., Path]


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> Build:
    """Compiles one of the programs in roads/, once for each set of flags."""
    folder = tmp_path_factory.mktemp("roads")
    built: dict[tuple[str, ...], Path] = {}

    def build(source: str, *flags: str, compiler: str = "cc") -> Path:
        key = (source, compiler, *flags)
        if key not in built:
            target = folder / f"{Path(source).stem}-{len(built)}"
            command = [compiler, "-O1", f"-I{ROOT / 'shim' / 'abi'}", f"-I{SOURCES}"]
            command += [str(SOURCES / source), "-o", str(target), *flags, "-ldl"]
            subprocess.run(command, check=True, timeout=120)
            built[key] = target
        return built[key]

    return build


@pytest.fixture
def share(tmp_path: Path) -> Iterator[Share]:
    """One GiB of the second of two GPUs."""
    with simulated_node("2xA100-80G") as node:
        yield Share.make(node, tmp_path / "run", {1: GIB})


LINK = (f"-L{LIBRARIES}", "-l:libcuda.so.1")
LIBRARY = ("-shared", "-fPIC", "-DIN_LIBRARY", *LINK)


@pytest.mark.parametrize("road", ["default", "next"])
def test_names_in_the_global_scope(share: Share, build: Build, road: str) -> None:
    program = build("road.c", "-Wl,--no-as-needed", *LINK)
    assert share.run([program, road]).stdout == CAPPED


@pytest.mark.parametrize(
    "name", ["libcuda.so.1", "libcuda.so", str(LIBRARIES / "libcuda.so.1"), "a link to it"]
)
@pytest.mark.parametrize("road", ["dlopen", "dlmopen"])
def test_a_handle_of_the_driver(
    share: Share, build: Build, road: str, name: str, tmp_path: Path
) -> None:
    more = {}
    if name in ("libcuda.so", "a link to it"):
        link = tmp_path / ("libcuda.so" if name == "libcuda.so" else "driver.so")
        link.symlink_to(LIBRARIES / "libcuda.so.1")
        name = str(link)
        more["LD_LIBRARY_PATH"] = f"{tmp_path}:{LIBRARIES}"
    assert share.run([build("road.c"), road, name], **more).stdout == CAPPED


def test_the_handle_of_the_program(share: Share, build: Build) -> None:
    program = build("road.c", "-Wl,--no-as-needed", *LINK)
    assert share.run([program, "dlopen-null"]).stdout == CAPPED


@pytest.mark.parametrize("road", ["dlvsym-2.2.5", "dlvsym-2.34", "dlsym-dlsym"])
def test_dlsym_that_was_looked_up(share: Share, build: Build, road: str) -> None:
    assert share.run([build("road.c"), road]).stdout == CAPPED


@pytest.mark.parametrize("version", [11030, 12000, 13040])
@pytest.mark.parametrize("road", ["proc", "proc-per-thread", "proc2", "proc2-per-thread"])
def test_the_drivers_own_lookup(share: Share, build: Build, road: str, version: int) -> None:
    assert share.run([build("road.c"), road, str(version)]).stdout == CAPPED


@pytest.mark.parametrize(
    "road",
    ["deepbind-linked", "deepbind-lazy", "deepbind-dlsym", "namespace-linked", "namespace-dlsym"],
)
def test_libraries_that_look_elsewhere_first(share: Share, build: Build, road: str) -> None:
    lazily = ("-Wl,-z,lazy",) if "lazy" in road else ("-Wl,-z,now",)
    library = build("linked.c", *LIBRARY, *lazily)
    assert share.run([build("road.c"), road, library]).stdout == CAPPED


def test_a_library_that_asks_for_what_comes_after_it(share: Share, build: Build) -> None:
    library = build("linked.c", *LIBRARY)
    assert share.run([build("road.c"), "library-next", library]).stdout == CAPPED


@pytest.mark.parametrize("where", ["main", "constructor"])
def test_link_time_symbols(share: Share, build: Build, where: str) -> None:
    flags = ("-DIN_CONSTRUCTOR",) if where == "constructor" else ()
    assert share.run([build("linked.c", *flags, *LINK)]).stdout == CAPPED


def test_static_objects_of_cpp(share: Share, build: Build) -> None:
    if shutil.which("c++") is None:
        pytest.skip("c++ is not installed")
    assert share.run([build("statics.cpp", *LINK, compiler="c++")]).stdout == CAPPED


@pytest.mark.parametrize("road", ["fork", "exec"])
def test_children(share: Share, build: Build, road: str) -> None:
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


def test_a_program_without_a_driver_still_has_none(
    share: Share, build: Build, tmp_path: Path
) -> None:
    done = share.run([build("absent.c")], LD_LIBRARY_PATH=str(tmp_path))
    assert (
        done.stdout == "dlopen: none\ndefault: none, dlerror says so\nnext: none\nweak call: 100\n"
    )


def test_foreign_functions_of_the_same_name_stay_themselves(share: Share, build: Build) -> None:
    library = build("foreign.c", "-shared", "-fPIC")
    assert (
        share.run([build("foreign_user.c"), library]).stdout
        == "cuMemAlloc_v2 of another library: 4711\n"
    )
