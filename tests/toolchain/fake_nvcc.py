"""An nvcc of a few lines in the place of NVIDIA's, and a program for either."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ptxlab.toolchain import nvcc

SOURCE = """\
#include <cstdio>
#include <cstdlib>
#include "twice.h"
int main(int count, char** words) {
  float host[4] = {1, 2, 3, 4}, *numbers;
  cudaMalloc(&numbers, sizeof host);
  cudaMemcpy(numbers, host, sizeof host, cudaMemcpyHostToDevice);
  auto scaled = [] __device__(float x) { return 2 * x; };
  apply<decltype(scaled)><<<1, count == 2 ? atoi(words[1]) : 0>>>(numbers, scaled);
  cudaMemcpy(host, numbers, sizeof host, cudaMemcpyDeviceToHost);
  printf("%g %g %g\\n", host[0], host[2], host[3]);
}
"""

HEADER = """\
template <class F> __global__ void apply(float* x, F f) {
  int i = threadIdx.x;
  x[i] = FACTOR * x[i] + f(x[i]);
}
"""

_FAKE = """\
#!/bin/sh
[ "$1" = --version ] && {{ echo "release 13.7, V13.7.1"; exit; }}
echo "$@" >> {log}
{says}
while [ "$1" != -o ]; do shift; done
printf '#!/bin/sh\\necho told "$@"; exit 5\\n' > "$2"
"""


def beside_program(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Write ``mine.cu``, which includes a header in ``include``, and be in its folder, with a cache of its own.

    A fixture yields from it: before and after nvcc is looked for anew.
    """
    (folder / "mine.cu").write_text(SOURCE)
    (folder / "include").mkdir()
    (folder / "include/twice.h").write_text(HEADER)
    monkeypatch.chdir(folder)
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
    forget()
    yield folder
    forget()


def put(folder: Path, monkeypatch: pytest.MonkeyPatch, says: str = "") -> Path:
    """Put a script in the place of nvcc, which ``says`` something in shell; return the file in which it writes how it was called.

    What it makes says what it was told, and ends with 5.
    """
    log = folder / "called"
    (folder / "bin").mkdir()
    (folder / "bin/nvcc").write_text(_FAKE.format(log=log, says=says))
    (folder / "bin/nvcc").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}/bin:/usr/bin:/bin")
    return log


def forget() -> None:
    """Have nvcc be looked for anew."""
    nvcc.program.cache_clear()
    nvcc.version.cache_clear()
