"""What every sandbox of one runtime shares."""

from __future__ import annotations

from dataclasses import dataclass

from sandyard.drivers import Driver, MachineSpec
from sandyard.images import ImageStore
from sandyard.runtime.clock import Clock
from sandyard.runtime.layout import Layout
from sandyard.runtime.spec import HostSize, SandboxSpec
from sandyard.store import SandboxRow, Store


@dataclass(frozen=True, slots=True)
class Settings:
    """The numbers that an operator may want to change."""

    start_timeout_s: float = 30.0
    """How long a machine's agent may take to answer after its start."""

    idle_cpu_share: float = 0.1
    """Share of one processor below which a sandbox that nobody calls counts as idle; gVisor's own clock takes half."""

    tick_s: float = 1.0
    """How often the clocks are looked at."""

    sample_s: float = 10.0
    """How often usage is written down while a sandbox is awake."""

    lease_s: float = 30.0
    """How long a one-off sandbox outlives a process that was killed."""

    refill_after_s: float = 0.25
    """How long after a copy was taken from the pool the next one is started."""

    starts_at_once: int = 4
    """Machines started at the same time by one call: a fork into many, a pool being filled, a recovery."""


@dataclass(frozen=True, slots=True)
class Services:
    """The parts below the runtime, and the seams through which tests replace them."""

    store: Store
    driver: Driver
    images: ImageStore
    layout: Layout
    clock: Clock
    settings: Settings
    size: HostSize
    host: str
    agent: str
    """The digest of the agent that new machines boot with."""

    def machine_spec(self, row: SandboxRow, spec: SandboxSpec) -> MachineSpec:
        """Return what the driver needs to make the machine of a sandbox."""
        return MachineSpec(
            id=row.id,
            directory=self.layout.sandbox(row.id),
            rootfs=self.images.rootfs(row.image_digest),
            agent=self.layout.agent(row.agent),
            cpus=spec.cpus,
            memory_mib=spec.memory_mib,
            hostname=hostname(row.id),
            network=spec.network,
        )


def hostname(sandbox_id: str) -> str:
    """Return a sandbox's host name: its id, as far as host names allow."""
    return sandbox_id.replace("_", "-")
