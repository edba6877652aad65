"""A certificate authority for the length of a test, by openssl."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple

import pytest

_SUBJECT_NAMES = "subjectAltName=IP:127.0.0.1,DNS:localhost\nextendedKeyUsage=serverAuth,clientAuth\n"


class Pair(NamedTuple):
    """A certificate and its key, in PEM files."""

    certificate: Path
    key: Path


class Authority:
    """Signs certificates for 127.0.0.1, also expired ones. Skips where there is no openssl."""

    def __init__(self, folder: Path) -> None:
        if not shutil.which("openssl"):
            pytest.skip("certificates are made with openssl, which is not installed")
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.certificate = folder / "ca.pem"
        self._key = folder / "ca.key"
        (folder / "extensions").write_text(_SUBJECT_NAMES)
        name = f"/CN=ca of {folder.name}"  # two authorities of one name would be taken for one
        self._openssl("req", "-x509", *_NEW_KEY, "-keyout", self._key, "-out", self.certificate, "-subj", name)

    def sign(self, name: str, *, expired: bool = False) -> Pair:
        """A new pair for that common name."""
        certificate, key, request = (self._folder / f"{name}.{end}" for end in ("pem", "key", "csr"))
        self._openssl("req", *_NEW_KEY, "-keyout", key, "-out", request, "-subj", f"/CN={name}")
        signing = ("-req", "-in", request, "-CA", self.certificate, "-CAkey", self._key, "-CAcreateserial")
        days = ("-days", "-1") if expired else ("-days", "2")
        self._openssl("x509", *signing, *days, "-extfile", self._folder / "extensions", "-out", certificate)
        return Pair(certificate, key)

    def _openssl(self, *arguments: str | Path) -> None:
        subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True)


_NEW_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
