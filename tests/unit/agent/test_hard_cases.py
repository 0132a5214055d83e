"""The hard cases of the way from a pod's request to its GPU, one by one."""

import shutil
from dataclasses import replace

import pytest

from aliquot.protocol.assignment import Slice
from aliquot.protocol.request import ContainerRequest, Role, Selection
from deviceplugin.booking.errors import StartDelayed, StartRefused
from deviceplugin.booking.sharing import MIB, Sharing
from deviceplugin.booking.sources import ContainerKey
from deviceplugin.gpus.hardware import Hardware
from shim.limits import WHOLE
from tests.unit.agent.agent_node import COMPUTE, MEMORY, Node, Pod, caps, gpu, refused, uuid


def test_a_pod_is_replaced_on_a_full_gpu(tmp_path) -> None:
    node = Node(tmp_path, gpu(0))
    old = node.run(memory=16, compute=100)
    node.kubelet.end(old)
    new = node.run(memory=16, compute=100)
    assert caps(node, new) == ([16 * 256 * MIB], [10_000])
    assert [each.pod_uid for each in node.allocator.allocations()] == [new.uid]


def test_a_completed_job_is_followed_by_a_pod_that_needs_its_room(tmp_path) -> None:
    node = Node(tmp_path, gpu(0))
    job = node.run("job", memory=10, compute=60)
    node.run("other", memory=2, compute=10)
    node.kubelet.end(job)
    new = node.run("new", memory=14, compute=90)
    assert caps(node, new) == ([14 * 256 * MIB], [9000])
    # The kubelet has long dropped the job, and so have we.
    assert {each.key.pod for each in node.allocator.allocations() if each.key} == {"other", "new"}


def test_of_a_pod_refused_half_way_nothing_is_left_for_the_next(tmp_path) -> None:
    node = Node(tmp_path, gpu(0))
    node.run("busy", memory=1, compute=90)
    # Nobody knows this pod, so its memory is given without a thought for its compute.
    blind = node.pod("blind", memory=15, compute=20, known=False)
    node.kubelet.random.shuffle = lambda wanted: wanted.sort(reverse=True)  # memory first
    assert refused(lambda: node.kubelet.run(blind)) == "requested 20, available 10"
    late = node.run("late", memory=15, compute=10)
    assert caps(node, late) == ([15 * 256 * MIB], [1000])
    node.reconcile()
    assert len(node.allocator.allocations()) == 2


def test_our_watch_is_late_for_a_pod_on_two_gpus(node: Node) -> None:
    pod = node.pod(memory=8, compute=40, known=False, gpus=2)
    node.pods.late[pod.namespace, pod.name] = pod.view()
    node.kubelet.run(pod)
    assert node.gpus_of(pod) == {0, 1}
    assert caps(node, pod) == ([4 * 256 * MIB] * 2, [2000] * 2)


def test_our_watch_is_late_for_a_pod_that_names_its_gpu(node: Node) -> None:
    pod = node.pod(known=False)
    view = pod.view()
    assert view.request is not None
    request = replace(view.request, uuids=Selection(frozenset({uuid(1)})))
    node.pods.late[pod.namespace, pod.name] = replace(view, request=request)
    node.kubelet.run(pod)
    assert node.gpus_of(pod) == {1}


def test_the_plugin_is_killed_between_the_two_calls(node: Node) -> None:
    pod = node.pod(memory=16, compute=100)
    node.kubelet.between_calls = node.restart_agent
    node.kubelet.add(pod)
    node.kubelet.between_calls = lambda: None
    node.kubelet.start(pod)
    assert len(node.gpus_of(pod)) == 1
    assert caps(node, pod) == ([16 * 256 * MIB], [10_000])


