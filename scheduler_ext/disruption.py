"""PodDisruptionBudgets: which pods had better not be preempted."""

import threading
from collections import defaultdict
from collections.abc import Iterable, Mapping

import msgspec

from aliquot.kubernetes.watch import Change, ChangeKind
from scheduler_ext.records import PodRecord

__all__ = ["Allowances", "Budget", "Budgets"]


class _Subset(msgspec.Struct, frozen=True, rename="camel"):
    pass


class Requirement(_Subset, frozen=True):
    key: str = ""
    operator: str = ""
    values: tuple[str, ...] | None = None

    def admits(self, labels: Mapping[str, str]) -> bool:
        text = labels.get(self.key)
        match self.operator:
            case "In":
                return text is not None and text in (self.values or ())
            case "NotIn":
                return text is None or text not in (self.values or ())
            case "Exists":
                return text is not None
            case "DoesNotExist":
                return text is None
        # An operator of a later Kubernetes: who may be protected counts as protected.
        return True


class Selector(_Subset, frozen=True):
    match_labels: dict[str, str] | None = None
    match_expressions: tuple[Requirement, ...] | None = None

    def selects(self, labels: Mapping[str, str]) -> bool:
        """An empty selector selects every pod of its namespace."""
        return all(labels.get(key) == text for key, text in (self.match_labels or {}).items()) and (
            all(each.admits(labels) for each in self.match_expressions or ())
        )


class _Metadata(_Subset, frozen=True):
    name: str = ""
    namespace: str = ""


class _Spec(_Subset, frozen=True):
    selector: Selector | None = None


class _Status(_Subset, frozen=True):
    disruptions_allowed: int = 0
    disrupted_pods: dict[str, str] | None = None


class Budget(_Subset, frozen=True):
    metadata: _Metadata = _Metadata()
    spec: _Spec = _Spec()
    status: _Status = _Status()

    def covers(self, pod: PodRecord) -> bool:
        """Whether losing the pod counts. One that is being evicted is counted already."""
        if self.spec.selector is None or pod.name in (self.status.disrupted_pods or ()):
            return False
        return self.spec.selector.selects(dict(pod.labels))


class Allowances:
    """What the budgets still allow, used up by one victim after the other."""

    def __init__(self, budgets: Mapping[str, list[Budget]]) -> None:
        self._budgets = budgets
        self._used: defaultdict[tuple[str, str], int] = defaultdict(int)

    def violated_by(self, pods: Iterable[PodRecord]) -> set[str]:
        """By uid, those that no budget of theirs allows any more when they go in this order."""
        violating = set()
        for pod in pods:
            for budget in self._budgets.get(pod.namespace, ()):
                if budget.covers(pod):
                    key = (budget.metadata.namespace, budget.metadata.name)
                    self._used[key] += 1
                    if self._used[key] > budget.status.disruptions_allowed:
                        violating.add(pod.uid)
        return violating


class Budgets:
    """Those of the whole cluster, as watched; without the right to see them there are none."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._budgets: dict[str, dict[str, Budget]] = {}

    def replace(self, budgets: Iterable[Budget]) -> None:
        with self._lock:
            self._budgets = {}
            for each in budgets:
                self._budgets.setdefault(each.metadata.namespace, {})[each.metadata.name] = each

    def change(self, change: Change[Budget]) -> None:
        metadata = change.object.metadata
        with self._lock:
            here = self._budgets.setdefault(metadata.namespace, {})
            if change.kind is ChangeKind.DELETED:
                here.pop(metadata.name, None)
            else:
                here[metadata.name] = change.object
            if not here:
                del self._budgets[metadata.namespace]

    def allowances(self) -> Allowances:
        """As of now, for one decision."""
        with self._lock:
            return Allowances({name: list(each.values()) for name, each in self._budgets.items()})
