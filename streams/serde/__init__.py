"""Keys and values to bytes and back."""

from .codecs import (
    Codec,
    Decode,
    Encode,
    codec_for,
    default_key_codec,
    default_value_codec,
    encode_raw,
)
from .record import Record

__all__ = [
    "Codec",
    "Decode",
    "Encode",
    "Record",
    "codec_for",
    "default_key_codec",
    "default_value_codec",
    "encode_raw",
]
