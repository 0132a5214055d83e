"""What counts as a breach, and who is held responsible for it."""

from collections.abc import Mapping

from hypothesis import given, settings
from hypothesis import strategies as st

from deviceplugin.booking.sources import ContainerKey
from deviceplugin.tenants.judgement import (
    SLACK_BYTES,
    Account,
    Breach,
    Kind,
    Tenant,
    Use,
    attribute,
    judge,
)
from deviceplugin.tenants.procfs import FileId, Mount, ProcessView

GIB = 1 << 30
GPU, OTHER_GPU = "GPU-a", "GPU-b"
SHIM = 42
SHIMS = frozenset({SHIM})
FILE = FileId(0, 55, 7)
TENANT = Tenant("t1", ContainerKey("ns", "pod", "main"), "uid-1", {GPU: 4 * GIB})


def seen(pid: int, shim: bool = True, **more: object) -> ProcessView:
    shims = frozenset({SHIM}) if shim else frozenset()
    return ProcessView(pid, **{"pod_uid": "uid-1", "shims": shims, **more})  # type: ignore[arg-type]


def verdict(
    uses: list[Use],
    booked_bytes: int | None = None,
    tenant: Tenant = TENANT,
    shim: bool = True,
    fault: str = "",
) -> list[Breach]:
    """With all processes in the tenant's container; by default its account is right."""
    processes = {use.pid: seen(use.pid, shim) for use in uses}
    used = sum(use.used_bytes or 0 for use in uses)
    account = Account({GPU: used if booked_bytes is None else booked_bytes}, fault)
    owners = dict.fromkeys(processes, tenant)
    return judge(uses, processes, owners, {tenant.id: account}, SHIMS)


def kinds(breaches: list[Breach]) -> list[Kind]:
    return [breach.kind for breach in breaches]


# --- judging -----------------------------------------------------------------------------------


def test_who_keeps_to_the_cap_has_nothing_to_fear() -> None:
    assert verdict([Use(GPU, 1, 4 * GIB)]) == []
    assert verdict([Use(GPU, 1, 4 * GIB + SLACK_BYTES)]) == []
    assert verdict([Use(GPU, 1, None)]) == [], "some drivers do not tell"


def test_memory_beyond_the_cap_is_a_breach_whatever_the_account_says() -> None:
    (breach,) = verdict([Use(GPU, 1, 5 * GIB)])
    assert breach.kind is Kind.OVER_CAP
    assert breach.pod_uid == "uid-1"
    assert "ns/pod/main has 5Gi of GPU-a, its cap is 4Gi" in breach.text


def test_the_processes_of_a_container_share_its_cap() -> None:
    assert kinds(verdict([Use(GPU, 1, 3 * GIB), Use(GPU, 2, 3 * GIB)])) == [Kind.OVER_CAP]


def test_memory_that_the_account_does_not_explain_is_a_breach() -> None:
    (breach,) = verdict([Use(GPU, 1, 3 * GIB)], booked_bytes=GIB)
    assert breach.kind is Kind.NOT_BOOKED
    assert "has 3Gi of GPU-a but accounts for 1Gi" in breach.text


def test_an_account_that_claims_too_much_hurts_only_itself() -> None:
    assert verdict([Use(GPU, 1, GIB)], booked_bytes=1 << 46) == []


def test_a_damaged_account_is_told_with_its_fault() -> None:
    (breach,) = verdict([Use(GPU, 1, GIB)], fault="is too short")
    assert breach.kind is Kind.ACCOUNT_DAMAGED
    assert "is too short" in breach.text


def test_a_process_without_the_shim_is_a_breach() -> None:
    (breach,) = verdict([Use(GPU, 9, GIB)], shim=False)
    assert (breach.kind, breach.pids) == (Kind.SHIM_MISSING, (9,))
    assert "process 9 of ns/pod/main uses GPU-a without the shim" in breach.text


def test_several_processes_without_the_shim_are_one_breach_of_their_container() -> None:
    (breach,) = verdict([Use(GPU, 9, GIB), Use(GPU, 8, GIB)], shim=False)
    assert set(breach.pids) == {8, 9}
    assert "process 8 (and 1 more) of ns/pod/main uses" in breach.text


def test_another_file_with_the_shims_name_does_not_count() -> None:
    processes = {1: ProcessView(1, "uid-1", shims=frozenset({SHIM + 1}))}
    accounts = {"t1": Account({GPU: GIB})}
    assert kinds(judge([Use(GPU, 1, GIB)], processes, {1: TENANT}, accounts, SHIMS)) == [
        Kind.SHIM_MISSING
    ]


def test_a_pod_that_is_excused_from_the_shim_is_held_to_its_cap_only() -> None:
    excused = Tenant("t1", None, "uid-1", {GPU: 4 * GIB}, has_shim=False)
    assert verdict([Use(GPU, 1, 3 * GIB)], 0, tenant=excused, shim=False) == []
    over = verdict([Use(GPU, 1, 5 * GIB)], 0, tenant=excused, shim=False)
    assert kinds(over) == [Kind.OVER_CAP]


def test_who_has_a_whole_gpu_may_do_anything_there() -> None:
    whole = Tenant("t1", None, "uid-1", {GPU: None})
    assert verdict([Use(GPU, 1, 70 * GIB)], 0, tenant=whole, shim=False) == []


