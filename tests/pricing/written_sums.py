"""Works out a sum that is written in a case file, in exact fractions and apart from the engine."""

from __future__ import annotations

import re
from fractions import Fraction

_TOKEN = re.compile(r"\s*(\d+(?:\.\d+)?|[-+x/()])")


def work_out(text: str) -> Fraction:
    """The value of numbers joined by ``x / + -`` and brackets, with the usual precedence."""
    tokens = _TOKEN.findall(text)
    assert "".join(tokens) == re.sub(r"\s+", "", text), f"not a sum: {text}"
    value, rest = _sum(tokens)
    assert not rest, f"not a sum: {text}"
    return value


def _sum(tokens: list[str]) -> tuple[Fraction, list[str]]:
    value, tokens = _product(tokens)
    while tokens and tokens[0] in "+-":
        right, rest = _product(tokens[1:])
        value, tokens = (value + right if tokens[0] == "+" else value - right), rest
    return value, tokens


def _product(tokens: list[str]) -> tuple[Fraction, list[str]]:
    value, tokens = _atom(tokens)
    while tokens and tokens[0] in "x/":
        right, rest = _atom(tokens[1:])
        value, tokens = (value * right if tokens[0] == "x" else value / right), rest
    return value, tokens


def _atom(tokens: list[str]) -> tuple[Fraction, list[str]]:
    if tokens[0] == "(":
        value, rest = _sum(tokens[1:])
        assert rest[0] == ")"
        return value, rest[1:]
    return Fraction(tokens[0]), tokens[1:]
