"""What the command line takes from its environment, and how it opens a runtime with it."""

from __future__ import annotations

import os
from pathlib import Path

from platformdirs import user_state_path
from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict


def default_state_dir() -> Path:
    """Return where state is kept unless somebody says otherwise: the system's place for root, the user's for others."""
    return Path("/var/lib/sandyard") if os.geteuid() == 0 else user_state_path("sandyard")


class CliSettings(BaseSettings):
    """Every ``SANDYARD_`` variable that the command line knows."""

    model_config = SettingsConfigDict(env_prefix="SANDYARD_", frozen=True)

    state_dir: Path = Field(default_factory=default_state_dir)
    """Where images, sandboxes and snapshots are kept."""
