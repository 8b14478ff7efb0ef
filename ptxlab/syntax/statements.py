"""Statements of a function body (PTX ISA, "Statements", "Control Flow Directives")."""

from __future__ import annotations

from ptxlab.syntax.cursor import Cursor
from ptxlab.syntax.declarations import LINKAGES, SPACES, STARTS, declaration, parameter_list
from ptxlab.syntax.lexer import Token, TokenKind
from ptxlab.syntax.operands import operands
from ptxlab.syntax.tree import (
    Block,
    BranchTargets,
    CallPrototype,
    CallTargets,
    Directive,
    Guard,
    Instruction,
    Label,
    Loc,
    Pragma,
    Statement,
)

_VALUES = {
    ".maxntid": 3,
    ".reqntid": 3,
    ".reqnctapercluster": 3,
    ".minnctapersm": 1,
    ".maxnreg": 1,
    ".maxclusterrank": 1,
    ".explicitcluster": 0,
    ".blocksareclusters": 0,
    ".noreturn": 0,
    ".abi_preserve": 1,
    ".abi_preserve_control": 1,
}
_LABELLED = (".branchtargets", ".calltargets", ".callprototype")
_KNOWN = (*SPACES, *LINKAGES, *_LABELLED, ".loc", ".pragma")


def body(c: Cursor) -> tuple[Statement, ...]:
    """body : "{" { statement } "}" """
    opened = c.expect("{", "the function")
    statements: list[Statement] = []
    while c.token.text != "}":
        if c.at_end():
            c.fail("this '{' is never closed", opened.position, "add '}'")
        statements.append(_statement(c))
    c.advance()
    return tuple(statements)


def directives(c: Cursor) -> tuple[Directive | Pragma, ...]:
    """directives : { directive [ integer { "," integer } ] | pragma }"""
    listed: list[Directive | Pragma] = []
    while c.token.kind is TokenKind.DOTTED:
        if c.token.text == ".pragma":
            listed.append(pragma(c))
            continue
        if c.token.text not in _VALUES:
            c.fail_unknown("directive", (*_VALUES, ".pragma"))
        listed.append(_directive(c))
    return tuple(listed)


def pragma(c: Cursor) -> Pragma:
    """pragma : ".pragma" string { "," string } ";" """
    position = c.advance().position
    strings = c.listed(lambda: c.string("a pragma"))
    c.expect(";", "the pragma")
    return Pragma(strings, position=position)


def _directive(c: Cursor) -> Directive:
    token = c.advance()
    most = _VALUES[token.text]
    values: list[int] = []
    if most:
        values.append(c.integer(f"the value of {token.text}"))
        while len(values) < most and c.accept(","):
            values.append(c.integer(f"the value of {token.text}"))
    return Directive(token.text[1:], tuple(values), position=token.position)


def _statement(c: Cursor) -> Statement:
    """statement : block | label | instruction | declaration | loc | pragma"""
    token = c.token
    if token.kind is TokenKind.WORD:
        if c.peek().text == ":":
            return _label(c)
        return _instruction(c, None, token)
    text = token.text
    if text == "@":
        return _guarded(c)
    if text == "{":
        return Block(body(c), position=token.position)
    if text in STARTS or text in LINKAGES:
        return declaration(c)
    if text == ".loc":
        return _loc(c)
    if text == ".pragma":
        return pragma(c)
    if text in _LABELLED:
        c.fail(f"{text} needs a label", hint=f"write NAME: {text} ...")
    if token.kind is TokenKind.DOTTED:
        c.fail_unknown("directive", _KNOWN)
    hint = "'}' and a label take no ';' after them" if text == ";" else None
    return c.fail(f"expected a statement, found {c.found()}", hint=hint)


def _label(c: Cursor) -> Label | BranchTargets | CallTargets | CallPrototype:
    """label : name ":" [ branchtargets | calltargets | callprototype ]"""
    position = c.token.position
    name = c.name("a label").text
    c.advance()
    text = c.token.text
    if text == ".branchtargets":
        return BranchTargets(name, _names(c, "a label"), position=position)
    if text == ".calltargets":
        return CallTargets(name, _names(c, "a function"), position=position)
    if text == ".callprototype":
        return _prototype(c, name)
    return Label(name, position=position)


def _names(c: Cursor, what: str) -> tuple[str, ...]:
    """names : name { "," name } ";" """
    directive = c.advance().text
    names = c.listed(lambda: c.word(what).text)
    c.expect(";", directive)
    return names


def _prototype(c: Cursor, label: str) -> CallPrototype:
    """callprototype : ".callprototype" [ parameter_list ] "_" [ parameter_list ] directives ";" """
    position = c.advance().position
    results = parameter_list(c)
    c.expect("_", ".callprototype and its results")
    accepted = parameter_list(c)
    attributes = tuple(d for d in directives(c) if isinstance(d, Directive))
    c.expect(";", ".callprototype")
    return CallPrototype(label, results, accepted, attributes, position=position)


def _guarded(c: Cursor) -> Instruction:
    """guarded : "@" [ "!" ] name instruction"""
    position = c.advance().position
    negated = c.accept("!")
    if c.token.kind is not TokenKind.WORD:
        c.fail(f"expected a predicate after '@', found {c.found()}")
    guard = Guard(c.advance().text, negated, position=position)
    if c.token.kind is not TokenKind.WORD:
        c.fail(f"expected an instruction after its guard, found {c.found()}")
    return _instruction(c, guard, c.token)


def _instruction(c: Cursor, guard: Guard | None, token: Token) -> Instruction:
    """instruction : opcode { modifier } operands ";" """
    c.advance()
    opcode, *modifiers = token.text.split(".")
    while c.token.kind is TokenKind.DOTTED:
        modifiers.append(c.advance().text[1:])
    parsed = operands(c, call=opcode == "call")
    start = guard.position if guard else token.position
    return Instruction(opcode, tuple(modifiers), parsed, guard, position=start)


def _loc(c: Cursor) -> Loc:
    """loc : ".loc" file line column [ "," "function_name" name [ "+" n ] "," "inlined_at" n n n ]"""
    position = c.advance().position
    file, line, column = (c.integer(what) for what in ("a file index", "a line", "a column"))
    rest: list[str] = []
    while c.accept(","):
        start = c.token.position
        what = c.word("function_name or inlined_at").text
        if what == "function_name":
            text = c.word("a label of the debugging strings").text
            if c.accept("+"):
                text += f"+{c.integer('an offset')}"
        elif what == "inlined_at":
            text = " ".join(str(c.integer("a file index, line and column")) for _ in range(3))
        else:
            c.fail(f"expected function_name or inlined_at, found '{what}'", start)
        rest.append(f"{what} {text}")
    return Loc(file, line, column, ", ".join(rest), position=position)
