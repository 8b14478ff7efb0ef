"""Write what NVRTC, nvJitLink and nvdisasm answer the tests: tests/answers.tar.xz.

python -m scripts.record_answers          runs all tests, with an empty cache
python -m scripts.record_answers FOLDER   takes what such a run, scripts/test --ask-tools, left in this cache

Without it the tests take longer and find the same.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.answers import ARCHIVE, pack

ROOT = Path(__file__).resolve().parents[1]


def main(arguments: list[str]) -> None:
    with tempfile.TemporaryDirectory() as empty:
        folder = arguments[0] if arguments else empty
        if not arguments:
            environment = os.environ | {"XDG_CACHE_HOME": empty}
            subprocess.run([ROOT / "scripts" / "test", "--ask-tools"], env=environment, check=True)
        ARCHIVE.write_bytes(pack(Path(folder, "ptxlab")))
    print(f"{ARCHIVE}: {ARCHIVE.stat().st_size:,} bytes")


if __name__ == "__main__":
    main(sys.argv[1:])
