"""Shows on stderr how far pulls, builds and first starts are."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from sandyard.images import Progress as Tell
from sandyard.units import format_bytes

_QUIET_S = 1.0
"""Off a terminal, a step is only told of once it has taken this long: most take none."""


@contextmanager
def progress_bar() -> Iterator[Tell]:
    """Yield what takes the steps; on a terminal they are a bar that is gone afterwards, elsewhere a line for each."""
    console = Console(stderr=True)
    if console.is_terminal:
        with _Bar(console) as bar:
            yield bar.tell
    else:
        lines = _Lines(console)
        try:
            yield lines.tell
        finally:
            lines.stop()


class _Bar(Progress):
    """One bar, for the step that is being done."""

    def __init__(self, console: Console) -> None:
        """Show the step, a bar, bytes where they are known, and the time."""
        columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[amount]}"))
        super().__init__(*columns, TimeElapsedColumn(), console=console, transient=True)
        self._task = self.add_task("starting", total=None, amount="")

    def tell(self, step: str, done: int | None, total: int | None) -> None:
        """Show this step."""
        amount = "" if done is None else format_bytes(done) + (f" of {format_bytes(total)}" if total else "")
        self.update(self._task, description=step, completed=done or 0, total=total, amount=amount)


class _Lines:
    """A line for each step that takes long."""

    def __init__(self, console: Console) -> None:
        """Write to ``console``."""
        self._console = console
        self._step = ""
        self._timer: threading.Timer | None = None

    def tell(self, step: str, done: int | None, total: int | None) -> None:
        """Say so if it is a new step, and goes on for a while."""
        del done, total
        if step != self._step:
            self.stop()
            self._step = step
            self._timer = threading.Timer(_QUIET_S, self._print, [step])
            self._timer.daemon = True
            self._timer.start()

    def stop(self) -> None:
        """Say no more of the step that is over."""
        if self._timer is not None:
            self._timer.cancel()

    def _print(self, step: str) -> None:
        self._console.print(f"sandyard: {step} ...", markup=False, highlight=False, soft_wrap=True)