def test_a_gpu_that_was_not_given_is_a_breach() -> None:
    (breach,) = verdict([Use(OTHER_GPU, 1, GIB)])
    assert breach.kind is Kind.NOT_ALLOCATED
    assert breach.tenant == TENANT
    processes: Mapping[int, ProcessView] = {1: seen(1, pod_uid="stranger")}
    (breach,) = judge([Use(GPU, 1, GIB)], processes, {}, {}, SHIMS)
    assert (breach.kind, breach.tenant, breach.pod_uid) == (Kind.NOT_ALLOCATED, None, "stranger")


def test_whose_files_could_not_be_read_is_a_stranger_only_to_pods_that_have_nothing() -> None:
    """In a pod of several containers, its files tell which of them it belongs to."""
    unread = {1: seen(1, maps_are_known=False)}
    assert judge([Use(GPU, 1, GIB)], unread, {}, {}, SHIMS, {"uid-1"}) == []
    assert kinds(judge([Use(GPU, 1, GIB)], unread, {}, {}, SHIMS, {"uid-2"})) == [
        Kind.NOT_ALLOCATED
    ]
    read = {1: seen(1)}
    assert kinds(judge([Use(GPU, 1, GIB)], read, {}, {}, SHIMS, {"uid-1"})) == [Kind.NOT_ALLOCATED]


def test_programs_of_the_host_are_its_own_business() -> None:
    assert judge([Use(GPU, 1, GIB)], {1: ProcessView(1)}, {}, {}, SHIMS) == []
    assert judge([Use(GPU, 1, GIB)], {}, {}, {}, SHIMS) == [], "it has just ended"


# --- responsibility ----------------------------------------------------------------------------

FIRST = Tenant(
    "t1", None, "uid-1", {}, usages=frozenset({FILE}), folders=frozenset({Mount(0, 55, "/")})
)
PLACE = Mount(8, 1, "/lib/aliquot/alloc/abc/usage")
SECOND = Tenant("t2", None, "uid-1", {}, folders=frozenset({PLACE}))


def test_a_process_is_known_by_the_files_of_its_container() -> None:
    processes = {
        1: ProcessView(1, usages=frozenset({FILE})),
        2: ProcessView(2, mounts=(Mount(0, 55, "/"),)),
        3: ProcessView(3, mounts=(Mount(8, 1, "/lib/aliquot/alloc/abc/usage"),)),
        4: ProcessView(4, mounts=(Mount(8, 1, "/lib/aliquot/alloc/abd/usage"),)),
        5: ProcessView(5, mounts=(Mount(8, 2, "/lib/aliquot/alloc/abc/usage"),)),
        6: ProcessView(6, mounts=(Mount(8, 1, "/"),)),
        7: ProcessView(7, mounts=(Mount(8, 1, "/lib/kubelet/pods/x/alloc/abc/usage"),)),
    }
    owners = attribute(processes, [FIRST, SECOND])
    assert owners == {1: FIRST, 2: FIRST, 3: SECOND}


def test_a_pod_that_mounts_the_folder_of_another_one_is_not_taken_for_it() -> None:
    mine, theirs = (f"{digit * 8}-1111-2222-3333-444455556666" for digit in "ab")
    victim = Tenant("t2", None, theirs, {}, folders=frozenset({PLACE}))
    processes = {
        1: ProcessView(1, pod_uid=mine, mounts=(PLACE,)),
        2: ProcessView(2, pod_uid=theirs, mounts=(PLACE,)),
        3: ProcessView(3, pod_uid="5f" * 16, mounts=(PLACE,)),  # a static pod
        4: ProcessView(4, mounts=(PLACE,)),
    }
    assert attribute(processes, [victim]) == {2: victim, 3: victim, 4: victim}


def test_another_process_of_the_container_follows() -> None:
    processes = {
        2: ProcessView(2, pod_uid="uid-1", container_id="c1"),
        1: ProcessView(1, pod_uid="uid-1", container_id="c1", usages=frozenset({FILE})),
    }
    assert attribute(processes, [FIRST, SECOND]) == {1: FIRST, 2: FIRST}


def test_else_the_pod_decides_if_it_has_one_container_with_gpus() -> None:
    process = {1: ProcessView(1, pod_uid="uid-1", container_id="c1")}
    assert attribute(process, [FIRST]) == {1: FIRST}
    assert attribute(process, [FIRST, SECOND]) == {}
    assert attribute({1: ProcessView(1)}, [Tenant("t", None, "", {})]) == {}


@settings(max_examples=100)
@given(
    st.lists(
        st.tuples(
            st.sampled_from([GPU, OTHER_GPU]),
            st.integers(1, 6),
            st.none() | st.integers(0, 8 * GIB),
        ),
        max_size=8,
    ),
    st.dictionaries(st.sampled_from(["t1", "t2"]), st.integers(0, 1 << 60), max_size=2),
)
def test_over_cap_is_judged_by_nvml_alone(
    rows: list[tuple[str, int, int | None]], booked: dict[str, int]
) -> None:
    """No account, however forged, hides memory beyond the cap, or makes somebody guilty of it."""
    uses = [Use(*row) for row in {row[:2]: row for row in rows}.values()]
    owners = dict.fromkeys(range(1, 4), TENANT)
    processes = {pid: seen(pid) for pid in range(1, 7)}
    accounts = {name: Account({GPU: amount}) for name, amount in booked.items()}
    mine = [use for use in uses if use.pid in owners and use.gpu == GPU]
    used = sum(use.used_bytes or 0 for use in mine)
    is_over = used > 4 * GIB + SLACK_BYTES * len(mine)
    found = kinds(judge(uses, processes, owners, accounts, SHIMS))
    assert found.count(Kind.OVER_CAP) == int(is_over)
