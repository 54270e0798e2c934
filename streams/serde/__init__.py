"""Keys and values to bytes and back."""

from .codecs import (
    Codec,
    Decode,
    Encode,
    SchemaCodec,
    codec_for,
    default_key_codec,
    default_value_codec,
    encode_raw,
    payload_of,
)
from .record import Record

__all__ = [
    "Codec",
    "Decode",
    "Encode",
    "Record",
    "SchemaCodec",
    "codec_for",
    "default_key_codec",
    "default_value_codec",
    "encode_raw",
    "payload_of",
]
