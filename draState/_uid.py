"""UIDs of claims, as they come from kubelet. Drivers use them in file names, such as those of CDI specs."""

from __future__ import annotations

import re

from ._errors import ClaimInvalid

_UID = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,198}[A-Za-z0-9])?")


def is_uid(text: str) -> bool:
    """True for a UID that is safe as part of a file name: letters, digits, '-', '_' and '.'."""
    return _UID.fullmatch(text) is not None


def check_uid(uid: str) -> None:
    """Raise ClaimInvalid for a text that no API server gives as a UID."""
    if not is_uid(uid):
        raise ClaimInvalid(
            "the UID of the claim is invalid: it has other characters than letters, digits, '-', '_', '.'"
        )
