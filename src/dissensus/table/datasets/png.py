"""Small pictures as text: a PNG inside a data URI, which a column of a table can hold and a page can show."""

from __future__ import annotations

import base64
import struct
import zlib
from typing import Any

import numpy as np

from dissensus.exceptions import BadParameter

SIGNATURE = b"\x89PNG\r\n\x1a\n"


def data_uri(pixels: Any) -> str:
    """Turn a grey (height, width) or coloured (height, width, 3) picture of bytes into `data:image/png;base64,…`.

    >>> data_uri(np.zeros((2, 2), np.uint8))[:30]
    'data:image/png;base64,iVBORw0K'
    """
    pixels = np.asarray(pixels)
    if pixels.dtype != np.uint8 or not (pixels.ndim == 2 or (pixels.ndim == 3 and pixels.shape[2] == 3)):
        raise BadParameter(
            f"a picture is (height, width) or (height, width, 3) of uint8, got {pixels.dtype} {pixels.shape}."
        )
    height, width = pixels.shape[:2]
    kind = 0 if pixels.ndim == 2 else 2  # grey or RGB, 8 bits (PNG specification, 11.2.2)
    rows = b"".join(b"\0" + row.tobytes() for row in pixels)  # filter 0: as they are
    png = (
        SIGNATURE
        + _chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, kind, 0, 0, 0))
        + _chunk(b"IDAT", zlib.compress(rows, 9))
        + _chunk(b"IEND", b"")
    )
    return "data:image/png;base64," + base64.b64encode(png).decode()


def _chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
