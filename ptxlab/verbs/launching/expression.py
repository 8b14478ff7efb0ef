"""NumPy expressions on the command line: ``a.astype(f32) @ b.T.astype(f32) + 1``.

An expression is parsed, and then computed here node by node: names of arguments, numbers,
arithmetic, comparisons, slices, ``.T``, and the methods and functions of two tables. Nothing is ever
handed to Python's own ``eval``, so that no text can do more than arithmetic.
"""

from __future__ import annotations

import ast
import operator
import re
import warnings
from collections.abc import Callable, Mapping
from keyword import iskeyword
from typing import Any

import numpy as np

from ptxlab.cli.readers import suggestion
from ptxlab.errors import PtxlabError
from ptxlab.numbers.synonyms import SYNONYMS
from ptxlab.verbs.launching.arrays import ELEMENT_TYPES, TF32, converted

LONGEST = 2000
"""Characters of an expression; Python's parser recurses as deep as the text nests."""

LARGEST_INTEGER_BITS = 4096
"""Bits that a power or shift of plain integers may have: numpy has 64, Python no limit."""

_OPERATORS: dict[type[ast.AST], Callable[..., Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
    ast.MatMult: operator.matmul,
    ast.BitAnd: operator.and_,
    ast.BitOr: operator.or_,
    ast.BitXor: operator.xor,
    ast.LShift: operator.lshift,
    ast.RShift: operator.rshift,
    ast.UAdd: operator.pos,
    ast.USub: operator.neg,
    ast.Invert: operator.invert,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}

METHODS = (
    "astype",
    "clip",
    "flatten",
    "max",
    "mean",
    "min",
    "ravel",
    "reshape",
    "sum",
    "transpose",
    "view",
)
"""The methods of an array."""

FUNCTIONS = (
    "abs", "arange", "ceil", "clip", "concatenate", "cos", "cumsum", "exp", "exp2", "eye", "floor",
    "log", "log2", "max", "maximum", "mean", "min", "minimum", "ones", "outer", "repeat", "rint",
    "roll", "sign", "sin", "sort", "sqrt", "sum", "tanh", "transpose", "tril", "triu", "where",
    "zeros",
)  # fmt: skip
"""The functions of numpy."""

_EXACT = re.compile(
    r"(?:abs|arange|astype|ceil|clip|eye|flatten|floor|full|max|maximum|min|minimum|ones|ravel|repeat|reshape|roll|sign|sort|"
    r"transpose|tril|triu|view|where|zeros)$"
)


def is_rounded(text: str) -> bool:
    """Say whether numbers that an expression makes depend on how sums are added up and functions are rounded."""
    return "@" in text or any(
        name in FUNCTIONS + METHODS and not _EXACT.match(name)
        for name in re.findall(r"(\w+)\s*\(", text)
    )


KEYWORDS = ("axis", "dtype", "keepdims")
"""The arguments that methods and functions take by name."""

_FAILURES = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)


class _Refused(Exception):
    """What an expression may not contain, in words."""


def evaluate(text: str, names: Mapping[str, Any]) -> Any:
    """Return the value of ``text`` in terms of ``names``: a numpy array or scalar, or a number.

    The PTX names of types (``f32``) stand for numpy's; what is converted to tf32 stays f32, rounded. An
    argument may be called ``in`` or ``is``, as Python's own words are. Raises PtxlabError for text that does not
    parse, for all that the tables do not hold, and for what numpy cannot compute.
    """
    types = {name: scalar.dtype for name, scalar in ELEMENT_TYPES.items()}
    scope: dict[str, Any] = {**types, "tf32": TF32}
    scope |= {other: scope[name] for other, name in SYNONYMS.items() if name in scope}
    scope |= names
    parsed = _without_keywords(text.strip(), scope)
    try:
        if len(text) > LONGEST:
            raise _Refused(f"it is longer than {LONGEST} characters")
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            return _value(ast.parse(parsed, mode="eval").body, scope)
    except SyntaxError as error:
        reason = f"it does not parse: {error.msg}"
    except (RecursionError, MemoryError):
        reason = "it nests too deeply, or makes more than fits in memory"
    except _Refused as error:
        reason = str(error)
    except _FAILURES as error:
        reason = str(error) or type(error).__name__
    raise PtxlabError(
        f"expression {text!r}: {reason}",
        hint="expressions are such as a.astype(f32) @ b.astype(f32), of arguments as they were given",
    )


