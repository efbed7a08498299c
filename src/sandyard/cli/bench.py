"""``sandyard bench``: measure sandbox providers, and judge whether the measurement can be believed."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from sandyard.bench.audit import audit as audit_run
from sandyard.bench.benchmarks import all_benchmarks
from sandyard.bench.compare import compare as compare_runs
from sandyard.bench.importers import computesdk as computesdk_files
from sandyard.bench.local import open_providers
from sandyard.bench.plan import QUICK, Plan, read_plan
from sandyard.bench.records import Manifest, Outcome, Trial
from sandyard.bench.report import to_html, to_json, to_markdown
from sandyard.bench.report.markdown import audit_lines, table
from sandyard.bench.report.view import Report, make_report, number
from sandyard.bench.run import Progress as Done
from sandyard.bench.run import Run, begin, check_resumable
from sandyard.bench.scores import LEVELS
from sandyard.bench.store import RESOLUTIONS, TRIALS, RunFolder
from sandyard.cli.messages import say
from sandyard.cli.options import StateDir
from sandyard.cli.session import perform
from sandyard.cli.settings import CliSettings
from sandyard.errors import InvalidRequestError
from sandyard.providers import CreateRequest

app = typer.Typer(help="Measure sandbox providers, audit the measurement, report it.", no_args_is_help=True)
imports = typer.Typer(help="Read other projects' results as a run.", no_args_is_help=True)
app.add_typer(imports, name="import")

RunPath = Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a run.")]


class Form(StrEnum):
    """What a report is written as."""

    HTML = "html"
    MARKDOWN = "markdown"
    JSON = "json"


class DayAs(StrEnum):
    """What a result file of another project is taken for."""

    ROUND = "round"
    UNIT = "unit"


@app.command()
def run(
    plan: Annotated[Path | None, typer.Argument(metavar="[PLAN.yaml]", help="What to run.")] = None,
    *,
    quick: Annotated[bool, typer.Option("--quick", help="A small plan, on whatever this machine has.")] = False,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="The run's folder; a new name by default.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run in --out.")] = False,
    state_dir: StateDir = None,
) -> None:
    """Run benchmarks. Ctrl-C stops cleanly: no sandbox is left, and --resume goes on."""
    if (plan is None) is not quick:
        raise InvalidRequestError("there must be a plan or --quick, and not both.", hint="See docs/bench.md.")
    if resume and out is None:
        raise InvalidRequestError("--resume needs --out, the run's folder.", hint="Name it.")
    chosen = QUICK if plan is None else read_plan(plan)
    name = f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(2)}"
    path = out or Path("runs") / name

    async def go() -> int:
        await _run(
            chosen, path, name, resume=resume, skip_missing=quick, state_dir=state_dir or CliSettings().state_dir
        )
        say(f"the run is in {path}; next: sandyard bench report {path}")
        return 0

    perform(go)


async def _run(plan: Plan, path: Path, name: str, *, resume: bool, skip_missing: bool, state_dir: Path) -> None:
    benchmarks = all_benchmarks()
    request = CreateRequest("prepare", plan.lifetime_s, plan.cpus, plan.memory_mib)
    async with open_providers(
        plan.providers, state_dir, image=plan.image, request=request, skip_missing=skip_missing, say=say
    ) as providers:
        if resume:
            folder = RunFolder(path)
            manifest = folder.manifest()
            check_resumable(manifest, plan, benchmarks)
        else:
            folder, manifest = await begin(path, plan, providers, benchmarks, run=name)
        for info in manifest.providers:
            for benchmark, status in info.statuses.items():
                say(f"{info.name} does not enter {benchmark}: {status} ({info.reasons[benchmark]})")
        with _progress() as tell:
            await Run(folder, manifest, providers, benchmarks, plan=plan, tell=tell).execute()


@contextmanager
def _progress() -> Iterator[Callable[[Done], None]]:
    """Show round, trials done, failures by owner and the time left; off a terminal, a line for each that failed."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, TimeRemainingColumn(), console=console, disable=not console.is_terminal) as bar:
        task = bar.add_task("starting", total=None)

        def tell(done: Done) -> None:
            failures = ", ".join(f"{count} {owner}" for owner, count in sorted(done.failures.items()))
            trial = done.trial
            what = f"{done.round}: {trial.provider} {trial.benchmark}" + (f" (failed: {failures})" if failures else "")
            bar.update(task, description=what, completed=done.done, total=done.planned)
            if trial.outcome is not Outcome.SUCCESS:
                bar.console.print(f"{trial.id}: {trial.outcome}: {trial.cause}", markup=False, highlight=False)

        yield tell


