"""Plain data as CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any


def as_csv(results: Sequence[Mapping[str, Any]], without: Collection[str] = ()) -> str:
    """Return JSON objects as CSV, a line each, ``without`` some members: members of members are called ``burst.median``."""
    kept = ({key: each[key] for key in each if key not in without} for each in results)
    lines = [dict(_flat("", result)) for result in kept]
    stream = io.StringIO()
    columns = dict.fromkeys(name for line in lines for name in line)
    writer = csv.DictWriter(stream, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(lines)
    return stream.getvalue()


def _flat(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        for key, member in value.items():
            yield from _flat(f"{name}.{key}" if name else key, member)
    elif isinstance(value, list):
        yield name, " ".join(map(str, value))
    else:
        yield name, value
