"""No good limits, no GPU; and a container's own limits beat whatever its environment says."""

import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from shim import limits
from shim.limits import Kind
from tests.native.account_programs import (
    CODE,
    Account,
    Client,
    compile_program,
    owner_at,
    some_limits,
    write_at,
)

# One worker compiles the programs, and uses them.
pytestmark = pytest.mark.xdist_group("ledger-closed")

# --- no limits, no GPU -------------------------------------------------------------------------


def remove(path: Path) -> None:
    path.unlink()


def empty(path: Path) -> None:
    os.truncate(path, 0)


def shorten(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 8)


def scribble(path: Path) -> None:
    path.write_bytes(random.Random(1).randbytes(path.stat().st_size))


def damage_header(path: Path) -> None:
    write_at(path, 20, b"\xff")


def replace_by_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def replace_by_link(path: Path) -> None:
    path.rename(path.with_name("elsewhere"))
    path.symlink_to("elsewhere")


def replace_by_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


DAMAGES = [
    *(remove, empty, shorten, scribble, damage_header),
    *(replace_by_pipe, replace_by_link, replace_by_folder),
]


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
@pytest.mark.parametrize("kind", Kind, ids=lambda kind: kind.name)
@pytest.mark.parametrize("name", ["limits", "usage"])
def test_without_four_good_files_there_is_no_gpu_and_one_line_says_which(
    program: Path, account: Account, damage: Callable[[Path], None], kind: Kind, name: str
) -> None:
    path = account.folder / kind.name.lower() / name
    damage(path)
    with Client(program, account.env) as client:
        assert client.ask("ready") == 0
        assert client.ask("ready") == 0
        assert not client.reserve(1)
        assert client.ask("devices") == 0
        assert client.ask("find", "0" * 32) == -1
        client.release(1)
        client.ask("force", 0, 1)
        said = client.leave()
    assert said.count("\n") == 1
    assert said.startswith("aliquot: no GPU for this process: ")
    assert str(path) in said
    assert client.code == 0


@pytest.mark.parametrize("run", [None, "", "relative", "/nowhere", "/" + "x" * 300])
def test_a_run_that_is_none_gives_no_gpu(program: Path, run: str | None) -> None:
    env = {name: value for name, value in os.environ.items() if name != "ALIQUOT_RUN"}
    if run is not None:
        env["ALIQUOT_RUN"] = run
    with Client(program, env) as client:
        assert client.ask("ready") == 0
        said = client.leave()
    assert said.count("\n") == 1


def test_limits_and_usage_for_different_numbers_of_gpus_do_not_fit(
    program: Path, account: Account
) -> None:
    limits.create(account.limits(), Kind.MEMORY, some_limits(1, 2))
    with Client(program, account.env) as client:
        assert client.ask("ready") == 0
        assert "another number of GPUs" in client.leave()


def test_a_program_that_needs_no_gpu_hears_nothing(program: Path) -> None:
    env = {**os.environ, "ALIQUOT_RUN": "/nowhere"}
    with Client(program, env) as client:
        assert client.say("hello") == "what is hello?"
        descriptors = sorted(path.name for path in Path(f"/proc/{client.pid}/fd").iterdir())
        assert client.leave() == ""
    assert descriptors == ["0", "1", "2"]


def test_full_slots_give_no_gpu(program: Path, account: Account) -> None:
    """Owners of another pid namespace cannot be judged from here, so they count as alive."""
    foreign = (4_000_000 << 26 | 1 << 12 | 1) * CODE + 1
    write_at(account.usage(), owner_at(0), foreign.to_bytes(8, "little") * 1024)
    with Client(program, account.env) as client:
        assert client.ask("ready") == 0
        assert "every process slot" in client.leave()


# --- a container's limits beat the environment -------------------------------------------------


@pytest.fixture(scope="module")
def contained(folder: Path) -> Path:
    """The client with the container's root below its working directory."""
    inside = folder / "contained"
    inside.mkdir()
    return compile_program("client", inside, '-DALIQUOT_ROOT="root"')


def test_a_containers_limits_beat_the_environment(
    contained: Path, tmp_path: Path, account: Account
) -> None:
    container = Account.create(tmp_path / "made", 100)
    for kind in ("memory", "compute"):
        (tmp_path / f"root/etc/aliquot/{kind}").mkdir(parents=True)
        (tmp_path / f"root/run/aliquot/{kind}").mkdir(parents=True)
        (container.folder / kind / "limits").rename(tmp_path / f"root/etc/aliquot/{kind}/limits")
        (container.folder / kind / "usage").rename(tmp_path / f"root/run/aliquot/{kind}/usage")
    with Client(contained, account.env, cwd=tmp_path) as client:
        assert client.ask("limit", 0) == 100
        assert not client.reserve(101)


@pytest.mark.parametrize("present", ["memory", "compute"])
def test_half_a_containers_limits_do_not_open_the_environments(
    contained: Path, tmp_path: Path, account: Account, present: str
) -> None:
    (tmp_path / "root/etc/aliquot" / present).mkdir(parents=True)
    with Client(contained, account.env, cwd=tmp_path) as client:
        assert client.ask("ready") == 0
        assert "root/etc/aliquot/memory/limits" in client.leave()
