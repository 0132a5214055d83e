"""Hard cases of handing out ids, each against the real agent and the kubelet stand-in."""

import threading

import pytest

from aliquot.protocol.names import COMPUTE_RESOURCE, MEMORY_RESOURCE
from simcluster.kubelet import AdmissionError, Container, Kubelet, Pod, Role, StartError
from simcluster.kubelet.books import UNIT_BYTES, assert_sound, caps_of, gpus_of, shares_of

UNITS = 320
"""Of one GPU with 80 GiB."""

pytestmark = pytest.mark.usefixtures("agent")


def test_a_container_gets_the_limits_of_its_ids(kubelet: Kubelet):
    pod = Pod.asking("a", memory=16, compute=30)
    options = kubelet.run(pod)["main"]
    (gpu,) = gpus_of(kubelet, pod)
    assert caps_of(options) == {gpu: 16 * UNIT_BYTES}
    assert shares_of(options) == {gpu: 3000}
    assert options.mounted("/etc/ld.so.preload")


def test_both_orders_of_the_resources_give_the_same(kubelet: Kubelet):
    for first in (MEMORY_RESOURCE, COMPUTE_RESOURCE):
        with kubelet.order(first):
            pod = Pod.asking(f"{first[-3:]}-first", memory=8, compute=10)
            options = kubelet.run(pod)["main"]
        (gpu,) = gpus_of(kubelet, pod)
        assert caps_of(options) == {gpu: 8 * UNIT_BYTES}


def test_a_pod_replaced_on_a_full_gpu(kubelet: Kubelet):
    old = [Pod.asking(f"old-{number}", memory=UNITS, compute=90) for number in range(2)]
    for pod in old:
        kubelet.run(pod)
    with pytest.raises(AdmissionError):
        kubelet.admit(Pod.asking("too-early", memory=UNITS, compute=90))
    kubelet.finish(old[0])
    new = Pod.asking("new", memory=UNITS, compute=90)
    kubelet.run(new)
    assert_sound(kubelet, old[1], new)


def test_a_completed_job_followed_by_a_new_pod_of_the_same_name(kubelet: Kubelet):
    for _ in range(3):
        pods = [Pod.asking(f"job-{number}", memory=UNITS, compute=100) for number in range(2)]
        for pod in pods:
            kubelet.run(pod)
        assert_sound(kubelet, *pods)
        for pod in pods:
            kubelet.finish(pod)


@pytest.mark.parametrize("first", [MEMORY_RESOURCE, COMPUTE_RESOURCE])
def test_first_resource_granted_second_refused_next_pod_arrives(kubelet: Kubelet, first: str):
    """The kubelet itself refuses more ids than there are, without asking us."""
    many = {"memory": UNITS, "compute": 201} if first == MEMORY_RESOURCE else {"memory": 641}
    with (
        kubelet.order(first),
        pytest.raises(AdmissionError, match="requested number of devices unavailable"),
    ):
        kubelet.admit(Pod.asking("half", **{"compute": 100, **many}))
    whole = [Pod.asking(f"next-{number}", memory=UNITS, compute=100) for number in range(2)]
    for pod in whole:
        kubelet.run(pod)
    assert_sound(kubelet, *whole)


def test_what_does_not_fit_is_refused_with_what_is_free(kubelet: Kubelet):
    # Without an API server nobody knows the second resource's size when the first one comes.
    with kubelet.order(MEMORY_RESOURCE):
        for number in range(2):
            kubelet.run(Pod.asking(f"tenant-{number}", memory=300, compute=10))
        with pytest.raises(AdmissionError, match=r"30 units .*20 units"):
            kubelet.admit(Pod.asking("large", memory=30, compute=10))
        kubelet.run(Pod.asking("small", memory=20, compute=10))


@pytest.mark.parametrize("order", [MEMORY_RESOURCE, COMPUTE_RESOURCE])
def test_pods_that_never_saw_the_extender_are_packed_by_best_fit(kubelet: Kubelet, order: str):
    first = Pod.asking("first", memory=200, compute=60)
    second = Pod.asking("second", memory=100, compute=30)
    third = Pod.asking("third", memory=200, compute=60)
    with kubelet.order(order):
        for pod in (first, second, third):
            kubelet.run(pod)
    assert gpus_of(kubelet, first) == gpus_of(kubelet, second)
    assert gpus_of(kubelet, third) != gpus_of(kubelet, first)


