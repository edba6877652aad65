"""A request that changes something, repeated until its outcome is known or the time is up.

When no answer arrives, the same request goes to the next member. It is carried out once at most, because of what it
compares. If the comparison fails, one name below the prefix shows whether an earlier attempt succeeded. A caller whose
time is up first gets NotAcknowledged with in_doubt=True. After any missing answer, the owner writes `.lock` again
before its next change (ownership.py), so that attempts that are still on their way are refused.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from .._errors import DirectoryLocked
from .client import Client, StoreCall
from .errors import Compacted, Failed, Refused, WentBack
from .ownership import Hold, Ownership
from .wire import RANGE


class NotAcknowledged(Exception):
    """A change was not acknowledged."""

    def __init__(self, error: OSError, *, in_doubt: bool) -> None:
        super().__init__(str(error))
        self.error = error
        self.in_doubt = in_doubt


class Trace(NamedTuple):
    """One name that shows whether a request was carried out."""

    name: bytes | None  # None: the request changes nothing, it only removes what does not exist
    before: int = 0  # the revision that had written it when the request was built
    value: bytes | None = None  # what the request writes; None: it removes the name


class Attempts:
    """Sends the changes of one store."""

    def __init__(self, client: Client, ownership: Ownership) -> None:
        self._client = client
        self._ownership = ownership

    def repeat(self, call: StoreCall, attempt: Callable[[Hold], bool]) -> None:
        """Call `attempt` until it returns True. Raises NotAcknowledged, DirectoryLocked or WentBack."""
        hold = self._ownership.hold
        try:
            self._ownership.check(call)
            hold = self._ownership.hold
            while not attempt(hold):
                hold = self._ownership.hold
        except Failed as error:
            if isinstance(error, WentBack) and not call.in_doubt:
                raise  # it is about all changes, not about this one
            raise NotAcknowledged(error, in_doubt=call.in_doubt) from error
        except BaseException as error:
            # A signal handler that raises may have cut off a request.
            call.unanswered = call.unanswered or not isinstance(error, Exception)
            raise
        finally:
            if call.unanswered:
                self._ownership.doubt(hold)

    def send(
        self, call: StoreCall, hold: Hold, compare: Sequence[Any], steps: Sequence[Any], trace: Trace
    ) -> int | None:
        """The revision that carried it out; 0 if an earlier attempt did; None if none did and none can any more."""
        try:
            reply = self._ownership.ask(call, hold, compare, steps)
        except Refused as refusal:
            if self._was_made_nevertheless(call, trace, refusal):
                return 0
            raise
        if reply.succeeded:
            return int(reply.header.revision)
        lock = reply.responses[0].response_range.kvs
        try:
            self._ownership.learn(lock, hold)
        except DirectoryLocked as lost:
            # The new owner may have written since: look at the last revision before it came.
            then = lock[0].create_revision - 1 if lock else reply.header.revision
            if call.in_doubt and self._was_made_at(then, call, trace, lost):
                return 0
            raise
        made = call.in_doubt and self._was_made(call, trace)
        call.in_doubt = False  # only now: if there was no time to read it back, it is still in doubt
        return 0 if made else None

    def _was_made_nevertheless(self, call: StoreCall, trace: Trace, refusal: Refused) -> bool:
        """By an earlier attempt; or by this one, because etcd reports a full database also after carrying it out."""
        earlier = call.in_doubt
        call.in_doubt = earlier or refusal.errno == errno.ENOSPC
        made = self._was_made(call, trace) if call.in_doubt else False
        if made is False:
            call.in_doubt = earlier
        return made is True

    def _was_made_at(self, revision: int, call: StoreCall, trace: Trace, lost: DirectoryLocked) -> bool:
        try:
            made = self._was_made(call, trace, revision)
        except Compacted:
            made = None
        if made is None:
            raise NotAcknowledged(OSError(errno.ENOLCK, str(lost)), in_doubt=True) from lost
        return made

    def _was_made(self, call: StoreCall, trace: Trace, revision: int = 0) -> bool | None:
        """None if the name was changed by something else, so that the outcome cannot be known."""
        if trace.name is None:
            return True
        found = self._client.ask(call, RANGE, RANGE.request(key=trace.name, revision=revision)).kvs
        if (found[0].mod_revision if found else 0) == trace.before:
            return False
        return True if (found[0].value if found else None) == trace.value else None
