"""SASL: the handshake and its tokens."""

from __future__ import annotations

from ..fields import bytes_, int16, int64, message, string, strings


@message("0-1")
class SaslHandshakeRequest:
    """v1 promises SaslAuthenticate frames; v0 raw tokens."""

    mechanism: str = string("0+")


@message("0-1")
class SaslHandshakeResponse:
    """Lists what is enabled when the asked mechanism is not."""

    error_code: int = int16("0+")
    mechanisms: list[str] = strings("0+")


@message("0-2", flexible="2+")
class SaslAuthenticateRequest:
    """One token of the mechanism's exchange."""

    auth_bytes: bytes = bytes_("0+")


@message("0-2", flexible="2+")
class SaslAuthenticateResponse:
    """``session_lifetime_ms`` (v1) is 0 when the session does not expire."""

    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+")
    auth_bytes: bytes = bytes_("0+")
    session_lifetime_ms: int = int64("1+", ignorable=True)