def _value(node: ast.expr, scope: Mapping[str, Any]) -> Any:
    match node:
        case ast.Constant(value=bool() | int() | float() | None as constant):
            return constant
        case ast.Name(id=name):
            if name not in scope:
                raise _Refused(f"there is no {name!r}{suggestion(name, scope)}")
            return scope[name]
        case ast.BinOp(left=left, op=op, right=right):
            return _binary(op, _value(left, scope), _value(right, scope))
        case ast.UnaryOp(op=op, operand=operand) if type(op) in _OPERATORS:
            return _OPERATORS[type(op)](_value(operand, scope))
        case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in _OPERATORS:
            return _OPERATORS[type(op)](_value(left, scope), _value(right, scope))
        case ast.Tuple(elts=elements) | ast.List(elts=elements):
            return tuple(_value(element, scope) for element in elements)
        case ast.Subscript(value=array, slice=index):
            return _array(array, scope)[_index(index, scope)]
        case ast.Attribute(value=array, attr="T"):
            return _array(array, scope).T
        case ast.Call(func=function, args=positional, keywords=keywords):
            call = _callee(function, scope)
            named = {_keyword(given): _value(given.value, scope) for given in keywords}
            return _called(call, [_value(given, scope) for given in positional], named)
    raise _Refused(f"{ast.unparse(node)!r} is not something it may contain")


def _without_keywords(text: str, scope: dict[str, Any]) -> str:
    """Give the names in ``scope`` that Python keeps for itself others, and return the text with these."""
    for word in [name for name in scope if iskeyword(name)]:
        free = word + "_"
        while free in scope or free in text:
            free += "_"
        scope[free] = scope.pop(word)
        text = re.sub(rf"(?<![\w.]){word}(?!\w)", free, text)
    return text


def _called(call: Callable[..., Any], positional: list[Any], named: dict[str, Any]) -> Any:
    """Call what makes numbers of a type; numpy has no tf32, so these are made in f64 and rounded once."""
    if not any(given is TF32 for given in (*positional, *named.values())):
        return call(*positional, **named)
    bits = getattr(call, "__name__", "") == "view"
    dtype = TF32.dtype if bits else np.dtype(np.float64)
    made = call(
        *(dtype if given is TF32 else given for given in positional),
        **{name: dtype if given is TF32 else given for name, given in named.items()},
    )
    return made if bits else converted(np.asarray(made), TF32)


def _binary(op: ast.operator, left: Any, right: Any) -> Any:
    plain = isinstance(left, int) and isinstance(right, int)
    if plain and isinstance(op, ast.Pow | ast.LShift):
        bits = left.bit_length() * right if isinstance(op, ast.Pow) else left.bit_length() + right
        if bits > LARGEST_INTEGER_BITS:
            raise _Refused(f"{left} and {right} make too large an integer")
    if isinstance(op, ast.MatMult):  # numpy would add up in as few bits
        left, right = (_wide(each) for each in (left, right))
    return _OPERATORS[type(op)](left, right)


def _wide(factor: Any) -> Any:
    """Return numbers of 16 bits and fewer as float64, others as they are."""
    narrow = isinstance(factor, np.ndarray) and factor.dtype.itemsize <= 2
    return factor.astype(np.float64) if narrow and factor.dtype.kind not in "iub" else factor


def _array(node: ast.expr, scope: Mapping[str, Any]) -> Any:
    """Compute what must be an array, or a number of numpy: nothing else has items or methods here."""
    value = _value(node, scope)
    if not (isinstance(value, np.generic) or hasattr(value, "__array_ufunc__")):
        raise _Refused(f"{ast.unparse(node)!r} is no array")
    return value


def _index(node: ast.expr, scope: Mapping[str, Any]) -> Any:
    match node:
        case ast.Tuple(elts=elements):
            return tuple(_index(element, scope) for element in elements)
        case ast.Slice(lower=lower, upper=upper, step=step):
            return slice(
                *(None if part is None else _value(part, scope) for part in (lower, upper, step))
            )
        case ast.Constant(value=constant) if constant is ...:
            return ...
    return _value(node, scope)


def _callee(node: ast.expr, scope: Mapping[str, Any]) -> Callable[..., Any]:
    """Return the function or method that a call names: ``sqrt``, ``np.sqrt``, ``a.astype``."""
    match node:
        case ast.Name(id=name) | ast.Attribute(value=ast.Name(id="np" | "numpy"), attr=name):
            if name not in FUNCTIONS:
                raise _Refused(f"there is no {name}(){suggestion(name, FUNCTIONS)}")
            function: Callable[..., Any] = getattr(np, name)
            return function
        case ast.Attribute(value=array, attr=name):
            if name not in METHODS:
                raise _Refused(f"there is no .{name}(){suggestion(name, METHODS)}")
            method: Callable[..., Any] = getattr(_array(array, scope), name)
            return method
    raise _Refused(f"{ast.unparse(node)!r} is not something it may call")


def _keyword(given: ast.keyword) -> str:
    if given.arg not in KEYWORDS:
        raise _Refused(f"{given.arg or '**'} is no keyword here; there are {', '.join(KEYWORDS)}")
    return given.arg
