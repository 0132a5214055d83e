"""The difference of two JSON values as a JSON patch (RFC 6902)."""

from typing import Any

__all__ = ["json_patch"]


def json_patch(before: Any, after: Any, path: str = "") -> list[dict[str, Any]]:
    """Operations that turn `before` into `after`; small where little differs."""
    if before == after:
        return []
    if isinstance(before, dict) and isinstance(after, dict):
        operations: list[dict[str, Any]] = [
            {"op": "remove", "path": f"{path}/{_escaped(key)}"}
            for key in before
            if key not in after
        ]
        for key, value in after.items():
            place = f"{path}/{_escaped(key)}"
            if key in before:
                operations += json_patch(before[key], value, place)
            else:
                operations.append({"op": "add", "path": place, "value": value})
        return operations
    if isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        return [
            operation
            for index, (old, new) in enumerate(zip(before, after, strict=True))
            for operation in json_patch(old, new, f"{path}/{index}")
        ]
    return [{"op": "replace", "path": path, "value": after}]


def _escaped(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1")