@app.command()
def audit(
    path: RunPath,
    *,
    resolve: Annotated[
        list[str] | None,
        typer.Option("--resolve", metavar="PAIR=REASON", help="Record why a failing pair may be published."),
    ] = None,
) -> None:
    """Check whether a run can be believed; ends with 1 where a pair is withheld."""
    folder = RunFolder(path)
    manifest, trials = folder.manifest(), folder.trials()
    known = {str(pair.key) for pair in audit_run(manifest, trials).pairs} if resolve else set()
    for item in resolve or []:
        pair, _, reason = item.partition("=")
        if pair not in known or not reason.strip():
            raise InvalidRequestError(
                f"{item!r} does not resolve anything.", hint="Write PAIR=REASON, the pair as printed."
            )
        folder.append(RESOLUTIONS, {"pair": pair, "reason": reason.strip(), "at": datetime.now(UTC).isoformat()})
    report = _report(path)
    typer.echo("\n".join(audit_lines(report)))
    raise typer.Exit(1 if report.audit.failed else 0)


@app.command()
def score(path: RunPath) -> None:
    """Print the scores, 0 to 100, and the ranks."""
    report = _report(path)
    levels, ranks = report.scores.levels, report.scores.ranks
    rows = [
        [name, *(f"{levels[lv][name]:.1f} ({ranks[lv][name]})" if name in levels[lv] else "-" for lv in LEVELS)]
        for name in sorted(levels["overall"], key=lambda name: (ranks["overall"][name], name))
    ]
    if not rows:
        raise InvalidRequestError("no provider has a score.", hint="'sandyard bench report' says why.")
    typer.echo("\n".join(table(("provider", *LEVELS), rows)))


@app.command()
def compare(before: RunPath, after: RunPath) -> None:
    """Compare two runs: effect, interval, corrected p and noise threshold together."""
    found, apart = compare_runs(_load(before), _load(after))
    rows = [
        [
            str(one.key),
            f"{number(one.before)} → {number(one.after)}",
            f"{one.effect * 100:+.1f}%",
            f"{one.interval.low * 100:+.1f}% to {one.interval.high * 100:+.1f}%",
            f"{one.q:.2g}",
            f"{one.noise * 100:.1f}%",
            f"{one.n[0]}, {one.n[1]}",
            one.judgement,
        ]
        for one in found
    ]
    typer.echo("\n".join(table(("series", "median", "effect", "95% interval", "q", "noise", "n", ""), rows)))
    for key, why in apart.items():
        say(f"{key} cannot be compared: {why}")


@app.command()
def report(
    path: RunPath,
    *,
    form: Annotated[Form, typer.Option("--as", help="What to write.")] = Form.HTML,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Where to; the run's folder by default, - for stdout.")
    ] = None,
) -> None:
    """Write the report: one HTML page with charts, Markdown, or JSON."""
    made = _report(path)
    text = {Form.HTML: to_html, Form.MARKDOWN: to_markdown, Form.JSON: to_json}[form](made)
    if out == Path("-"):
        typer.echo(text, nl=False)
        return
    suffix = {Form.HTML: "html", Form.MARKDOWN: "md", Form.JSON: "json"}[form]
    target = out or path / f"report.{suffix}"
    target.write_text(text)
    say(f"wrote {target}")


@imports.command("computesdk")
def import_computesdk(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Result files of computesdk/benchmarks.")],
    *,
    out: Annotated[Path, typer.Option("--out", "-o", help="The folder of the run to make.")],
    day_as: Annotated[DayAs, typer.Option("--day-as", help="What one file is.")] = DayAs.ROUND,
) -> None:
    """Read ComputeSDK's published results as trials; every summary in them is worked out again."""
    missing = [str(path) for path in files if not path.is_file()]
    if missing:
        raise InvalidRequestError(f"there is no file {', '.join(missing)}.", hint="Name existing files.")
    found = computesdk_files.read_files(files, day_as="unit" if day_as is DayAs.UNIT else "round")
    RunFolder.create(out, found.manifest).append_all(TRIALS, found.trials)
    failed = sum(trial.outcome is not Outcome.SUCCESS for trial in found.trials)
    say(f"{len(found.trials)} trials, {failed} of them failed; {found.summaries} published figures agree")


@app.command("check")
def check(path: RunPath) -> None:
    """Check a run's folder: every record readable, every series whole; an error names the first fault."""
    manifest, trials = _load(path)
    audit_run(manifest, trials)
    say(f"{len(trials)} records of {len(manifest.providers)} providers are in order")


def _load(path: Path) -> tuple[Manifest, list[Trial]]:
    folder = RunFolder(path)
    return folder.manifest(), folder.trials()


def _report(path: Path) -> Report:
    folder = RunFolder(path)
    resolutions = {line["pair"]: line["reason"] for line in folder.dicts(RESOLUTIONS)}
    manifest, trials = folder.manifest(), folder.trials()
    if not trials:
        raise InvalidRequestError(f"{path} has no trials yet.", hint="Let the run go on: sandyard bench run --resume.")
    return make_report(manifest, trials, resolutions)
