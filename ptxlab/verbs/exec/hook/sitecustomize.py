"""Run first by every Python that ``ptxlab exec`` starts: this folder is the first on its PYTHONPATH.

It also runs the ``sitecustomize`` that would have run without it.
"""

import os
import sys
from importlib.machinery import PathFinder
from importlib.util import module_from_spec

_HERE = os.path.dirname(os.path.abspath(__file__))
_HOME = os.path.abspath(os.path.join(_HERE, *[os.pardir] * 4))

_others = [path for path in sys.path if os.path.abspath(path) != _HERE]
_own = PathFinder.find_spec("sitecustomize", _others)
if _own is not None and _own.loader is not None:
    _own.loader.exec_module(module_from_spec(_own))

if sys.orig_argv:  # not the one that is a guest in a compiled program
    sys.path.insert(0, _HOME)  # this very ptxlab, and nothing else from there
    try:
        from ptxlab.verbs.exec import child
    finally:
        sys.path.remove(_HOME)

    child.begin()
