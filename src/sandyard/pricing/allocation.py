"""From the size that was asked for to the one that is bought: up, never down, and always one sandbox.

Several small boxes never replace one that is too large.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING

from sandyard.catalog.measures import GIB_PER_GB, Gigabyte, Size
from sandyard.pricing.rounding import round_up

if TYPE_CHECKING:
    from sandyard.catalog.models import (
        AnyAllocation,
        Card,
        NumberRange,
        Shape,
        ShapesAllocation,
        SizeRange,
        StepsAllocation,
    )


@dataclass(frozen=True, slots=True)
class Request:
    """What one sandbox should have."""

    vcpu: Decimal
    memory_gib: Decimal
    disk_gib: Decimal


@dataclass(frozen=True, slots=True)
class Allocated:
    """What one sandbox is given and billed for."""

    id: str
    vcpu: Decimal
    memory_gib: Decimal
    disk_gib: Decimal
    shape: Shape | None
    why: str
    """How it was chosen."""


@dataclass(frozen=True, slots=True)
class Refused:
    """Why no single sandbox of this product can hold the request."""

    why: str


def resolve(card: Card, request: Request) -> Allocated | Refused:
    """Choose the allocation of ``card`` for ``request``."""
    allocation, gb = card.allocation, card.conventions.gb
    if allocation.kind == "unknown":
        return Refused(f"sizes are not published: {allocation.note}")
    if allocation.kind == "shapes":
        return _from_shapes(allocation, request, gb)
    if allocation.kind == "steps":
        return _from_steps(allocation, request, gb)
    return _smallest(allocation, request, gb)


def _smallest(allocation: AnyAllocation, request: Request, gb: Gigabyte) -> Allocated | Refused:
    results = [
        _from_shapes(way, request, gb) if way.kind == "shapes" else _from_steps(way, request, gb)
        for way in allocation.of
    ]
    found = [result for result in results if isinstance(result, Allocated)]
    if not found:
        return Refused("; ".join(result.why for result in results if isinstance(result, Refused)))
    return min(found, key=lambda result: (result.vcpu, result.memory_gib, result.disk_gib))


def _from_shapes(allocation: ShapesAllocation, request: Request, gb: Gigabyte) -> Allocated | Refused:
    for shape in allocation.shapes:
        memory = _shape_memory(shape, request, gb)
        most = request.disk_gib if shape.disk is None else shape.disk.gib(gb)
        if shape.vcpu >= request.vcpu and memory is not None and most >= request.disk_gib:
            disk = most if shape.disk_min is None else max(request.disk_gib, shape.disk_min.gib(gb))
            return Allocated(
                shape.id, shape.vcpu, memory, disk, shape, f"first listed shape that covers {_said(request)}"
            )
    largest = allocation.shapes[-1]
    disk_text = f", disk {largest.disk}" if largest.disk else ""
    size = f"{largest.vcpu} vCPU, {largest.memory}{disk_text}"
    return Refused(f"no shape covers {_said(request)}; the largest is {largest.id} ({size})")


def _shape_memory(shape: Shape, request: Request, gb: Gigabyte) -> Decimal | None:
    own = shape.memory.gib(gb)
    if own >= request.memory_gib:
        return own
    if shape.memory_max is None or shape.memory_step is None:
        return None
    raised = round_up(request.memory_gib, shape.memory_step.gib(gb))
    return raised if raised <= shape.memory_max.gib(gb) else None


def _from_steps(way: StepsAllocation, request: Request, gb: Gigabyte) -> Allocated | Refused:
    disk = _disk(way, request, gb)
    if isinstance(disk, Refused):
        return disk
    tried = False
    for vcpu in _vcpus(way, request.vcpu):
        tried = True
        memory = _memory(way, request.memory_gib, vcpu, disk, gb)
        if memory is not None:
            return Allocated(way.id, vcpu, memory, disk, None, f"rounded up from {_said(request)}")
    if not tried:
        return Refused(
            f"{request.vcpu} vCPU is more than the {way.vcpu.max or _last(way.vcpu.choices)} that can be asked for"
        )
    return Refused(f"no combination of CPU and memory covers {_said(request)}")


def _last(choices: tuple[Decimal, ...] | None) -> Decimal | None:
    return choices[-1] if choices else None


def _vcpus(way: StepsAllocation, wanted: Decimal) -> Iterator[Decimal]:
    """Every vCPU that can be asked for and covers ``wanted``, ascending; without steps, what the ratio needs."""
    grid: NumberRange = way.vcpu
    if grid.choices is not None:
        yield from (choice for choice in grid.choices if choice >= wanted)
        return
    first = max(wanted, grid.min or wanted)
    if grid.step is not None:
        first = round_up(first, grid.step)
    if grid.max is not None and first > grid.max:
        return
    yield first
    if way.max_gib_per_vcpu is None or grid.step is None or grid.max is None:
        return
    following = first + grid.step
    while following <= grid.max:
        yield following
        following += grid.step


def _memory(way: StepsAllocation, wanted: Decimal, vcpu: Decimal, disk: Decimal, gb: Gigabyte) -> Decimal | None:
    need = wanted
    if way.min_gib_per_vcpu is not None:
        need = max(need, vcpu * way.min_gib_per_vcpu)
    if way.max_disk_gb_per_memory_gib is not None:
        need = max(need, disk / GIB_PER_GB / way.max_disk_gb_per_memory_gib)
    memory = _fit(way.memory, need, gb)
    if memory is None or (way.max_gib_per_vcpu is not None and memory > vcpu * way.max_gib_per_vcpu):
        return None
    return memory


def _disk(way: StepsAllocation, request: Request, gb: Gigabyte) -> Decimal | Refused:
    if way.disk is None:
        return request.disk_gib
    disk = _fit(way.disk, request.disk_gib, gb)
    if disk is None:
        return Refused(f"a disk of {request.disk_gib} GiB is larger than the {_largest(way.disk)} that can be had")
    return disk


def _largest(sizes: SizeRange) -> Size | None:
    return sizes.fixed or (sizes.choices[-1] if sizes.choices else sizes.max)


def _fit(sizes: SizeRange, wanted: Decimal, gb: Gigabyte) -> Decimal | None:
    """The smallest size that can be asked for and is at least ``wanted``."""
    if sizes.fixed is not None:
        fixed = sizes.fixed.gib(gb)
        return fixed if fixed >= wanted else None
    if sizes.choices is not None:
        return next((choice for size in sizes.choices if (choice := size.gib(gb)) >= wanted), None)
    value = max(wanted, sizes.min.gib(gb)) if sizes.min is not None else wanted
    if sizes.step is not None:
        value = round_up(value, sizes.step.gib(gb))
    return None if sizes.max is not None and value > sizes.max.gib(gb) else value


def _said(request: Request) -> str:
    return f"{request.vcpu} vCPU, {request.memory_gib} GiB, disk {request.disk_gib} GiB"
