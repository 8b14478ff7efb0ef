"""What is done to a module of others as soon as it has been imported."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType

Hook = Callable[[ModuleType], None]


class AfterImport(MetaPathFinder):
    """Finds what other finders find, and calls the hook of a module once, behind its import.

    It comes first in ``sys.meta_path``.
    """

    def __init__(self, hooks: Mapping[str, Hook]) -> None:
        self._hooks = dict(hooks)

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        hook = self._hooks.pop(name, None)
        if hook is None:
            return None
        spec = find_spec(name)  # which asks this one as well
        self._hooks[name] = hook  # until it is imported: some only ask whether it is there
        if spec is None or spec.loader is None:
            return None
        execute = spec.loader.exec_module

        def exec_module(module: ModuleType) -> None:
            execute(module)
            if self._hooks.pop(name, None):
                hook(module)

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec
