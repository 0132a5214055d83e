"""Missing, damaged, truncated or foreign files: no cap rises, nothing hangs, nobody crashes."""

import os
import random
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from shim import limits
from shim.limits import Kind
from tests.native.account_programs import (
    DEADLINE_S,
    Account,
    Client,
    compile_program,
    some_limits,
)

# One worker compiles the programs, and uses them.
pytestmark = pytest.mark.xdist_group("ledger-damage")

CAP = 1_000_003
CODE = 65521
"""Words of the usage file say 65521 v + 1."""

HEADER_BYTES = 64
COUNTERS_BYTES = 64


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("account")


@pytest.fixture(scope="module")
def program(folder: Path) -> Path:
    return compile_program("client", folder)


@pytest.fixture
def account(tmp_path: Path) -> Account:
    return Account.create(tmp_path / "run", CAP)


@pytest.fixture
def client(program: Path, account: Account) -> Iterator[Client]:
    with Client(program, account.env) as client:
        yield client


@pytest.fixture
def other(program: Path, account: Account) -> Iterator[Client]:
    with Client(program, account.env) as other:
        yield other


def write_at(path: Path, offset: int, data: bytes) -> None:
    """Writes into the file as it lies, as damage does."""
    descriptor = os.open(path, os.O_WRONLY)
    try:
        os.pwrite(descriptor, data, offset)
    finally:
        os.close(descriptor)


def owner_at(slot: int) -> int:
    return HEADER_BYTES + COUNTERS_BYTES + 8 * slot


def word_at(slot: int) -> int:
    return HEADER_BYTES + COUNTERS_BYTES + 8 * 1024 + 8 * slot


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


# --- damage under running processes ------------------------------------------------------------


def test_a_process_repairs_its_own_word(client: Client, other: Client, account: Account) -> None:
    assert client.reserve(CAP - 10)
    for damage in (b"\0" * 8, b"\xff" * 8, b"\x01" + b"\0" * 7, b"damaged!"):
        write_at(account.usage(), word_at(0), damage)
        assert not client.reserve(11)
        assert client.reserve(1)
        client.release(1)
        assert client.used() == CAP - 10
    assert other.reserve(10)
    assert not other.reserve(1)


def test_another_ones_damaged_word_counts_as_full(
    client: Client, other: Client, account: Account
) -> None:
    assert client.reserve(10)
    assert other.reserve(10)
    write_at(account.usage(), word_at(0), b"damaged!")
    assert not other.reserve(1)
    assert other.used() == CAP
    assert client.reserve(1)
    assert other.reserve(1)
    write_at(account.usage(), word_at(0), b"damaged!")
    client.kill()
    assert other.reserve(CAP - 11)
    assert not other.reserve(1)


def test_a_damaged_owner_is_never_taken_for_dead(
    client: Client, other: Client, account: Account
) -> None:
    assert client.reserve(CAP)
    for damage in (b"\0" * 8, b"damaged!", b"\xff" * 8):
        write_at(account.usage(), owner_at(0), damage)
        assert not other.reserve(1)
        client.release(1)
        assert client.reserve(1)
        assert not other.reserve(1)


def test_a_slot_that_was_lost_is_claimed_again(
    client: Client, other: Client, account: Account
) -> None:
    assert client.reserve(CAP - 1)
    free = (1).to_bytes(8, "little")
    write_at(account.usage(), owner_at(0), free)
    write_at(account.usage(), word_at(0), free)
    assert client.ask("held", 0) == CAP - 1
    client.release(1)
    assert not other.reserve(3)
    assert other.reserve(2)


def test_a_damaged_mark_only_costs_time(client: Client, other: Client, account: Account) -> None:
    assert client.reserve(CAP - 10)
    for damage in (b"\0" * 8, b"damaged!", b"\xff" * 8):
        write_at(account.usage(), 56, damage)
        assert not other.reserve(11)
        assert other.reserve(10)
        other.release(10)
        assert client.used() == CAP - 10


