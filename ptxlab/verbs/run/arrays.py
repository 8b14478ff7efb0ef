"""Arrays as the contents of a .npy or .npz file."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping
from typing import Any

import numpy as np


def npy(array: Any) -> bytes:
    """Return one array as a .npy file."""
    content = io.BytesIO()
    np.save(content, np.asarray(array))
    return content.getvalue()


def npz(arrays: Mapping[str, Any]) -> bytes:
    """Return arrays as a .npz file: the same bytes for the same arrays, whatever they are called.

    ``np.savez`` writes the time of day, and takes no array called ``file``.
    """
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for name, array in arrays.items():
            archive.writestr(zipfile.ZipInfo(f"{name}.npy"), npy(array))
    return content.getvalue()
