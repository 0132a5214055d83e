"""The three kinds of patches, each a function from an object and a patch to a new object."""

import copy
from typing import Any

__all__ = ["PATCHES", "BadPatchError"]

# Lists of these names are merged by the key that their elements have; others are replaced whole.
_MERGE_KEYS = {
    "containers": "name",
    "initContainers": "name",
    "env": "name",
    "volumes": "name",
    "volumeMounts": "mountPath",
    "conditions": "type",
    "containerStatuses": "name",
    "ownerReferences": "uid",
    "taints": "key",
    "addresses": "type",
}
_SETS = {"finalizers"}


class BadPatchError(ValueError):
    """`status` is the HTTP status: a test that fails is another one than nonsense."""

    def __init__(self, message: str, status: int = 400) -> None:
        super().__init__(message)
        self.status = status


def merge(target: Any, patch: Any) -> Any:
    """RFC 7386."""
    if not isinstance(patch, dict):
        return copy.deepcopy(patch)
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merge(result.get(key), value)
    return result


def strategic(target: Any, patch: Any, name: str = "") -> Any:
    if isinstance(patch, dict):
        return _strategic_map(target if isinstance(target, dict) else {}, patch)
    if isinstance(patch, list) and name in _MERGE_KEYS:
        return _strategic_list(target or [], patch, _MERGE_KEYS[name])
    if isinstance(patch, list) and name in _SETS:
        return [*(target or []), *(each for each in patch if each not in (target or []))]
    return copy.deepcopy(patch)


def _strategic_map(target: dict[str, Any], patch: dict[str, Any]) -> dict[str, Any]:
    if patch.get("$patch") == "replace":
        return {key: copy.deepcopy(value) for key, value in patch.items() if key != "$patch"}
    if patch.get("$patch") == "delete":
        return {}
    result = dict(target)
    for key, value in patch.items():
        if key.startswith("$deleteFromPrimitiveList/"):
            name = key.partition("/")[2]
            result[name] = [each for each in result.get(name, []) if each not in value]
        elif value is None:
            result.pop(key, None)
        elif not key.startswith("$"):
            result[key] = strategic(result.get(key), value, key)
    return result


def _strategic_list(target: list[Any], patch: list[Any], key: str) -> list[Any]:
    result = list(target)
    for element in patch:
        if not isinstance(element, dict) or key not in element:
            raise BadPatchError(f"map: {element} does not contain declared merge key: {key}")
        place = next((i for i, each in enumerate(result) if each.get(key) == element[key]), None)
        if element.get("$patch") == "delete":
            if place is not None:
                del result[place]
        elif place is None:
            result.append(strategic({}, element))
        else:
            result[place] = strategic(result[place], element)
    return result


def json_patch(target: Any, patch: Any) -> Any:
    """RFC 6902."""
    if not isinstance(patch, list):
        raise BadPatchError("a JSON patch is a list of operations")
    result = copy.deepcopy(target)
    for step in patch:
        kind, path = step.get("op"), _pointer(step.get("path", ""))
        if kind in ("add", "replace", "test") and "value" not in step:
            raise BadPatchError(f"{kind} needs a value")
        if kind == "add":
            _add(result, path, copy.deepcopy(step["value"]))
        elif kind == "replace":
            _remove(result, path)
            _add(result, path, copy.deepcopy(step["value"]))
        elif kind == "remove":
            _remove(result, path)
        elif kind == "test":
            if _at(result, path) != step["value"]:
                raise BadPatchError(f"testing value {step['path']} failed", status=422)
        elif kind in ("move", "copy"):
            source = _pointer(step["from"])
            value = copy.deepcopy(_at(result, source))
            if kind == "move":
                _remove(result, source)
            _add(result, path, value)
        else:
            raise BadPatchError(f"unknown operation {kind}")
    return result


def _pointer(text: str) -> list[str]:
    if not text.startswith("/"):
        raise BadPatchError(f"{text!r} is not a path into the object", status=422)
    return [word.replace("~1", "/").replace("~0", "~") for word in text[1:].split("/")]


def _at(target: Any, path: list[str]) -> Any:
    for word in path:
        try:
            target = target[int(word)] if isinstance(target, list) else target[word]
        except (KeyError, IndexError, ValueError, TypeError):
            raise BadPatchError(f"the path /{'/'.join(path)} is not there", status=422) from None
    return target


def _add(target: Any, path: list[str], value: Any) -> None:
    parent, last = _at(target, path[:-1]), path[-1]
    if isinstance(parent, list):
        parent.insert(len(parent) if last == "-" else int(last), value)
    elif isinstance(parent, dict):
        parent[last] = value
    else:
        raise BadPatchError(f"nothing can be added at /{'/'.join(path)}", status=422)


def _remove(target: Any, path: list[str]) -> None:
    _at(target, path)
    parent, last = _at(target, path[:-1]), path[-1]
    del parent[int(last) if isinstance(parent, list) else last]


PATCHES = {
    "application/merge-patch+json": merge,
    "application/strategic-merge-patch+json": strategic,
    "application/json-patch+json": json_patch,
}
