"""Reads YAML into plain values and remembers the line of each, so that a fault can be named by its place.

Two keys alike, a float, a number with a leading zero or an alias are faults: prices are written as text.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from io import StringIO
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from sandyard.catalog.findings import Finding

Path = tuple[str | int, ...]

_INT = re.compile(r"-?(0|[1-9]\d*)")
_NUMBER_LIKE = re.compile(r"[-+]?(\d[\d_]*\.?[\d_]*|\.\d+)([eE][-+]?\d+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
_BOOLS = {"true": True, "false": False}
_NULLS = {"", "~", "null"}


@dataclass(slots=True)
class Document:
    """The values of one file, the line of every path into them, and what was wrong."""

    value: Any = None
    lines: dict[Path, int] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)

    def line(self, path: Path) -> int:
        """The line of ``path``, or of the nearest thing around it; parts that stand in no file are passed over."""
        known: Path = ()
        for part in path:
            if (*known, part) in self.lines:
                known = (*known, part)
        return self.lines.get(known, 0)


def read_yaml(text: str, file: str) -> Document:
    """Read one document; faults are in its ``findings`` and ``value`` is then not to be used."""
    document = Document()
    try:
        node = YAML(typ="safe").compose(StringIO(text))  # by libyaml where ruamel-yaml-clib is there: ten times as fast
    except MarkedYAMLError as error:
        mark = error.problem_mark
        line = mark.line + 1 if mark is not None else 0
        document.findings.append(Finding(file, line, "not-yaml", f"{error.problem}; correct the syntax here"))
        return document
    if node is None:
        document.findings.append(Finding(file, 0, "empty", "the file holds nothing; a card has at least an id"))
        return document
    document.value = _Reader(document, file).read(node, ())
    return document


class _Reader:
    def __init__(self, document: Document, file: str) -> None:
        self.document = document
        self.file = file
        self.seen: set[int] = set()
        """Nodes met so far; an alias is the same node again."""

    def fault(self, node: Node, code: str, message: str) -> None:
        self.document.findings.append(Finding(self.file, node.start_mark.line + 1, code, message))

    def read(self, node: Node, path: Path) -> Any:
        self.document.lines[path] = node.start_mark.line + 1
        if id(node) in self.seen:
            self.fault(node, "anchor", "an alias repeats this value; cards write each value out")
        self.seen.add(id(node))
        if isinstance(node, MappingNode):
            return self.mapping(node, path)
        if isinstance(node, SequenceNode):
            return [self.read(child, (*path, index)) for index, child in enumerate(node.value)]
        if isinstance(node, ScalarNode):
            return self.scalar(node)
        raise TypeError(type(node))

    def mapping(self, node: MappingNode, path: Path) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for key_node, value_node in node.value:
            key = key_node.value if isinstance(key_node, ScalarNode) else None
            if key is None:
                self.fault(key_node, "key", "keys are plain words")
            elif key in values:
                self.fault(key_node, "duplicate-key", f"'{key}' stands twice in one mapping; keep one")
            else:
                values[key] = self.read(value_node, (*path, key))
                self.document.lines[(*path, key)] = key_node.start_mark.line + 1
        return values

    def scalar(self, node: ScalarNode) -> Any:
        text: str = node.value
        if node.style:
            return text
        if text in _NULLS:
            return None
        if text in _BOOLS:
            return _BOOLS[text]
        if _INT.fullmatch(text):
            return int(text)
        if _NUMBER_LIKE.fullmatch(text):
            self.fault(node, "float", f"{text} would be read as a float; write it as text, '{text}'")
        return text
