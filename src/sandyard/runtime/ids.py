"""Ids carry their type: ``sb_`` a sandbox, ``sn_`` a snapshot, ``ex_`` a command."""

from __future__ import annotations

import secrets

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
"""Crockford's base 32 in lower case: safe in host names, and no letter looks like a digit."""


def new_id(kind: str) -> str:
    """Return a new id of this kind: 80 random bits in 16 characters."""
    return f"{kind}_{''.join(secrets.choice(_ALPHABET) for _ in range(16))}"
