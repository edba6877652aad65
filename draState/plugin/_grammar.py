"""What names and values may look like: the API server's rules for ResourceSlices, and CDI's for container runtimes.

A value that breaks a rule would be refused later, by a server or a runtime that cannot name the file it came from.
A check returns nothing; its ValueError states the broken rule.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from typing import Any

MAX_DRIVER = MAX_LABEL = MAX_DOMAIN = 63  # characters, like all limits here
MAX_SUBDOMAIN = MAX_POOL = 253
MAX_IDENTIFIER = 32
MAX_VALUE = 64  # bytes of an attribute's string or version
MAX_PROPERTIES = 32  # attributes and capacities of a device together
MAX_TAINTS = 15  # of a device; the API server's limit is 16, and an unhealthy device gets one more
MAX_COUNTER_SETS_OF_DEVICE = 2  # that it consumes from
MAX_COUNTERS = 32  # of a set
TAINT_EFFECTS = ("NoSchedule", "NoExecute", "None")
LIST_KINDS = ("bools", "ints", "strings", "versions")  # kinds of attributes that need a separate feature gate

_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN = re.compile(rf"{_LABEL}(\.{_LABEL})*")
_CDI_NAME = re.compile("[A-Za-z][-A-Za-z0-9_.]*[A-Za-z0-9]")
_IDENTIFIER = re.compile("[A-Za-z_][A-Za-z0-9_]*")
_KEY = re.compile("[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")
_NUMBER = "(0|[1-9][0-9]*)"
_PRERELEASE = f"({_NUMBER}|[0-9]*[A-Za-z-][0-9A-Za-z-]*)"
_VERSION = re.compile(
    rf"{_NUMBER}\.{_NUMBER}\.{_NUMBER}(-{_PRERELEASE}(\.{_PRERELEASE})*)?(\+[0-9A-Za-z-]+(\.[0-9A-Za-z-]+)*)?"
)
_QUANTITY = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]+)?")


def driver(name: object) -> None:
    """The name must be a driver name for the API server and a CDI vendor for container runtimes."""
    subdomain(name, MAX_DRIVER)
    if not _CDI_NAME.fullmatch(str(name)):
        raise ValueError(f"{name!r} is not a CDI vendor: at least two characters, of which the first is a letter")


def pool(name: object) -> None:
    if not isinstance(name, str) or len(name) > MAX_POOL:
        raise ValueError(
            f"{name!r} is not a pool name: DNS subdomains with slashes between, at most {MAX_POOL} characters"
        )
    for part in name.split("/"):
        subdomain(part)


def device(name: object) -> None:
    """Every DNS label is also valid in the middle or at the end of a CDI device name."""
    if not isinstance(name, str) or len(name) > MAX_LABEL or not re.fullmatch(_LABEL, name):
        raise ValueError(
            f"{name!r} is not a DNS label: lower-case letters, digits and '-', at most {MAX_LABEL} of them, no dots, "
            "with a letter or digit at both ends"
        )


def subdomain(name: object, limit: int = MAX_SUBDOMAIN) -> None:
    if not isinstance(name, str) or len(name) > limit or not _SUBDOMAIN.fullmatch(name):
        raise ValueError(
            f"{name!r} is not a DNS subdomain: lower-case letters, digits, '-' and '.', at most {limit} of them, "
            "with a letter or digit at both ends of each part"
        )


def qualified_name(name: object) -> None:
    """The name of an attribute or a capacity: an identifier, optionally after a domain and a slash."""
    domain, slash, identifier = str(name).rpartition("/")
    if slash:
        subdomain(domain, MAX_DOMAIN)
    if len(identifier) > MAX_IDENTIFIER or not _IDENTIFIER.fullmatch(identifier):
        raise ValueError(
            f"{name!r} is not a valid attribute or capacity name: a C identifier of at most {MAX_IDENTIFIER} "
            "characters, optionally after a DNS subdomain and a slash"
        )


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


def attribute(value: object) -> None:
    """An object with one member: the kind, with a value of that kind."""
    if not isinstance(value, Mapping) or len(value) != 1 or not value.keys() <= _KINDS.keys():
        raise ValueError(f"an attribute has exactly one of {', '.join(_KINDS)}")
    ((kind, given),) = value.items()
    if kind not in LIST_KINDS:
        _KINDS[kind](given)
        return
    if not isinstance(given, list) or not given:
        raise ValueError(f"{kind} must be a list of at least one value")
    for each in given:
        _KINDS[kind](each)


def capacity(value: object, *, shared: bool) -> None:
    if not isinstance(value, Mapping) or "value" not in value or not value.keys() <= {"value", "requestPolicy"}:
        raise ValueError("a capacity has a value, and optionally a requestPolicy")
    if "requestPolicy" in value and not shared:
        raise ValueError("a requestPolicy is for shared devices only")
    quantity(value["value"])


def quantity(amount: object) -> None:
    if isinstance(amount, bool) or not isinstance(amount, (int, str)) or not _QUANTITY.fullmatch(str(amount)):
        raise ValueError("the value is not a quantity, such as 16Gi, 500m or 4")


def is_environment(name: object, value: object) -> bool:
    return isinstance(name, str) and bool(name) and "=" not in name and "\0" not in f"{name}{value}"


def environment(name: object, value: object) -> None:
    if not isinstance(name, str) or not name or "=" in name or "\0" in name:
        raise ValueError(f"{name!r} is not a valid environment variable name: not empty, and without '='")
    if isinstance(value, (Mapping, list)) or "\0" in str(value):
        raise ValueError(f"the value of {name} must be a string")


def is_qualified_key(name: str) -> bool:
    """The key of an annotation, for Kubernetes and CDI alike: a name, optionally after a domain and a slash."""
    domain, slash, key = name.rpartition("/")
    if slash and (len(domain) > MAX_SUBDOMAIN or not _SUBDOMAIN.fullmatch(domain)):
        return False
    return len(key) <= MAX_LABEL and bool(_KEY.fullmatch(key))


def label(name: object) -> None:
    if not isinstance(name, str) or not is_qualified_key(name):
        raise ValueError(f"{name!r} is not a valid label name, such as example.com/rack")


def label_value(value: object) -> None:
    if not isinstance(value, str) or len(value) > MAX_LABEL or (value and not _KEY.fullmatch(value)):
        raise ValueError(
            f"{value!r} is not a valid label value: at most {MAX_LABEL} letters, digits, '-', '_' and '.', with a "
            "letter or digit at both ends"
        )


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


_KINDS: dict[str, Callable[[Any], None]] = {
    "string": _string,
    "int": _int,
    "bool": _bool,
    "version": _version,
    "strings": _string,
    "ints": _int,
    "bools": _bool,
    "versions": _version,
}
