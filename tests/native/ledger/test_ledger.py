"""The memory account: exact under the cap, whoever comes, goes, forks or is killed."""

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from shim.limits import Kind
from tests.native.account_programs import (
    CAP,
    DEADLINE_S,
    GIB,
    NO_CAP_SHOWN,
    Account,
    Client,
    compile_program,
    gpu_uuid,
    run_program,
)

# One worker compiles the programs, and uses them.
pytestmark = pytest.mark.xdist_group("ledger")


@pytest.fixture(scope="module")
def storm(folder: Path) -> Path:
    return compile_program("storm", folder)


def await_that(holds: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + DEADLINE_S
    while not holds():
        assert time.monotonic() < end, what
        time.sleep(0.01)


def test_a_cap_holds_to_the_byte_for_all_processes_together(client: Client, other: Client) -> None:
    assert client.reserve(CAP - 100)
    assert not other.reserve(101)
    assert other.reserve(100)
    assert not client.reserve(1)
    assert client.used() == other.used() == CAP
    client.release(CAP - 100)
    assert client.used() == 100
    assert client.ask("held", 0) == 0
    assert other.ask("held", 0) == 100


def test_what_is_larger_than_anything_is_refused(client: Client) -> None:
    for bytes_ in (CAP + 1, 1 << 47, (1 << 47) + 1, 1 << 63, (1 << 64) - 1):
        assert not client.reserve(bytes_)
    assert client.used() == 0
    assert client.reserve(CAP)


def test_devices_have_accounts_of_their_own(program: Path, tmp_path: Path) -> None:
    account = Account.create(tmp_path / "run", 100, 200, 0, None)
    with Client(program, account.env) as client:
        assert client.ask("devices") == 4
        assert client.reserve(100, device=0)
        assert client.reserve(200, device=1)
        assert not client.reserve(1, device=0)
        assert not client.reserve(1, device=1)
        assert [client.ask("limit", d) for d in range(4)] == [100, 200, 0, NO_CAP_SHOWN]


def test_a_cap_of_zero_is_not_a_byte_and_no_cap_is_said_outright(
    program: Path, tmp_path: Path
) -> None:
    account = Account.create(tmp_path / "run", 0, None)
    with Client(program, account.env) as client, Client(program, account.env) as other:
        assert not client.reserve(1, device=0)
        assert client.reserve(0, device=0)
        assert client.reserve(1 << 40, device=1)
        assert other.reserve(1 << 40, device=1)
        assert client.used(1) == 1 << 41
        client.release(1 << 40, device=1)
        assert client.used(1) == 1 << 40


def test_a_gpu_outside_the_limits_does_not_exist(client: Client) -> None:
    assert client.ask("find", gpu_uuid(0)[4:].replace("-", "")) == 0
    assert client.ask("find", gpu_uuid(1)[4:].replace("-", "")) == -1


def test_what_the_driver_has_taken_is_booked_whatever_the_cap_says(
    client: Client, other: Client
) -> None:
    assert client.reserve(CAP)
    client.ask("force", 0, 50)
    assert client.used() == CAP + 50
    client.release(50)
    assert not other.reserve(1)
    client.release(1)
    assert other.reserve(1)


@pytest.mark.parametrize("caps", [(2 * CAP, 3 * CAP), (CAP // 2, CAP)])
def test_new_limits_hold_in_running_processes_at_once(
    client: Client, account: Account, caps: tuple[int, int]
) -> None:
    assert client.reserve(CAP)
    for cap in caps:
        account.resize(cap)
        assert client.ask("limit", 0) == cap
        if cap > CAP:
            assert client.reserve(cap - CAP)
            client.release(cap - CAP)
        assert not client.reserve(max(cap - CAP, 0) + 1)


def test_a_cap_below_what_is_used_refuses_until_it_fits(client: Client, account: Account) -> None:
    assert client.reserve(CAP)
    account.resize(CAP - 10)
    assert not client.reserve(1)
    assert client.used() == CAP
    client.release(10)
    assert not client.reserve(1)
    client.release(1)
    assert client.reserve(1)


def test_hundreds_of_updates_are_each_seen(client: Client, account: Account) -> None:
    for cap in range(1000, 1300):
        account.resize(cap)
        assert client.ask("limit", 0) == cap


def test_what_the_dead_held_comes_back(client: Client, other: Client) -> None:
    assert other.reserve(CAP)
    other.kill()
    # A request finds out at once; who only looks, within a second.
    assert client.reserve(CAP)
    client.release(CAP)
    await_that(lambda: client.used() == 0, "the account still counts a dead process")


def test_looking_alone_finds_the_dead(client: Client, other: Client) -> None:
    assert other.reserve(CAP)
    assert client.used() == CAP
    other.kill()
    await_that(lambda: client.used() == 0, "the account still counts a dead process")


def test_a_process_without_its_first_thread_is_alive(client: Client, other: Client) -> None:
    assert other.reserve(CAP)
    assert other.ask("leave-main-thread") == 1
    status = Path(f"/proc/{other.pid}/stat")
    await_that(lambda: ") Z " in status.read_text(), "the first thread does not end")
    assert not client.reserve(1)
    assert other.ask("held", 0) == CAP
    assert client.used() == CAP


def test_exit_without_freeing_gives_back(client: Client, other: Client) -> None:
    assert other.reserve(CAP)
    other.leave()
    assert client.reserve(CAP)


def test_a_child_starts_with_nothing_and_counts(client: Client) -> None:
    assert client.reserve(CAP // 2)
    inherited, granted, used = map(int, client.say("fork", 0, 1000).split())
    assert (inherited, granted, used) == (0, 1, CAP // 2 + 1000)
    assert client.reserve(CAP - CAP // 2)


def test_a_child_is_held_to_the_same_cap(client: Client) -> None:
    assert client.reserve(CAP)
    assert client.say("fork", 0, 1).split()[1] == "0"


def test_the_next_program_of_a_process_starts_with_nothing(
    client: Client, account: Account
) -> None:
    assert client.reserve(CAP)
    assert client.ask("exec") == 1
    assert client.ask("held", 0) == 0
    assert client.used() == 0
    assert client.reserve(CAP)
    assert len(account.read().processes) == 1


def test_counters_tell_the_peak_and_the_refusals(client: Client, account: Account) -> None:
    assert client.reserve(1000)
    assert client.reserve(500)
    client.release(1500)
    assert not client.reserve(CAP + 1)
    assert not client.reserve(CAP + 2)
    (device,) = account.read().devices
    assert (device.peak_bytes, device.refused) == (1500, 2)


def test_the_account_knows_its_processes(client: Client, other: Client, account: Account) -> None:
    assert client.reserve(1)
    assert client.ask("knows", client.pid) == 1
    assert client.ask("knows", other.pid) == 0
    assert other.reserve(1)
    assert client.ask("knows", other.pid) == 1
    assert {process.pid for process in account.read().processes} == {client.pid, other.pid}
    assert not any(process.is_gone() for process in account.read().processes)


def test_slots_are_used_again(program: Path, account: Account) -> None:
    for _ in range(20):
        with Client(program, account.env) as client:
            assert client.reserve(CAP)
    assert len(account.read().processes) == 1


# --- many at once ------------------------------------------------------------------------------


def test_sixteen_processes_fill_the_cap_and_never_pass_it(storm: Path, account: Account) -> None:
    run_program(storm, account, "fill", CAP, 1000, 16)


def test_a_request_that_fits_is_granted_in_the_end(storm: Path, tmp_path: Path) -> None:
    """Every process asks for more than half: one at a time fits, always one."""
    account = Account.create(tmp_path / "halves", 1001)
    run_program(storm, account, "fill", 1001, 600, 16)


@pytest.mark.parametrize(("processes", "threads"), [(1, 8), (2, 4), (8, 1)])
def test_random_requests_never_pass_the_cap(
    storm: Path, account: Account, processes: int, threads: int
) -> None:
    run_program(storm, account, "churn", CAP, processes, threads, 4000)


def test_the_account_survives_two_thousand_kills(storm: Path, account: Account) -> None:
    run_program(storm, account, "kill", CAP, 4, 2000)
    assert len(account.read().processes) <= 64


def test_a_fork_storm_leaves_nothing_behind(storm: Path, tmp_path: Path) -> None:
    account = Account.create(tmp_path / "tree", GIB)
    run_program(storm, account, "fork", 7)


def test_a_thousand_short_programs_leave_nothing_behind(storm: Path, tmp_path: Path) -> None:
    account = Account.create(tmp_path / "short", GIB)
    run_program(storm, account, "short", 1000)
    assert len(account.read().processes) <= 64


def test_a_killed_writer_never_leaves_half_limits(folder: Path, account: Account) -> None:
    torn = compile_program("torn", folder)
    run_program(torn, account, account.limits(Kind.MEMORY), 200)
