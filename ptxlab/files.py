"""The one way in which ptxlab writes a file that others may read: whole or not at all."""

from __future__ import annotations

import os
from threading import get_ident

from ptxlab.errors import PtxlabError


def write_whole(path: str | os.PathLike[str], content: bytes) -> None:
    """Write ``content`` to ``path`` in one step: under another name first, then renamed.

    A device or pipe (``/dev/null``) is written to as it is, never replaced; a folder that is not there
    is made.
    """
    real = os.path.realpath(path)
    in_place = os.path.exists(real) and not os.path.isfile(real)
    draft = real if in_place else f"{real}.{os.getpid()}.{get_ident()}.part"
    try:
        os.makedirs(os.path.dirname(real), exist_ok=True)
        with open(draft, "wb") as file:
            file.write(content)
        if not in_place:
            os.replace(draft, real)
    except OSError as error:
        raise PtxlabError(f"cannot write {os.fspath(path)}: {error.strerror}") from error
    finally:
        if not in_place and os.path.exists(draft):
            os.unlink(draft)
