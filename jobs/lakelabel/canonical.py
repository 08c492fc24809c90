"""One spelling for every value: the JSON whose digest decides whether two runs mean the same, and the mask for secrets."""

from __future__ import annotations

import hashlib
import json
import re

_SECRET_NAME = re.compile(r"(token|key|secret|password|passwd|credentials?)$", re.IGNORECASE)
_NAMES_A_SECRET = re.compile(r"secret|password|passwd|credential", re.IGNORECASE)
_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
_SECRET_WORDS = {"token", "tokens", "key", "keys"}
_USER_IN_ADDRESS = re.compile(r"(?<=://)[^/@\s]*@")

MASK = "***"


def canonical_json(value: object) -> str:
    """Return `value` as JSON that does not depend on the order of keys; NaN and infinities raise ValueError.

    Everything outside ASCII is escaped, so that the digest is one of bytes about which no two machines can differ.
    """
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)


def sha256_hex(value: object) -> str:
    """Return the 64 hexadecimal digits of SHA-256 over the canonical JSON of `value`."""
    return hashlib.sha256(canonical_json(value).encode("ascii")).hexdigest()


def masked(value: object, name: str = "") -> object:
    """Return `value`, which stands under the key `name`, with everything that may be a secret replaced by `MASK`.

    A name that ends in a word for a secret hides whatever stands there; one that merely has such a word hides text
    only, since `long_prefill_token_threshold: 512` is a number that people look for. A `tokenizer_mode` is no token,
    and `max_num_batched_tokens` counts them. Null, true and false say nothing and stay. A user and password inside an
    address are hidden wherever they stand.
    """
    if value is None or isinstance(value, bool):
        return value
    if _SECRET_NAME.search(name) or (isinstance(value, str) and _names_a_secret(name)):
        return MASK
    if isinstance(value, dict):
        return {key: masked(item, str(key)) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [masked(item, name) for item in value]
    if isinstance(value, str):
        return _USER_IN_ADDRESS.sub(f"{MASK}@", value)
    return value


def public(value: object, key: str) -> object:
    """Return what a message may show of `value`, which stands under the dotted `key`: a misspelt `engine.hf_tokn` must
    not print the token either."""
    shown = masked(value, key.rpartition(".")[2])
    return value if shown == value else shown


def _names_a_secret(name: str) -> bool:
    words = [word.lower() for word in _WORD.findall(name)]
    is_bound = words[:1] == ["max"]
    return _NAMES_A_SECRET.search(name) is not None or (not is_bound and not _SECRET_WORDS.isdisjoint(words))
