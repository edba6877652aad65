"""UIDs of claims, as they come from kubelet. Drivers use them in file names, such as those of CDI specs."""

from __future__ import annotations

import re

from ._errors import ClaimInvalid

_UID = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,198}[A-Za-z0-9])?")


def check_uid(uid: str) -> None:
    """Raise ClaimInvalid for a text that is not safe as part of a file name, which no API server gives as a UID."""
    if not _UID.fullmatch(uid):
        raise ClaimInvalid("the UID of the claim is invalid: use letters, digits, '-', '_' and '.' only")
