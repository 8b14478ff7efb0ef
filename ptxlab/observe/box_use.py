"""Tensor copies whose boxes lie wholly outside their tensors: coordinates that are mistaken, or an edge.

Where a tile reaches over the edge of a matrix, some of its boxes are outside, and rightly so. A tensor of
which all boxes are outside is copied from or to in vain: that is warned of.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from ptxlab.emulator import Site
from ptxlab.observe.check_scene import CheckScene
from ptxlab.tensormap.tensor_map import TensorMap


class BoxUse:
    """The boxes of a launch, by their tensor maps, and those outside by the instructions that copy them too."""

    def __init__(self, scene: CheckScene) -> None:
        self._scene = scene
        self._copied: Counter[TensorMap] = Counter()
        self._outside: Counter[tuple[TensorMap, Site]] = Counter()
        self._first: dict[tuple[TensorMap, Site], str] = {}

    def see(
        self, thread: int, tensor_map: TensorMap, coordinates: Sequence[int], *, outside: bool
    ) -> None:
        """See a thread have a box copied, which may lie wholly outside its tensor."""
        self._copied[tensor_map] += 1
        if outside:
            key = tensor_map, self._scene.site
            self._outside[key] += 1
            if key not in self._first:
                self._first[key] = (
                    f"{self._scene.thread(thread)} has a box at ({', '.join(map(str, coordinates))}) copied, "
                    f"wholly outside a tensor of {' x '.join(map(str, tensor_map.dims))}, dimension 0 first"
                )

    def tell(self) -> None:
        """Report them, when the launch is over."""
        together: Counter[TensorMap] = Counter()
        for (tensor_map, _), count in self._outside.items():
            together[tensor_map] += count
        for key, count in self._outside.items():
            tensor_map, site = key
            outside, copied = together[tensor_map], self._copied[tensor_map]
            severity, of = "warning", "all boxes of this tensor"
            if outside < copied:
                severity, of = "info", f"{outside} of the {copied} boxes of this tensor"
            hint = (
                "coordinates count elements, that of the contiguous dimension first; a load brings the fill, a "
                "store and a reduction change nothing"
            )
            words = f"{self._first[key]}, as are {of}", hint
            self._scene.find("bounds", severity, "outside", count, words, site=site, unit="threads")
