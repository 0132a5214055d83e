"""What happens in the demo, step by step, and the promises that are checked on the way."""

from collections.abc import Callable, Sequence

from aliquot.errors import OperationError
from aliquot.protocol import assignment
from aliquot.protocol.names import ACTUAL, PLAN
from simcluster.demo import promises
from simcluster.demo.account import Account, Window
from simcluster.demo.cast import BATCH, CAST, CHAT, NOTEBOOK, RENDER, TRAIN, Part
from simcluster.demo.cluster import Cluster
from simcluster.demo.conversation import Conversation
from simcluster.demo.patience import Patience
from simcluster.demo.promises import TOLERANCE_POINTS, Promise
from simcluster.demo.screen import Screen

__all__ = ["Story"]

SETTLE_S = 1.5
WINDOW_S = 3.0
ATTEMPTS = 30
"""Windows that are measured at most, when programs get no processor."""
DISTURBED_PERCENT = 1.0
"""A program that waited for a processor longer than this part of a window may have missed its share
for that reason alone."""
ALL_MIB = 1 << 20
"""More than any GPU has."""
WAITS_FOR = "GPU 0 has the most free memory: 20 of 24 GiB asked"


class Story:
    def __init__(
        self, cluster: Cluster, account: Account, screen: Screen, patience: Patience
    ) -> None:
        self._cluster = cluster
        self._account = account
        self._screen = screen
        self._patience = patience
        self._pods: dict[str, Conversation] = {}
        self._seen_bytes: dict[str, int] = {}
        self._kept: list[Promise] = []

    def play(self) -> list[Promise]:
        self._borrow()
        self._hit_cap()
        self._wait_for_room()
        self._give_back()
        self._make_room()
        self._fill()
        return sorted(self._kept, key=lambda each: [part.name for part in CAST].index(each.pod))

    # The steps.

    def _borrow(self) -> None:
        self._arrive(TRAIN, take_gib=30)
        self._pods[TRAIN.name].ask("work")
        self._arrive(NOTEBOOK, take_gib=4)
        self._say(f"{NOTEBOOK.name} shares a GPU with {TRAIN.name}, and is idle for now")
        own = TRAIN.compute_percent
        window, attempts = self._measure(
            lambda seen: promises.lacks(seen, {TRAIN.name: own}), "did not borrow"
        )
        got = window.share_percent(TRAIN.name)
        self._kept.append(promises.borrows(TRAIN.name, own, got, attempts))
        self._say(
            f"{TRAIN.name} may burst: it takes the time that {NOTEBOOK.name} leaves, "
            f"{got:.1f} % where {own} % are its own"
        )

    def _hit_cap(self) -> None:
        self._arrive(CHAT)
        chat = self._pods[CHAT.name]
        result = chat.ask(f"take {ALL_MIB}")["result"]
        self._say(
            f"{CHAT.name} asks the driver for more than its {CHAT.memory_gib} GiB and hears "
            "CUDA_ERROR_OUT_OF_MEMORY; nobody kills it"
        )
        chat.ask("work")
        self._cluster.wait_for(
            lambda: not chat.is_alive() or self._account.look().busy_ns.get(CHAT.name, 0) > 0,
            f"work of {CHAT.name}",
        )
        worked_on = self._account.look().busy_ns.get(CHAT.name, 0) > 0
        promise = promises.survives_refusal(CHAT.name, result, chat.is_alive(), worked_on)
        self._kept.append(promise)

    def _wait_for_room(self) -> None:
        self._arrive(BATCH, take_gib=16)
        self._pods[BATCH.name].ask("work")
        self._announce(RENDER)
        self._cluster.wait_for(
            lambda: self._reason(RENDER) or self._cluster.phase(RENDER.name) != "Pending",
            f"a word on pod {RENDER.name}",
        )
        reason = self._reason(RENDER)
        self._screen.wait(RENDER.name, reason)
        self._say(f"{RENDER.name} waits: {reason}")
        self._kept.append(promises.has_reason(RENDER.name, reason, WAITS_FOR))
        self._patience.pause(SETTLE_S)
        self._screen.picture()

    def _give_back(self) -> None:
        self._say(f"{NOTEBOOK.name} begins to work, and wants its {NOTEBOOK.compute_percent} %")
        self._pods[NOTEBOOK.name].ask("work")
        window, attempts = self._measure_shares((TRAIN, NOTEBOOK, CHAT, BATCH))
        got = window.share_percent(TRAIN.name)
        self._say(f"{TRAIN.name} has given back what it borrowed: {got:.1f} %")
        self._judge(TRAIN, "gives it back", window, attempts)
        for part in (NOTEBOOK, CHAT, BATCH):
            self._judge(part, "compute share", window, attempts)

    def _make_room(self) -> None:
        early = self._cluster.phase(RENDER.name) != "Pending"
        batch = self._pods.pop(BATCH.name)
        batch.ask(f"take {ALL_MIB}")
        self._look_at_cap(BATCH)
        self._account.forget(BATCH.name)
        batch.tell("end")
        self._cluster.wait_for(
            lambda: self._cluster.phase(BATCH.name) in ("Succeeded", "Failed"),
            f"the end of pod {BATCH.name}",
        )
        self._screen.end(BATCH.name, self._cluster.phase(BATCH.name))
        self._say(f"{BATCH.name} is done: its {BATCH.asks.partition(',')[0]} are free")
        self._begin(RENDER, take_gib=12)
        self._pods[RENDER.name].ask("work")
        phase = self._cluster.phase(RENDER.name)
        self._kept.append(promises.starts_late(RENDER.name, phase, early))
        together = (TRAIN, NOTEBOOK, CHAT, RENDER)
        window, attempts = self._measure_shares(together)
        for part in together:
            what = "compute share" if part is RENDER else "still its share"
            self._judge(part, what, window, attempts)

    def _fill(self) -> None:
        self._say("at last everybody takes all the memory that the driver gives")
        for conversation in self._pods.values():
            conversation.ask(f"take {ALL_MIB}")
        self._account.look()
        for part in (TRAIN, NOTEBOOK, CHAT, RENDER):
            self._look_at_cap(part)

    # Pods.

    def _arrive(self, part: Part, take_gib: int = 0) -> None:
        self._announce(part)
        self._begin(part, take_gib)

    def _announce(self, part: Part) -> None:
        self._say(f"{part.name} arrives and asks for {part.asks}")
        self._screen.add(part)
        self._cluster.create(part.manifest())

    def _begin(self, part: Part, take_gib: int) -> None:
        pod = self._cluster.attach(part.name)
        self._seen_bytes[part.name] = pod.ask("")["total_bytes"]
        gpu = self._gpu_of(part)
        self._pods[part.name] = pod
        self._account.watch(part.name, pod.pid, gpu)
        self._screen.run(part.name, gpu)
        self._say(f"{part.name} runs on GPU {gpu}")
        if take_gib:
            pod.ask(f"take {take_gib << 10}")

    def _gpu_of(self, part: Part) -> int:
        """By the agent's word; by the extender's as long as the agent's is on its way."""
        notes = self._cluster.pod(part.name)["metadata"]["annotations"]
        given = assignment.decode(notes.get(ACTUAL) or notes[PLAN])
        uuids = [device.uuid for device in self._cluster.gpus.snapshot().devices]
        return uuids.index(given.containers["main"][0].uuid)

    def _reason(self, part: Part) -> str:
        conditions = self._cluster.pod(part.name)["status"].get("conditions") or []
        return next(
            (each["message"] for each in conditions if each.get("reason") == "Unschedulable"), ""
        )

    # Measuring.

    def _measure_shares(self, parts: Sequence[Part]) -> tuple[Window, int]:
        asked = {part.name: part.compute_percent for part in parts}
        window, attempts = self._measure(
            lambda seen: promises.misses(seen, asked),
            f"missed by more than {TOLERANCE_POINTS:g} point",
        )
        told = [f"{pod} {window.share_percent(pod):.2f} of {asked[pod]} %" for pod in asked]
        self._say(f"measured over {WINDOW_S:g} s: {', '.join(told)}")
        return window, attempts

    def _measure(self, fails: Callable[[Window], list[str]], how: str) -> tuple[Window, int]:
        """The first window in which nobody fails, or in which nobody lacked a processor; and its
        number."""
        self._patience.pause(SETTLE_S)
        for attempt in range(1, ATTEMPTS + 1):
            self._cluster.check()
            try:
                window = self._account.measure(WINDOW_S, self._patience)
                failed = fails(window)
            except KeyError as error:
                raise OperationError(f"the program in pod {error} has ended too soon") from None
            if not failed or window.waited_percent < DISTURBED_PERCENT:
                break
            self._say(
                f"{', '.join(failed)} {how}, but programs waited for a processor for up to "
                f"{window.waited_percent:.0f} % of the time in window {attempt} of {ATTEMPTS}"
            )
        return window, attempt

    def _judge(self, part: Part, what: str, window: Window, attempts: int) -> None:
        got = window.share_percent(part.name)
        self._kept.append(
            promises.keeps_share(part.name, what, part.compute_percent, got, attempts)
        )

    def _look_at_cap(self, part: Part) -> None:
        self._account.look()
        self._kept.append(
            promises.keeps_cap(
                part.name,
                part.memory_bytes,
                self._seen_bytes[part.name],
                self._account.peak_bytes.get(part.name, 0),
            )
        )

    def _say(self, text: str) -> None:
        self._screen.say(text)