def test_the_plugin_is_killed_after_the_first_call_and_the_pod_is_gone(node: Node) -> None:
    def die() -> None:
        raise ConnectionError("the plugin's socket is gone")

    node.kubelet.between_calls = die
    with pytest.raises(ConnectionError):
        node.kubelet.add(node.pod(memory=16, compute=100))
    node.kubelet.between_calls = lambda: None
    node.restart_agent()
    for _ in range(2):
        node.run(memory=16, compute=100)


def test_a_kubelet_restart_loses_nobody(node: Node) -> None:
    pod = node.run()
    running = node.kubelet.active.copy()
    node.allocator.kubelet_restarted()
    # It lists no pod yet, and its checkpoint has them all.
    node.kubelet.active.clear()
    checkpoint = [*node.kubelet.checkpoint()]
    node.allocator.reconcile(lambda: checkpoint, list)
    assert [each.pod_uid for each in node.allocator.allocations()] == [pod.uid]
    node.kubelet.active.update(running)
    node.kubelet.start(pod)
    assert caps(node, pod) == ([4 * 256 * MIB], [2000])


def test_a_node_reboot_keeps_the_checkpoint_and_loses_what_is_in_memory(node: Node) -> None:
    pod = node.run()
    for allocation in node.allocator.allocations():
        for path in (allocation.memory_usage, allocation.compute_usage):
            assert path is not None
            shutil.rmtree(path.parent)
    node.restart_agent()
    node.kubelet.start(pod)
    for allocation in node.allocator.allocations():
        assert allocation.memory_usage is not None
        assert allocation.memory_usage.exists()
        assert allocation.compute_usage is not None
        assert allocation.compute_usage.exists()


def test_a_plan_is_followed(node: Node) -> None:
    pod = node.run(plan={"main": (Slice(uuid(1), 4, 20),)})
    assert node.gpus_of(pod) == {1}
    assert [each.planned for each in node.allocator.allocations()] == [True]


def test_an_extender_that_was_restarted_may_have_planned_what_is_taken(tmp_path) -> None:
    node = Node(tmp_path, gpu(0), gpu(1))
    node.run("first", memory=14, compute=90, plan={"main": (Slice(uuid(1), 14, 90),)})
    # Its plan was made before the other pod's, and never bound until now.
    pod = node.run("second", plan={"main": (Slice(uuid(1), 4, 20),)})
    assert node.gpus_of(pod) == {0}
    told = {each.key.pod: each.planned for each in node.allocator.allocations() if each.key}
    assert told == {"first": True, "second": False}


def test_pods_that_never_saw_the_extender_are_packed_tightly(node: Node) -> None:
    node.run(memory=4, compute=30)
    node.run(memory=10, compute=30)
    small = node.run(memory=2, compute=10)
    big = node.run(memory=16, compute=50)
    assert node.gpus_of(small) == {0}
    assert node.gpus_of(big) == {1}


@pytest.mark.parametrize("known", [True, False])
def test_twenty_pods_of_one_size_at_once(tmp_path, known: bool) -> None:
    node = Node(tmp_path, gpu(0, 20), gpu(1, 20))
    pods = [node.pod(memory=2, compute=10, known=known) for _ in range(20)]
    for pod in pods:
        node.kubelet.add(pod)
    for pod in pods:
        node.kubelet.start(pod)
    assert all(len(node.gpus_of(pod)) == 1 for pod in pods)
    assert refused(lambda: node.run(memory=2, compute=10))


