"""What names and values may look like: the API server's rules for ResourceSlices, and CDI's for container runtimes.

A value that breaks a rule would be refused later, by a server or a runtime that cannot name the file it came from.
A check returns nothing; its ValueError states the broken rule.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from typing import Any

MAX_LABEL = 63  # characters, like all limits here
MAX_SUBDOMAIN = 253
MAX_VALUE = 64  # bytes of an attribute's string or version
MAX_PROPERTIES = 32  # attributes and capacities of a device together
MAX_TAINTS = 15  # of a device; the API server's limit is 16, and an unhealthy device gets one more
MAX_COUNTER_SETS_OF_DEVICE = 2  # that it consumes from
MAX_COUNTERS = 32  # of a set
TAINT_EFFECTS = ("NoSchedule", "NoExecute", "None")


def _text(pattern: str, limit: int, what: str) -> Callable[[object], None]:
    """A rule for texts. `what` completes "is not"."""

    def check(value: object) -> None:
        if not isinstance(value, str) or len(value) > limit or not re.fullmatch(pattern, value):
            raise ValueError(f"{value!r} is not {what}")

    return check


def _subdomain(limit: int) -> Callable[[object], None]:
    what = f"lower-case letters, digits, '-' and '.', at most {limit} of them, with a letter or digit at both ends"
    return _text(rf"{_LABEL}(\.{_LABEL})*", limit, f"a DNS subdomain: {what} of each part")


_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_KEY = "[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?"
_ENDS = "with a letter or digit at both ends"

subdomain = _subdomain(MAX_SUBDOMAIN)
device = _text(  # also valid in the middle or at the end of a CDI device name
    _LABEL, MAX_LABEL, f"a DNS label: lower-case letters, digits and '-', at most {MAX_LABEL} of them, no dots, {_ENDS}"
)
label_value = _text(
    f"({_KEY})?",
    MAX_LABEL,
    f"a valid label value: at most {MAX_LABEL} letters, digits, '-', '_' and '.', {_ENDS}",
)
_domain = _subdomain(MAX_LABEL)
_vendor = _text(
    "[A-Za-z][-A-Za-z0-9_.]*[A-Za-z0-9]",
    MAX_LABEL,
    "a CDI vendor: at least two characters, of which the first is a letter",
)
_pool = _text(
    "(?s:.*)",
    MAX_SUBDOMAIN,
    f"a pool name: DNS subdomains with slashes between, at most {MAX_SUBDOMAIN} characters",
)
_identifier = _text(
    "[A-Za-z_][A-Za-z0-9_]*",
    32,
    "a valid attribute or capacity name: a C identifier of at most 32 characters, optionally after a DNS subdomain and "
    "a slash",
)
_NUMBER = "(0|[1-9][0-9]*)"
_PRERELEASE = f"({_NUMBER}|[0-9]*[A-Za-z-][0-9A-Za-z-]*)"
_VERSION = re.compile(
    rf"{_NUMBER}\.{_NUMBER}\.{_NUMBER}(-{_PRERELEASE}(\.{_PRERELEASE})*)?(\+[0-9A-Za-z-]+(\.[0-9A-Za-z-]+)*)?"
)
_QUANTITY = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]+)?")


def driver(name: object) -> None:
    """The name must be a driver name for the API server and a CDI vendor for container runtimes."""
    _domain(name)
    _vendor(name)


def pool(name: object) -> None:
    _pool(name)
    for part in str(name).split("/"):
        subdomain(part)


def qualified_name(name: object) -> None:
    """The name of an attribute or a capacity: an identifier, optionally after a domain and a slash."""
    domain, slash, identifier = str(name).rpartition("/")
    if slash:
        _domain(domain)
    _identifier(identifier)


def attribute_form(value: object) -> object:
    """An attribute as the API server has it, from a plain value."""
    if isinstance(value, (list, tuple)) and value:
        return {f"{_kind(value[0])}s": list(value)}
    return value if isinstance(value, Mapping) else {_kind(value): value}


def capacity_form(value: object) -> object:
    """A capacity as the API server has it, from a plain quantity."""
    return value if isinstance(value, Mapping) else {"value": value}


def _kind(value: object) -> str:
    return {bool: "bool", int: "int", str: "string"}.get(type(value), type(value).__name__)


def is_list(form: object) -> bool:
    """Whether an attribute, as the API server has it, is a list: these need a separate feature gate."""
    return isinstance(form, Mapping) and any(str(kind).endswith("s") for kind in form)


def attribute(value: object) -> None:
    """An object with one member: the kind, with a value of that kind."""
    kinds = [*_KINDS, *(f"{kind}s" for kind in _KINDS)]
    if not isinstance(value, Mapping) or len(value) != 1 or not value.keys() <= set(kinds):
        raise ValueError(f"an attribute has exactly one of {', '.join(kinds)}")
    ((kind, given),) = value.items()
    if not is_list(value):
        given = [given]
    elif not isinstance(given, list) or not given:
        raise ValueError(f"{kind} must be a list of at least one value")
    for each in given:
        _KINDS[kind.removesuffix("s")](each)


def capacity(value: object, shared: bool) -> None:
    if not isinstance(value, Mapping) or "value" not in value or not value.keys() <= {"value", "requestPolicy"}:
        raise ValueError("a capacity has a value, and optionally a requestPolicy")
    if "requestPolicy" in value and not shared:
        raise ValueError("a requestPolicy is for shared devices only")
    quantity(value["value"])


def quantity(amount: object) -> None:
    if isinstance(amount, bool) or not isinstance(amount, (int, str)) or not _QUANTITY.fullmatch(str(amount)):
        raise ValueError("the value is not a quantity, such as 16Gi, 500m or 4")


def environment(name: object, value: object) -> None:
    """The error quotes neither: a claim's config may have secrets here."""
    if not isinstance(name, str) or not name or "=" in name or "\0" in f"{name}{value}":
        raise ValueError("a variable's name is not empty and has no '=', and there is no NUL anywhere")
    if isinstance(value, (Mapping, list)):
        raise ValueError("the value of a variable must be a string")