def test_twenty_same_size_pods_at_once(kubelet: Kubelet):
    pods = [Pod.asking(f"same-{number}", memory=32, compute=10) for number in range(20)]
    failures: list[BaseException] = []

    def run(pod: Pod) -> None:
        try:
            kubelet.admit(pod)
            caps = caps_of(kubelet.start_in_time(pod))
            assert caps == dict.fromkeys(gpus_of(kubelet, pod), 32 * UNIT_BYTES)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=run, args=(pod,)) for pod in pods]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert_sound(kubelet, *pods)
    assert kubelet.allocatable(MEMORY_RESOURCE) == 2 * UNITS


def test_different_compute_with_the_same_memory(kubelet: Kubelet):
    pods = [Pod.asking(f"c-{percent}", memory=32, compute=percent) for percent in (10, 40, 70, 30)]
    for pod in pods:
        options = kubelet.run(pod)["main"]
        asked = pod.containers[0].limits[COMPUTE_RESOURCE]
        assert list(shares_of(options).values()) == [100 * asked]
    assert_sound(kubelet, *pods)


def test_a_sidecar_keeps_its_ids_beside_the_app(kubelet: Kubelet):
    pod = Pod(
        "a",
        (
            Container.asking(10, 10, name="beside", role=Role.SIDECAR),
            Container.asking(20, 20),
        ),
    )
    options = kubelet.run(pod)
    assert sum(filter(None, caps_of(options["beside"]).values())) == 10 * UNIT_BYTES
    assert sum(filter(None, caps_of(options["main"]).values())) == 20 * UNIT_BYTES
    names = [kubelet.ids_of(pod, name)[MEMORY_RESOURCE] for name in ("beside", "main")]
    assert not names[0] & names[1]


def test_a_restarted_container_keeps_its_limits(kubelet: Kubelet):
    pod = Pod.asking("a", memory=16, compute=30)
    first = kubelet.run(pod)["main"]
    again = kubelet.start_container(pod)
    assert again == first
    assert caps_of(again) == dict.fromkeys(gpus_of(kubelet, pod), 16 * UNIT_BYTES)


def test_static_pods_need_no_api_server(kubelet: Kubelet):
    static = Pod.asking("node-1-static", memory=4, compute=5, namespace="kube-system")
    assert caps_of(kubelet.run(static)["main"])


def test_the_kubelets_double_hand_out_is_avoided(kubelet: Kubelet):
    """Ids that the kubelet offers although a living container has them are not taken."""
    first = Pod.asking("first", memory=100, compute=40)
    kubelet.run(first)
    kubelet.forget(first)
    second = Pod.asking("second", memory=100, compute=40)
    kubelet.run(second)
    assert_sound(kubelet, first, second)


def test_the_kubelets_double_hand_out_is_refused(kubelet: Kubelet):
    """Where nothing else is left, the newcomer is refused, not the holder hurt."""
    pods = [Pod.asking(f"full-{number}", memory=UNITS, compute=60) for number in range(2)]
    options = [kubelet.run(pod)["main"] for pod in pods]
    for pod in pods:
        kubelet.forget(pod)
    with pytest.raises(AdmissionError, match=r"desc = "):
        kubelet.admit(Pod.asking("second", memory=100, compute=40))
    for pod, each in zip(pods, options, strict=True):
        assert caps_of(each) == dict.fromkeys(gpus_of(kubelet, pod), UNITS * UNIT_BYTES)
    assert_sound(kubelet, *pods)


def test_a_container_with_one_resource_only_is_held_with_what_to_do(kubelet: Kubelet):
    pod = Pod.asking("a", memory=16)
    kubelet.admit(pod)
    with pytest.raises(StartError, match=COMPUTE_RESOURCE):
        kubelet.start_container(pod)


def test_a_whole_gpu_excludes_everybody_else(kubelet: Kubelet):
    whole = Pod.asking("whole", compute=100)
    options = kubelet.run(whole)["main"]
    (gpu,) = gpus_of(kubelet, whole)
    assert shares_of(options) == {gpu: 10000}
    kubelet.wait_for(
        lambda: not any(gpu in each for each in kubelet.manager.healthy[MEMORY_RESOURCE]),
        "its free memory ids are withdrawn",
    )
    other = Pod.asking("other", memory=UNITS, compute=100)
    kubelet.run(other)
    assert gpus_of(kubelet, other) != {gpu}
    kubelet.finish(whole)
    kubelet.finish(other)
    kubelet.run(Pod.asking("small", memory=1, compute=1))
