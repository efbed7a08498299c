"""What a provider says it can do: one YAML file each, which decides the benchmarks that it enters, without a call."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from sandyard.errors import BenchError

CAPABILITIES = {
    "exec": "runs commands with stdin and a timeout",
    "files": "reads and writes files",
    "lifetime": "ends a sandbox by itself when its time is over",
    "snapshot": "saves a sandbox with its disk, and restores it",
    "memory-snapshot": "saves memory and processes with it",
    "fork": "makes new sandboxes that go on from a moment of another",
    "limits": "holds a sandbox to the processors and memory asked for",
}
"""Every capability, and what it promises."""

FOLDER = Path(__file__).parent.parent / "data" / "declarations"


class Declaration(BaseModel):
    """One provider's declaration."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    title: str
    adapter: str
    """Which adapter drives it."""
    region: str
    capabilities: frozenset[str]
    not_offered: frozenset[str] = frozenset()
    """What its plan does not have, as against what this project does not drive yet."""
    not_supported: dict[str, str] = Field(default_factory=dict)
    """Benchmark to the known fault that holds it back."""
    concurrent_sandboxes: int | None = Field(default=None, ge=1)
    """The account's documented limit."""
    creates_per_minute: float | None = Field(default=None, gt=0)
    endpoints: list[str] = Field(default_factory=list)
    """``host:port`` of its API, for the network baseline."""
    tool: str | None = None
    """The program that must be on PATH."""
    card: str | None = None
    """Its rate card."""

    def create_spacing_s(self) -> float:
        """Return the least time between two creates."""
        return 60 / self.creates_per_minute if self.creates_per_minute else 0.0


def read_yaml(path: Path, what: str) -> dict[str, Any]:
    """Read a mapping.

    Raises:
        BenchError: it is not there, is not YAML, has a key twice, or is not a mapping.
    """
    try:
        data = YAML(typ="safe", pure=True).load(path)
    except FileNotFoundError:
        raise BenchError(f"there is no {what} {path}.", hint="Name an existing file.") from None
    except (YAMLError, UnicodeDecodeError) as error:
        raise BenchError(f"{path} is not YAML: {' '.join(str(error).split())}.", hint="Correct it there.") from None
    if not isinstance(data, dict):
        raise BenchError(f"{path} is not a {what}: it holds no keys.", hint="Write keys and values.")
    return data


def load_declaration(name: str, folder: Path = FOLDER) -> Declaration:
    """Read a provider's declaration.

    Raises:
        BenchError: there is none, or it is not right.
    """
    path = folder / f"{name}.yaml"
    if not path.exists():
        known = ", ".join(sorted(file.stem for file in folder.glob("*.yaml")))
        raise BenchError(f"there is no provider {name!r}.", hint=f"Known: {known}.")
    data = read_yaml(path, "declaration")
    try:
        found = Declaration.model_validate(data)
    except ValidationError as error:
        faults = "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors())
        raise BenchError(f"{path} is not a declaration: {faults}.", hint="Correct it there.") from None
    unknown = (found.capabilities | found.not_offered) - set(CAPABILITIES)
    if unknown or found.name != name:
        what = f"unknown capabilities {', '.join(sorted(unknown))}" if unknown else f"the name {found.name!r}"
        raise BenchError(f"{path} has {what}.", hint=f"Capabilities: {', '.join(CAPABILITIES)}. The file has its name.")
    return found
