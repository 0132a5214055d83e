"""Label and field selectors, as far as anybody uses them."""

import re
from collections.abc import Callable
from typing import Any

__all__ = ["BadSelectorError", "matcher"]

_FIELDS = {
    "metadata.name": ("metadata", "name"),
    "metadata.namespace": ("metadata", "namespace"),
    "spec.nodeName": ("spec", "nodeName"),
    "spec.schedulerName": ("spec", "schedulerName"),
    "status.phase": ("status", "phase"),
    "spec.unschedulable": ("spec", "unschedulable"),
    "involvedObject.name": ("involvedObject", "name"),
    "involvedObject.uid": ("involvedObject", "uid"),
    "reason": ("reason",),
}
_SET = re.compile(r"(?P<key>\S+)\s+(?P<how>in|notin)\s*\((?P<values>[^)]*)\)")


class BadSelectorError(ValueError):
    pass


def matcher(label_selector: str, field_selector: str) -> Callable[[dict[str, Any]], bool]:
    claims = [
        *(_label_claim(term) for term in _terms(label_selector)),
        *(_field_claim(term) for term in _terms(field_selector)),
    ]
    return lambda candidate: all(claim(candidate) for claim in claims)


def _terms(selector: str) -> list[str]:
    # Commas inside parentheses belong to a set.
    return [term.strip() for term in re.split(r",(?![^(]*\))", selector) if term.strip()]


def _field_claim(term: str) -> Callable[[dict[str, Any]], bool]:
    match = re.fullmatch(r"([\w.]+)\s*(!=|==|=)\s*(\S*)", term)
    if match is None or match[1] not in _FIELDS:
        raise BadSelectorError(f"field label not supported: {term}")
    way, wanted, negated = _FIELDS[match[1]], match[3], match[2] == "!="

    def claim(candidate: dict[str, Any]) -> bool:
        value: Any = candidate
        for word in way:
            value = (value or {}).get(word)
        text = {True: "true", False: "false", None: ""}.get(value, value)
        if way == ("spec", "unschedulable"):
            text = text or "false"
        return (text == wanted) is not negated

    return claim


def _label_claim(term: str) -> Callable[[dict[str, Any]], bool]:
    if match := _SET.fullmatch(term):
        values = {each.strip() for each in match["values"].split(",")}
        key, among = match["key"], match["how"] == "in"
        return lambda candidate: (_labels(candidate).get(key) in values) is among
    if match := re.fullmatch(r"([^\s!=]+)\s*(!=|==|=)\s*(\S*)", term):
        key, wanted, negated = match[1], match[3], match[2] == "!="
        return lambda candidate: (_labels(candidate).get(key) == wanted) is not negated
    if match := re.fullmatch(r"(!?)([^\s!=]+)", term):
        key, absent = match[2], bool(match[1])
        return lambda candidate: (key in _labels(candidate)) is not absent
    raise BadSelectorError(f"unable to parse requirement: {term}")


def _labels(candidate: dict[str, Any]) -> dict[str, str]:
    return candidate["metadata"].get("labels") or {}
