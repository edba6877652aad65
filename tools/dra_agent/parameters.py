"""What the opaque config of a claim, or of its class, may ask for:

    {"env": {"GPU_MODE": "fast"}, "annotations": {"example.com/mode": "fast"}}

Both members are optional, and there are no others: an unknown member is refused, because its author expects it to have
an effect. Errors contain at most the name of a member, never its content.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any

from draState import ClaimInvalid, DriverClaim, OpaqueConfig
from draState.plugin import check_edits

MEMBERS = ("env", "annotations")
SHOWN = 63  # characters of a member's name in an error


@dataclass(frozen=True, slots=True)
class Parameters:
    """The result of one device's configs."""

    env: dict[str, str] = field(default_factory=dict)
    annotations: dict[str, str] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def merged(cls, configs: Iterable[OpaqueConfig]) -> Parameters:
        """Merge configs that have been checked, name by name. Later ones win: the claim's come after its class's."""
        merged = cls()
        for config in configs:
            merged.env.update(config.parameters.get("env") or {})
            merged.annotations.update(config.parameters.get("annotations") or {})
        return merged


def check_parameters(claim: DriverClaim) -> None:
    """Raises ClaimInvalid if one of the claim's configs asks for something that the driver cannot do."""
    for config in claim.configs:
        try:
            _check(config.parameters)
        except ValueError as error:
            source = "class" if config.from_class else "claim"
            where = f"claim {claim.namespace}/{claim.name} (UID {claim.uid})"
            raise ClaimInvalid(f"{where}: the config from its {source}: {error}") from None


def _check(parameters: object) -> None:
    if not isinstance(parameters, dict):
        raise ValueError(f"the parameters must be an object with {' and '.join(MEMBERS)}")
    for member in parameters:
        if member not in MEMBERS:
            raise ValueError(f"there is no {member[:SHOWN]!r} in parameters, only {' and '.join(MEMBERS)}")
    for member in MEMBERS:
        values = parameters.get(member) or {}
        if not isinstance(values, dict) or not all(isinstance(value, str) for value in values.values()):
            raise ValueError(f"{member} must be an object whose values are strings")
    check_edits(parameters.get("env") or {}, parameters.get("annotations") or {})