@pytest.mark.parametrize("seed", range(12))
def test_random_damage_never_raises_the_cap(
    program: Path, account: Account, tmp_path: Path, seed: int
) -> None:
    """One process holds half and sleeps; another never gets beyond the rest."""
    dice = random.Random(seed)
    size = account.usage().stat().st_size
    with Client(program, account.env) as sleeper, Client(program, account.env) as waker:
        assert sleeper.reserve(CAP // 2)
        assert waker.reserve(1)
        held = 1
        for _ in range(30):
            # Most of the file is never used: half of the damage goes where it hurts.
            start = dice.choice([0, HEADER_BYTES, owner_at(0), word_at(0), dice.randrange(size)])
            data = dice.choice([dice.randbytes(8), b"\0" * dice.randrange(1, 64), b"\xff"])
            write_at(account.usage(), start + dice.randrange(16), data[: size - start - 16])
            asked = dice.randrange(1, CAP // 4)
            if waker.reserve(asked):
                held += asked
            assert held <= CAP - CAP // 2
            if dice.random() < 0.3:
                waker.release(held - 1)
                held = 1
            waker.used()
        assert sleeper.ask("held", 0) == CAP // 2
        assert waker.ask("held", 0) == held
    assert (sleeper.code, waker.code) == (-9, -9)


@pytest.mark.parametrize("left", [0, 64, 4096, 10000])
def test_truncation_fails_closed(
    client: Client, other: Client, account: Account, left: int
) -> None:
    assert client.reserve(CAP // 2)
    assert other.reserve(1)
    os.truncate(account.usage(), left)
    for process in (client, other):
        assert not process.reserve(CAP - CAP // 2)
    for process in (client, other):
        process.release(1)
        process.ask("force", 0, 1)
        assert process.used() <= CAP
        assert process.leave().count("\n") <= 1
        assert process.code == 0


def test_truncation_and_growth_fail_closed(client: Client, other: Client, account: Account) -> None:
    size = account.usage().stat().st_size
    assert client.reserve(CAP // 2)
    assert other.reserve(1)
    os.truncate(account.usage(), 0)
    os.truncate(account.usage(), size)
    assert not other.reserve(CAP - CAP // 2)
    assert not client.reserve(CAP - CAP // 2)
    client.release(CAP // 2)
    assert client.ask("held", 0) == 0


def test_deletion_keeps_the_account_of_those_who_have_it(
    program: Path, client: Client, other: Client, account: Account
) -> None:
    assert client.reserve(CAP - 1)
    assert other.reserve(1)
    account.usage().unlink()
    assert not other.reserve(1)
    client.release(1)
    assert other.reserve(1)
    with Client(program, account.env) as late:
        assert late.ask("ready") == 0


@pytest.mark.parametrize("left", [0, 200])
def test_truncated_limits_leave_the_last_caps(client: Client, account: Account, left: int) -> None:
    assert client.reserve(1)
    os.truncate(account.limits(), left)
    assert client.ask("limit", 0) == CAP
    assert not client.reserve(CAP)
    assert client.reserve(CAP - 1)


def test_damaged_limits_leave_the_last_caps(client: Client, account: Account) -> None:
    assert client.reserve(1)
    size = account.limits().stat().st_size
    write_at(account.limits(), 128, random.Random(2).randbytes(size - 128))
    assert client.ask("limit", 0) == CAP
    assert not client.reserve(CAP)


# --- SIGBUS is the program's, too --------------------------------------------------------------


def test_the_programs_own_faults_stay_its_own(client: Client, account: Account) -> None:
    assert client.ask("handle-sigbus") == 1
    assert client.reserve(1)
    assert client.say("own-fault") == "1 0"
    os.truncate(account.usage(), 0)
    assert not client.reserve(1)
    assert client.say("own-fault") == "2 0"


def test_a_handler_that_came_later_is_passed_on_to(client: Client, account: Account) -> None:
    assert client.reserve(1)
    assert client.ask("handle-sigbus") == 1
    assert client.say("own-fault") == "1 0"
    assert not client.reserve(CAP + 1)  # the slow path, where the guard is put back
    os.truncate(account.usage(), 0)
    assert not client.reserve(1)
    assert client.say("own-fault") == "2 0"


def test_a_fault_that_nobody_handles_kills_as_ever(client: Client) -> None:
    assert client.reserve(1)
    client.order("own-fault")
    client.leave()
    assert client.code == -7


# --- words ---------------------------------------------------------------------------------


def test_a_refusal_is_logged_on_request(program: Path, account: Account) -> None:
    with Client(program, {**account.env, "ALIQUOT_LOG": "1"}) as client:
        assert client.reserve(3)
        assert not client.reserve(CAP)
        said = client.leave()
    assert said == (
        f"aliquot: refused {CAP} bytes on GPU 0: 3 of {CAP} in use, process {client.pid} (client)\n"
    )


@pytest.mark.parametrize("log", ["", "0", None])
def test_refusals_are_silent_otherwise(program: Path, account: Account, log: str | None) -> None:
    env = account.env if log is None else {**account.env, "ALIQUOT_LOG": log}
    with Client(program, env) as client:
        assert not client.reserve(CAP + 1)
        assert client.leave() == ""


# --- pid namespaces ----------------------------------------------------------------------------

UNSHARE = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc")


def test_a_process_of_another_pid_namespace_is_never_judged(
    program: Path, account: Account, client: Client
) -> None:
    try:
        permitted = subprocess.run([*UNSHARE, "true"], capture_output=True, timeout=DEADLINE_S)
    except FileNotFoundError:
        pytest.skip("unshare is not installed")
    if permitted.returncode != 0:
        pytest.skip("may not make a pid namespace here")
    with Client(program, account.env, *UNSHARE) as inner:
        assert inner.reserve(CAP)
        assert not client.reserve(1)
        inner.kill()
        # From here its inner pid names somebody else or nobody: only who sees the host can tell.
        assert not client.reserve(1)
    (process,) = [each for each in account.read().processes if each.held_bytes == (CAP,)]
    assert not process.is_gone()
