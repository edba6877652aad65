"""A certificate authority for the length of a test, by openssl."""

from __future__ import annotations

import shutil
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

import pytest

DAY = 86_400.0  # seconds
_SUBJECT_NAMES = "subjectAltName=IP:127.0.0.1,DNS:localhost\nextendedKeyUsage=serverAuth,clientAuth\n"
_CONFIGURATION = """
[ca]
default_ca = authority
[authority]
database = {folder}/index
new_certs_dir = {folder}
rand_serial = yes
unique_subject = no
default_md = sha256
policy = names
[names]
commonName = supplied
"""
_NEW_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")


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
        (folder / "index").touch()
        (folder / "extensions").write_text(_SUBJECT_NAMES)
        (folder / "configuration").write_text(_CONFIGURATION.format(folder=folder))
        name = f"/CN=ca of {folder.name}"  # two authorities of one name would be taken for one
        self._openssl("req", "-x509", *_NEW_KEY, "-keyout", self._key, "-out", self.certificate, "-subj", name)

    def sign(self, name: str, *, seconds: float = 2 * DAY) -> Pair:
        """A new pair for that common name. The certificate is valid for so many seconds from now on."""
        certificate, key, request = (self._folder / f"{name}.{end}" for end in ("pem", "key", "csr"))
        self._openssl("req", *_NEW_KEY, "-keyout", key, "-out", request, "-subj", f"/CN={name}")
        signing = ("-batch", "-notext", "-in", request, "-cert", self.certificate, "-keyfile", self._key)
        dates = ("-startdate", _after(-2 * DAY), "-enddate", _after(seconds))
        extensions = ("-extfile", self._folder / "extensions")
        self._openssl(
            "ca", "-config", self._folder / "configuration", *signing, *dates, *extensions, "-out", certificate
        )
        return Pair(certificate, key)

    def _openssl(self, *arguments: str | Path) -> None:
        subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True)


def _after(seconds: float) -> str:
    """A moment as openssl wants it."""
    return (datetime.now(UTC) + timedelta(seconds=seconds)).strftime("%y%m%d%H%M%SZ")
