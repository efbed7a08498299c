"""What the same work needs in a month, as every vendor is asked for it. Exact: Decimal in, no float."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from decimal import Decimal, InvalidOperation
from typing import Self

from sandyard.pricing.errors import InvalidWorkloadError

ZERO = Decimal(0)
LONGEST_MONTH_H = Decimal(744)
"""31 days: no sandbox runs longer in a month."""


@dataclass(frozen=True, slots=True)
class Input:
    """One input of a workload: what it means and what is too much to be meant."""

    name: str
    unit: str
    meaning: str
    most: Decimal
    """Above this the value is taken for a slip."""

    least: Decimal = ZERO
    whole: bool = False


def _input(name: str, unit: str, meaning: str, most: int, least: str = "0", *, whole: bool = False) -> Input:
    return Input(name, unit, meaning, Decimal(most), Decimal(least), whole)


INPUTS: dict[str, Input] = {
    item.name: item
    for item in (
        _input("vcpu", "vCPU", "requested CPU of one sandbox", 1024, "0.001"),
        _input("memory_gib", "GiB", "requested memory of one sandbox", 65536, "0.001"),
        _input("disk_gib", "GiB", "requested disk of one sandbox", 1_000_000),
        _input("observed_memory_gib", "GiB", "memory in use while awake; observed-memory meters only", 65536),
        _input("hot_disk_gib", "GiB", "disk bytes in use while awake; actual-byte meters only", 1_000_000),
        _input("cold_disk_gib", "GiB", "disk bytes kept; actual-byte meters only", 1_000_000),
        _input("running_hours", "h", "sandbox-hours awake in the month, all sandboxes together", 744_000_000),
        _input("suspended_hours", "h", "sandbox-hours suspended in the month, all together", 744_000_000),
        _input("executions", "", "commands or jobs in the month", 10**12, whole=True),
        _input("creations", "", "sandboxes created in the month", 10**12, whole=True),
        _input("resumes", "", "resumes in the month", 10**12, whole=True),
        _input("snapshot_gib", "GiB", "state that one suspension saves", 65536),
        _input("kept_snapshots_gib", "GiB", "snapshots kept all month beside the suspended state", 1_000_000),
        _input("image_gib", "GiB", "base image kept and read at each creation", 65536),
        _input("cpu_utilization", "", "share of the requested CPU in use while awake; actual-CPU meters only", 1),
        _input("cpu_burst", "x", "average CPU as a multiple of the baseline; baseline-and-peak products only", 64, "1"),
        _input("memory_burst", "x", "average memory as a multiple of the baseline; likewise", 64, "1"),
        _input("egress_gib", "GiB", "traffic out to the internet in the month", 10**9),
        _input("requests", "", "requests through sandbox links in the month", 10**15, whole=True),
        _input("concurrency", "", "sandboxes awake at once, at the peak", 1_000_000, "1", whole=True),
    )
}
"""Every input by name, in the order of the documentation."""


def exact(value: object) -> Decimal:
    """Take a Decimal, an int or the text of a number.

    Raises:
        ValueError: a float, a bool, not a number, or not finite.
    """
    if isinstance(value, Decimal):
        number = value
    elif isinstance(value, bool) or not isinstance(value, int | str):
        raise ValueError(f"{value!r} is not exact; write it as text, '0.25', or as a Decimal")  # noqa: TRY004 - callers collect ValueError
    else:
        text = value.strip() if isinstance(value, str) else value
        percent = isinstance(text, str) and text.endswith("%")
        try:
            number = Decimal(text[:-1] if percent and isinstance(text, str) else text)
        except InvalidOperation:
            raise ValueError(f"'{value}' is not a number") from None
        number = number / 100 if percent else number
    if not number.is_finite():
        raise ValueError(f"'{value}' is not a finite number")
    return number


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """One month of work. The defaults are the canonical comparison, AWS Lambda MicroVM's smallest published shape.

    Make one with ``Workload.of(vcpu="2", running_hours=100)``, which takes text, whole numbers and Decimals and names
    every wrong input at once. ``INPUTS`` describes the fields.

    Raises:
        InvalidWorkloadError: an input is negative, not finite, absurd, or disagrees with another.
    """

    vcpu: Decimal = Decimal("0.25")
    memory_gib: Decimal = Decimal("0.5")
    disk_gib: Decimal = Decimal(5)
    observed_memory_gib: Decimal = Decimal("0.5")
    hot_disk_gib: Decimal = Decimal(5)
    cold_disk_gib: Decimal = Decimal(5)
    running_hours: Decimal = Decimal(200)
    suspended_hours: Decimal = Decimal(50)
    executions: Decimal = Decimal(60)
    creations: Decimal = Decimal(60)
    resumes: Decimal = Decimal(50)
    snapshot_gib: Decimal = Decimal(2)
    kept_snapshots_gib: Decimal = ZERO
    image_gib: Decimal = Decimal(2)
    cpu_utilization: Decimal = Decimal("0.5")
    cpu_burst: Decimal = Decimal(1)
    memory_burst: Decimal = Decimal(1)
    egress_gib: Decimal = ZERO
    requests: Decimal = ZERO
    concurrency: Decimal = Decimal(1)

    def __post_init__(self) -> None:
        """Refuse what cannot be meant."""
        problems = [problem for name in INPUTS if (problem := _problem(INPUTS[name], getattr(self, name))) is not None]
        if not problems:
            problems = self._disagreements()
        if problems:
            raise InvalidWorkloadError(
                "The workload cannot be priced",
                tuple(problems),
                hint="Correct these inputs; `sandyard price --help` lists them.",
            )

    def _disagreements(self) -> list[str]:
        problems = []
        alive = self.running_hours + self.suspended_hours
        if self.running_hours > LONGEST_MONTH_H * self.concurrency:
            problems.append(
                f"running_hours {self.running_hours} is more than {LONGEST_MONTH_H} h a month for {self.concurrency} "
                "sandbox(es) at once; raise concurrency"
            )
        elif self.resumes == 0 and self.creations == 0 and alive > 0:
            problems.append("hours without a creation or resume: something must have started the sandbox")
        if self.suspended_hours > LONGEST_MONTH_H * max(self.creations, self.concurrency):
            problems.append(
                f"suspended_hours {self.suspended_hours} is more than {LONGEST_MONTH_H} h for each sandbox that exists"
            )
        return problems

    @classmethod
    def of(cls, **inputs: Decimal | int | str) -> Self:
        """Make a workload from text, whole numbers or Decimals; what is not named keeps the canonical value.

        Raises:
            InvalidWorkloadError: naming every unknown or wrong input.
        """
        return cls.from_mapping(inputs)

    @classmethod
    def from_mapping(cls, inputs: Mapping[str, object]) -> Self:
        """As ``of``, for inputs that came from a file."""
        problems: list[str] = []
        values: dict[str, Decimal] = {}
        for name, value in inputs.items():
            if name not in INPUTS:
                problems.append(f"there is no input '{name}'")
                continue
            try:
                values[name] = exact(value)
            except ValueError as error:
                problems.append(f"{name}: {error}")
                continue
            problem = _problem(INPUTS[name], values[name])
            if problem is not None:
                problems.append(problem)
        if problems:
            raise InvalidWorkloadError(
                "The workload cannot be priced",
                tuple(problems),
                hint="Correct these inputs; `sandyard price --help` lists them.",
            )
        return cls(**values)

    def as_dict(self) -> dict[str, Decimal]:
        """Every input by name."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @property
    def runs(self) -> Decimal:
        """Continuous runs: each creation and each resume starts one."""
        return self.creations + self.resumes


def _problem(item: Input, value: object) -> str | None:
    unit = f" {item.unit}" if item.unit else ""
    if not isinstance(value, Decimal):
        return f"{item.name}: {value!r} is not a Decimal; use Workload.of"
    if not value.is_finite():
        return f"{item.name}: '{value}' is not a finite number"
    if value < item.least:
        return f"{item.name} {value} is less than {item.least}{unit}"
    if value > item.most:
        return f"{item.name} {value} is more than {item.most}{unit}"
    if item.whole and value != value.to_integral_value():
        return f"{item.name} {value} is not a whole number"
    return None


CANONICAL = Workload()
"""The workload that rankings are published for."""
