"""Compares the claims with the API server, at the start and periodically, and may release orphans."""

from __future__ import annotations

import asyncio

from ..aio import AsyncClaimPreparer

SOON_SECONDS = 5.0  # if the API server did not answer
LOOK_SECONDS = 60.0  # between two reviews: each asks the API server for every claim


async def watch_orphans(preparer: AsyncClaimPreparer, release_after: float | None) -> None:
    """Runs while the agent serves. Releases orphans known for `release_after` seconds, or never if that is None."""
    period = LOOK_SECONDS if release_after is None else min(LOOK_SECONDS, max(release_after, 1.0))
    while True:
        for uid, orphan in (await preparer.review()).items():
            if release_after is not None and orphan.age >= release_after:
                await preparer.release(uid)
        await asyncio.sleep(min(period, SOON_SECONDS) if preparer.preparer.review.incomplete else period)