def test_different_compute_with_the_same_memory_goes_to_the_right_pods(node: Node) -> None:
    shares = [10, 20, 30, 40]
    pods = [node.pod(memory=4, compute=share) for share in shares]
    for pod in pods:
        node.kubelet.add(pod)
    for pod in pods:
        node.kubelet.start(pod)
    assert [caps(node, pod)[1] for pod in pods] == [[share * 100] for share in shares]


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("app_units", [2, 6, 9])
def test_an_app_container_inherits_its_init_containers_gpu(
    node: Node, known: bool, app_units: int
) -> None:
    if known:
        # Where nobody knows what the app container will ask for, this could be too tight for it.
        node.run(memory=8, compute=30)
    before = len(node.allocator.allocations())
    init = ContainerRequest("init", 6, 30, Role.INIT)
    for number in range(2):
        app = ContainerRequest("main", app_units, 40)
        pod = Pod("with-init", (init, app), f"uid-init-{number}")
        if known:
            node.pods.views[pod.namespace, pod.name] = pod.view()
        node.kubelet.run(pod)
        assert node.gpus_of(pod, "init") == node.gpus_of(pod)
        assert caps(node, pod, "init") == ([6 * 256 * MIB], [3000])
        assert caps(node, pod) == ([app_units * 256 * MIB], [4000])
        # It holds the larger of both, not the sum.
        held = node.kubelet.ids(pod, MEMORY) | node.kubelet.ids(pod, MEMORY, "init")
        assert len(held) == max(6, app_units)
        node.kubelet.end(pod)
    node.reconcile()
    assert len(node.allocator.allocations()) == before


def test_an_init_container_keeps_its_ids_while_its_pod_lives(node: Node) -> None:
    init = ContainerRequest("init", 6, 30, Role.INIT)
    pod = Pod("p", (init, ContainerRequest("main", 0, 0)), "uid-init")
    node.pods.views[pod.namespace, pod.name] = pod.view()
    node.kubelet.run(pod)
    node.clock.now_s += 3600
    node.reconcile()
    assert len(node.allocator.allocations()) == 1
    node.kubelet.end(pod)
    node.kubelet.listing()
    node.reconcile()
    assert node.allocator.allocations() == ()


def test_a_sidecar_does_not_pass_its_ids_on(node: Node) -> None:
    sidecar = ContainerRequest("proxy", 3, 10, Role.SIDECAR)
    pod = node.pod("p", 4, 20, sidecar)
    node.kubelet.run(pod)
    assert not node.kubelet.ids(pod, MEMORY) & node.kubelet.ids(pod, MEMORY, "proxy")
    assert caps(node, pod, "proxy") == ([3 * 256 * MIB], [1000])
    assert caps(node, pod) == ([4 * 256 * MIB], [2000])


def test_a_container_restart_finds_its_limits_and_a_new_account(node: Node) -> None:
    pod = node.run()
    (before,) = node.allocator.allocations()
    assert before.memory_usage is not None
    before.memory_usage.write_bytes(b"what a tenant left there")
    node.kubelet.start(pod)
    (after,) = node.allocator.allocations()
    assert after.memory_usage == before.memory_usage
    assert before.memory_usage.read_bytes()[:7] == b"ALIQUSE"
    assert before.member is not None
    assert after.member is not None
    # The arbiter has the old account open; a new name makes it look again.
    assert after.member.name != before.member.name
    assert caps(node, pod) == ([4 * 256 * MIB], [2000])


def test_a_static_pod_is_served_without_any_api_server(node: Node) -> None:
    pod = node.pod("static", known=False)
    node.kubelet.run(pod)
    assert len(node.gpus_of(pod)) == 1
    (held,) = node.allocator.allocations()
    assert held.key == ContainerKey("default", "static", "main")
    assert (held.pod_uid, held.started, held.policy) == (pod.uid, True, "fixed")


@pytest.mark.parametrize("known", [True, False])
def test_whole_gpus_are_uncapped_and_nobodys_else(node: Node, known: bool) -> None:
    pod = node.pod(memory=0, compute=200, known=known)
    node.kubelet.run(pod)
    assert node.gpus_of(pod) == {0, 1}
    assert caps(node, pod) == ([None, None], [WHOLE, WHOLE])
    # What is left of their memory is withdrawn, what it holds is not.
    assert not any(healthy for _, healthy in node.allocator.devices(MEMORY))
    assert all(healthy for _, healthy in node.allocator.devices(COMPUTE))
    node.kubelet.end(pod)
    node.reconcile()
    assert all(healthy for _, healthy in node.allocator.devices(MEMORY))


