"""The certificates that this machine trusts, as a file that a Java runtime reads. Standard library only.

A runtime with a list of its own does not know the signer of a proxy that the machine trusts, and can then fetch nothing.
"""

from __future__ import annotations

import hashlib
import re
import ssl
import struct
from pathlib import Path

PASSWORD = "changeit"  # noqa: S105 - see below
"""What Java itself uses for a list that holds no secret: it guards against damage, not against readers."""

_PEM = re.compile(r"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)


def machine_certificates() -> list[bytes]:
    """Return every certificate (DER) of the file that Python's TLS reads by default; none where there is no such file."""
    file = ssl.get_default_verify_paths().cafile
    if not file:  # None where there is no such file, whatever the type says
        return []
    text = Path(file).read_text(encoding="ascii", errors="replace")
    return [ssl.PEM_cert_to_DER_cert(pem) for pem in _PEM.findall(text)]


def java_truststore(certificates: list[bytes]) -> bytes:
    """Return a Java key store (format JKS, version 2) that trusts each of `certificates` (DER)."""
    parts = [struct.pack(">III", 0xFEEDFEED, 2, len(certificates))]
    for number, certificate in enumerate(certificates):
        alias = _text(f"certificate-{number}")
        # 2: a trusted certificate; its date of entry, in ms, is of no use here.
        parts += [struct.pack(">I", 2), alias, struct.pack(">Q", 0), _text("X.509")]
        parts += [struct.pack(">I", len(certificate)), certificate]
    body = b"".join(parts)
    # The format prescribes SHA-1 and this phrase, and Java checks them.
    check = hashlib.sha1(PASSWORD.encode("utf-16-be") + b"Mighty Aphrodite" + body, usedforsecurity=False)
    return body + check.digest()


def _text(ascii_text: str) -> bytes:
    return struct.pack(">H", len(ascii_text)) + ascii_text.encode("ascii")
