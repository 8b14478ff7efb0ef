"""A process that answers for the server of the lab, question by question, and may take no more than its limits.

    python -m ptxlab.verbs.lab.worker

It reads requests from stdin, a line of JSON each, and writes lines of JSON: ``{"progress": ...}`` as often as there is
something to tell, then ``{"answer": ...}``.
"""

from __future__ import annotations

import json
import os
import sys

from ptxlab.judge.containment import limit
from ptxlab.judge.limits import Limits
from ptxlab.verbs.lab.answer import answer

LIMITS = Limits(seconds=24 * 3600.0)
"""Of the whole process; how long an answer may take is the server's to say."""


def main() -> None:
    """Answer until there are no more questions."""
    limit(LIMITS)
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as channel:
        os.dup2(2, 1)  # what a program prints is no answer

        def tell(**message: object) -> None:
            channel.write(json.dumps(message, allow_nan=False) + "\n")
            channel.flush()

        for line in sys.stdin:
            tell(answer=answer(json.loads(line), lambda text: tell(progress=text)))


if __name__ == "__main__":
    main()