@pytest.mark.parametrize("forget", [True, False])
@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("order", [True, False])
def test_all_of_the_compute_with_some_memory_is_capped(
    node: Node, forget: bool, known: bool, order: bool
) -> None:
    node.kubelet.random.shuffle = lambda wanted: wanted.sort(reverse=order)
    pod = node.pod(memory=5, compute=100, known=known)
    node.kubelet.add(pod)
    node.restart_agent(forget=forget)
    node.kubelet.start(pod)
    assert caps(node, pod) == ([5 * 256 * MIB], [10_000])
    (held,) = node.allocator.allocations()
    assert (held.whole, held.memory_units) == (False, 5)
    # Whichever of two mounts on one path the runtime takes, it is the same file.
    for resource in (MEMORY, COMPUTE):
        for mount in node.kubelet.grants[pod.uid, "main", resource].mounts:
            if mount.container.match("/etc/aliquot/memory/limits"):
                assert mount.host.samefile(held.memory_limits)
            if mount.container.match("/run/aliquot/memory"):
                assert mount.host.samefile(held.memory_usage.parent)


def test_a_gpu_turns_unhealthy_and_recovers(node: Node) -> None:
    changes = []
    node.allocator.on_change(lambda: changes.append(1))
    pod = node.run()
    assert node.gpus_of(pod) == {0}
    node.allocator.update_hardware(Hardware((gpu(0, unusable="Xid 79"), gpu(1))))
    assert changes == [1]
    healthy = {each for each, is_healthy in node.allocator.devices(MEMORY) if is_healthy}
    assert {each[2:42] for each in healthy} == {uuid(1)}
    assert node.gpus_of(node.run()) == {1}
    node.allocator.update_hardware(node.hardware)
    assert node.gpus_of(node.run()) == {0}
    assert caps(node, pod) == ([4 * 256 * MIB], [2000])


def test_a_gpu_that_disappears_takes_its_ids_with_it(node: Node) -> None:
    pod = node.run()
    node.allocator.update_hardware(Hardware((gpu(1),)))
    assert {each[2:42] for each, _ in node.allocator.devices(COMPUTE)} == {uuid(1)}
    node.kubelet.start(pod)
    node.reconcile()
    assert [each.pod_uid for each in node.allocator.allocations()] == [pod.uid]


def test_another_memory_unit_while_pods_run_is_refused_by_name(node: Node) -> None:
    node.run("trainer")
    node.sharing = Sharing(unit_bytes=128 * MIB)
    with pytest.raises(StartRefused) as refusal:
        node.restart_agent()
    assert "128 MiB" in str(refusal.value)
    assert "256 MiB" in str(refusal.value)
    assert "default/trainer/main" in str(refusal.value)


def test_another_memory_unit_is_fine_when_nobody_runs(node: Node) -> None:
    node.kubelet.end(node.run("trainer"))
    node.kubelet.listing()
    node.sharing = Sharing(unit_bytes=128 * MIB)
    node.restart_agent()
    assert len(node.allocator.devices(MEMORY)) == 64


def test_another_memory_unit_waits_for_pods_that_only_the_checkpoint_has(node: Node) -> None:
    """It keeps pods that are gone until the next allocation, which this very start would allow."""
    node.kubelet.end(node.run("trainer"))
    kept = node.kubelet.checkpoint()
    node.sharing = Sharing(unit_bytes=128 * MIB)
    node.kubelet.checkpoint = lambda: kept
    with pytest.raises(StartDelayed, match="default/trainer/main"):
        node.restart_agent()
    node.clock.now_s += 59
    with pytest.raises(StartDelayed):
        node.reconcile()
    node.clock.now_s += 2
    node.reconcile()
    assert len(node.allocator.devices(MEMORY)) == 64
    assert node.allocator.allocations() == ()
