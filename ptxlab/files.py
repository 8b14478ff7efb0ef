"""The one way in which ptxlab reads a text of unknown origin, and writes a file that others may read."""

from __future__ import annotations

import codecs
import os
import re
from pathlib import Path
from threading import get_ident

from ptxlab.errors import PtxlabError

_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
"""What a text may begin with to say how its characters are written; Windows does."""

_NO_TEXT = re.compile(r"[\0-\x08\x0e-\x1a\x1c-\x1f]")


def read_text(path: str | os.PathLike[str]) -> str:
    """Return the text in a file: UTF-8, what its byte order mark says, or Latin-1, in which any byte is a character.

    Raises ValueError for what is no text, and OSError.
    """
    content = Path(path).read_bytes()
    for mark, encoding in _MARKS:
        if content.startswith(mark):
            text = content.removeprefix(mark).decode(encoding)
            break
    else:
        try:
            text = content.decode()
        except UnicodeDecodeError:
            text = content.decode("latin-1")
    if _NO_TEXT.search(text):
        raise ValueError(f"{os.fspath(path)} is not text")
    return text.replace("\r\n", "\n").replace("\r", "\n")


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