def is_qualified_key(name: str) -> bool:
    """The key of an annotation, for Kubernetes and CDI alike: a name, optionally after a domain and a slash."""
    domain, slash, key = name.rpartition("/")
    try:
        if slash:
            subdomain(domain)
    except ValueError:
        return False
    return len(key) <= MAX_LABEL and bool(re.fullmatch(_KEY, key))


def label(name: object) -> None:
    if not isinstance(name, str) or not is_qualified_key(name):
        raise ValueError(f"{name!r} is not a valid label name, such as example.com/rack")


def taint(value: object) -> None:
    """A taint. The API server sets the time at which it was added."""
    if not isinstance(value, Mapping) or not {"key", "effect"} <= value.keys() <= {"key", "value", "effect"}:
        raise ValueError("a taint has a key, an effect, and optionally a value")
    label(value["key"])
    label_value(value.get("value", ""))
    if value["effect"] not in TAINT_EFFECTS:
        raise ValueError(f"the effect of a taint is one of {', '.join(TAINT_EFFECTS)}")


def device_node(path: object) -> None:
    if not isinstance(path, str) or not os.path.isabs(path) or "\0" in path:
        raise ValueError(f"{path!r} is not an absolute path")


def _string(value: object) -> None:
    if not isinstance(value, str) or len(value.encode()) > MAX_VALUE:
        raise ValueError(f"a string has at most {MAX_VALUE} bytes")


def _version(value: object) -> None:
    _string(value)
    if not _VERSION.fullmatch(str(value)):
        raise ValueError("a version is one of semver.org 2.0.0, such as 1.2.3")


def _int(value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not -(2**63) <= value < 2**63:
        raise ValueError("an int must be a whole number of 64 bits")


def _bool(value: object) -> None:
    if not isinstance(value, bool):
        raise ValueError("a bool must be true or false")


_KINDS: dict[str, Callable[[Any], None]] = {"string": _string, "int": _int, "bool": _bool, "version": _version}
