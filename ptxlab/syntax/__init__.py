"""PTX text to tree and back."""

from ptxlab.syntax import tree
from ptxlab.syntax.lexer import locate
from ptxlab.syntax.parser import parse
from ptxlab.syntax.printer import to_text

__all__ = ["locate", "parse", "to_text", "tree"]
