"""Gets credentials from a program that the kubeconfig names (`exec`), as clouds use them: runs it, keeps the credential
until it expires, and runs it again.

It speaks client.authentication.k8s.io/v1 and v1beta1. There is no user to answer questions, so the program runs without
a terminal. Its stderr goes to the agent's own.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

GROUP = "client.authentication.k8s.io"
VERSIONS = (f"{GROUP}/v1", f"{GROUP}/v1beta1")
RUN_SECONDS = 15.0  # clouds take seconds; a claim lookup gives up earlier, and its retry finds the credential
EARLY_SECONDS = 10.0  # a credential is renewed this long before it expires


class CredentialsError(Exception):
    """No credentials are available now. The text says where they should come from, and why they do not."""


@dataclass(frozen=True, slots=True)
class ExecCredential:
    """The output of the program: a token, a certificate and its key, or all of them."""

    token: str = field(default="", repr=False)
    certificate: bytes = field(default=b"", repr=False)
    key: bytes = field(default=b"", repr=False)
    expires: float | None = None  # as time.time(); None if it is valid until the server refuses it

    @property
    def is_valid(self) -> bool:
        return self.expires is None or time.time() < self.expires - EARLY_SECONDS


class ExecPlugin:
    """Safe for many threads: one of them runs the program, and the others wait for its result.

    `cluster` is what the kubeconfig says about the cluster, for a program that wants to know.
    """

    def __init__(self, config: Mapping[str, Any], folder: str, cluster: Mapping[str, Any]) -> None:
        """Raises ValueError for an unusable config. A path in the command is relative to `folder`."""
        self._version = config.get("apiVersion")
        if self._version not in VERSIONS:
            raise ValueError(f"exec: apiVersion must be one of {', '.join(VERSIONS)}")
        if config.get("interactiveMode") == "Always":
            raise ValueError("exec: interactiveMode Always needs a terminal, which the agent does not have")
        command = str(config["command"])
        self._command = [
            os.path.join(folder, command) if os.sep in command else command,
            *map(str, config.get("args") or []),
        ]
        self._hint = str(config.get("installHint") or "")
        spec: dict[str, Any] = {"interactive": False}
        if config.get("provideClusterInfo"):
            spec["cluster"] = cluster
        info = {"apiVersion": self._version, "kind": "ExecCredential", "spec": spec}
        self._environment = {str(each["name"]): str(each["value"]) for each in config.get("env") or []}
        self._environment["KUBERNETES_EXEC_INFO"] = json.dumps(info)
        self._running = threading.Lock()
        self._given: ExecCredential | None = None  # guarded by _running, as is _failure
        self._failure: tuple[float, CredentialsError] | None = None  # with its time.monotonic()

    def credential(self) -> ExecCredential:
        """The credential that is kept, or a new one."""
        asked = time.monotonic()
        with self._running:
            if self._given and self._given.is_valid:
                return self._given
            if self._failure and self._failure[0] >= asked:  # it has just failed for another caller
                raise self._failure[1]
            try:
                self._given = self._parsed(self._run())
            except CredentialsError as error:
                self._failure = (time.monotonic(), error)
                raise
            return self._given

    def forget(self, refused: ExecCredential) -> None:
        """Call this when the server has refused it: the next caller gets a new one, even if this has not expired."""
        with self._running:
            if self._given is refused:
                self._given = None

    def _run(self) -> bytes:
        environment = {**os.environ, **self._environment}
        try:
            process = subprocess.Popen(
                self._command,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                start_new_session=True,  # so that its children can be killed with it
            )
        except OSError as error:
            raise self._failed(f"{error.strerror}{self._hint and '; ' + self._hint}") from error
        with process:
            try:
                output, _ = process.communicate(timeout=RUN_SECONDS)
            except subprocess.TimeoutExpired as error:
                os.killpg(process.pid, signal.SIGKILL)
                raise self._failed(f"no answer within {RUN_SECONDS:g} s") from error
        if process.returncode:
            raise self._failed(f"exit code {process.returncode}; its output is in the agent's log")
        return output

    def _parsed(self, output: bytes) -> ExecCredential:
        try:
            answer = json.loads(output)
            status = answer["status"]
            if answer["apiVersion"] != self._version:
                raise self._failed(f"it did not answer in version {self._version}")
            expires = status.get("expirationTimestamp")
            given = ExecCredential(
                status.get("token") or "",
                (status.get("clientCertificateData") or "").encode(),
                (status.get("clientKeyData") or "").encode(),
                datetime.fromisoformat(expires).timestamp() if expires else None,
            )
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise self._failed("its answer is not an ExecCredential") from error
        if not given.token and not (given.certificate and given.key):
            raise self._failed("it gave neither a token nor a certificate with its key")
        return given

    def _failed(self, why: str) -> CredentialsError:
        return CredentialsError(f"no credentials from {self._command[0]}: {why}")
