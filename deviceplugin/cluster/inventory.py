"""This node's GPUs as the extender reads them, and how they come to stand on the Node."""

import threading
from collections.abc import Callable

from aliquot.kubernetes.client import ApiClient
from aliquot.kubernetes.errors import ApiError
from aliquot.kubernetes.objects import Node
from aliquot.kubernetes.paths import NODES, node_path
from aliquot.kubernetes.reflector import Reflector
from aliquot.kubernetes.watch import Change, ChangeKind
from aliquot.protocol import inventory, names
from aliquot.protocol.inventory import GpuRecord, NodeInventory
from deviceplugin.cluster.annotations import AnnotationWriter, Target
from deviceplugin.gpus.hardware import Hardware

__all__ = ["InventoryPublisher", "clear_inventory", "inventory_of"]

MIB = 1 << 20


def inventory_of(
    hardware: Hardware,
    units_of: Callable[[str], int],
    unit_mib: int,
    compute_percent: int = 100,
    agent_url: str = "",
) -> NodeInventory:
    """`units_of` says how many memory units of a GPU are advertised."""
    return NodeInventory(
        gpus=tuple(
            GpuRecord(
                uuid=gpu.uuid,
                index=gpu.index,
                model=gpu.model,
                memory_units=units_of(gpu.uuid),
                compute_percent=compute_percent,
                memory_mib=gpu.memory_bytes // MIB,
                sms=gpu.sms,
                numa=gpu.numa,
                unusable=gpu.unusable,
            )
            for gpu in hardware.gpus
        ),
        unit_mib=unit_mib,
        driver=hardware.driver,
        links=hardware.links,
        agent_url=agent_url,
    )


class InventoryPublisher:
    """Follows the Node, because a node that is deleted and registers again has lost it all."""

    def __init__(self, client: ApiClient, node_name: str, writer: AnnotationWriter) -> None:
        self._target = Target(node_path(node_name))
        self._writer = writer
        self._wanted: str | None = None
        self._seen: Node | None = None
        self._guard = threading.Lock()
        self._reflector = Reflector(
            client,
            NODES,
            Node,
            self._replace,
            self._take,
            field_selector=f"metadata.name={node_name}",
            from_cache=True,
        )

    def start(self) -> None:
        self._reflector.start()

    def stop(self, timeout_s: float = 15.0) -> None:
        self._reflector.stop(timeout_s)

    def publish(self, found: NodeInventory) -> None:
        with self._guard:
            self._wanted = inventory.encode(found)
        self._compare()

    def _replace(self, nodes: list[Node]) -> None:
        with self._guard:
            self._seen = nodes[0] if nodes else None
        self._compare()

    def _take(self, change: Change[Node]) -> None:
        self._replace([] if change.kind is ChangeKind.DELETED else [change.object])

    def _compare(self) -> None:
        with self._guard:
            wanted, seen = self._wanted, self._seen
        # Without a Node there is nothing to write on; it is told as soon as there is one.
        if wanted is None or seen is None:
            return
        if seen.metadata.annotations.get(names.INVENTORY) != wanted:
            self._writer.put(
                self._target,
                names.INVENTORY,
                wanted,
                seen_version=seen.metadata.resource_version,
            )


def clear_inventory(client: ApiClient, node_name: str) -> bool:
    """Takes the annotation away, at once; false when the node is not there (any more)."""
    try:
        client.patch(node_path(node_name), {"metadata": {"annotations": {names.INVENTORY: None}}})
    except ApiError as error:
        if error.not_found:
            return False
        raise
    return True
