"""A machine as an OCI runtime bundle describes it."""

from __future__ import annotations

import json

from sandyard.drivers.driver import MachineSpec

AGENT_PATH = "/usr/bin/sandyard-guest"
"""Where the agent's binary appears inside; on everybody's PATH, since it is also the command of that name."""

_SHM = "/dev/shm"  # noqa: S108 - inside the sandbox

# fmt: off
_CAPABILITIES = [
    "CAP_AUDIT_CONTROL", "CAP_AUDIT_READ", "CAP_AUDIT_WRITE", "CAP_BLOCK_SUSPEND", "CAP_CHOWN", "CAP_DAC_OVERRIDE",
    "CAP_DAC_READ_SEARCH", "CAP_FOWNER", "CAP_FSETID", "CAP_IPC_LOCK", "CAP_IPC_OWNER", "CAP_KILL", "CAP_LEASE",
    "CAP_LINUX_IMMUTABLE", "CAP_MAC_ADMIN", "CAP_MAC_OVERRIDE", "CAP_MKNOD", "CAP_NET_ADMIN",
    "CAP_NET_BIND_SERVICE", "CAP_NET_BROADCAST", "CAP_NET_RAW", "CAP_SETFCAP", "CAP_SETGID", "CAP_SETPCAP",
    "CAP_SETUID", "CAP_SYSLOG", "CAP_SYS_ADMIN", "CAP_SYS_BOOT", "CAP_SYS_CHROOT", "CAP_SYS_MODULE", "CAP_SYS_NICE",
    "CAP_SYS_PACCT", "CAP_SYS_PTRACE", "CAP_SYS_RAWIO", "CAP_SYS_RESOURCE", "CAP_SYS_TIME", "CAP_SYS_TTY_CONFIG",
    "CAP_WAKE_ALARM",
]
# fmt: on
"""All of them: they are the sandbox kernel's own, which has nothing of the host's to give away."""


def oci_config(spec: MachineSpec) -> str:
    """Describe the machine to runsc. /tmp is the image's own, on disk, so that big temporary files take no memory."""
    config = {
        "ociVersion": "1.0.2",
        "process": {
            "user": {"uid": 0, "gid": 0},
            "args": [AGENT_PATH, "agent"],
            "env": ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"],
            "cwd": "/",
            "capabilities": dict.fromkeys(("bounding", "effective", "permitted", "inheritable"), _CAPABILITIES),
        },
        "root": {"path": str(spec.rootfs), "readonly": False},
        "hostname": spec.hostname,
        "mounts": [
            {"destination": "/proc", "type": "proc"},
            {"destination": "/sys", "type": "sysfs", "options": ["ro", "nosuid", "noexec", "nodev"]},
            {"destination": "/dev", "type": "tmpfs"},
            {"destination": _SHM, "type": "tmpfs", "options": ["nosuid", "nodev"]},
            {
                "destination": AGENT_PATH,
                "type": "bind",
                "source": str(spec.agent),
                "options": ["ro", "nosuid", "nodev"],
            },
        ],
        "linux": {"namespaces": [{"type": kind} for kind in ("pid", "network", "ipc", "uts", "mount")]},
    }
    return json.dumps(config)
