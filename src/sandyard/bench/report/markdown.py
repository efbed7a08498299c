"""The report as Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sandyard.bench.audit import Finding, Verdict
from sandyard.bench.audit.finding import percent
from sandyard.bench.records import BenchmarkInfo
from sandyard.bench.report.view import COLUMNS, Report, cell_words, cost_words, number
from sandyard.bench.scores import LEVELS


def to_markdown(report: Report) -> str:
    """Return the whole report."""
    return "\n".join(
        [
            f"# Benchmark {report.manifest.run}",
            "",
            *_facts(report),
            "",
            "## Results",
            *[line for info in report.manifest.benchmarks for line in _benchmark(report, info)],
            *_workloads(report),
            "## Scores",
            "",
            *_scores(report),
            "",
            "## Audit",
            "",
            *audit_lines(report),
            "",
        ]
    )


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Return a table; a bar inside a cell is escaped."""
    lines = [f"| {' | '.join(columns)} |", f"| {' | '.join('---' for _ in columns)} |"]
    return lines + [f"| {' | '.join(word.replace('|', chr(92) + '|') for word in row)} |" for row in rows]


def _facts(report: Report) -> list[str]:
    manifest = report.manifest
    lines = [
        f"- Begun {manifest.created_at} on job host {manifest.job_host}.",
        f"- {len(report.trials)} trials in {manifest.rounds} rounds, seed {manifest.seed}.",
        f"- {cost_words(report)}",
    ]
    if manifest.cpus:
        lines.append(f"- Asked for {manifest.cpus:g} vCPU and {manifest.memory_mib} MiB; region and version:")
        lines += [f"  - {info.name}: {info.region}, {info.version}" for info in manifest.providers]
    outcomes = report.summary.outcomes
    rows = [
        f"{name}: " + ", ".join(f"{count} {outcome}" for outcome, count in sorted(counts.items()))
        for name, counts in sorted(outcomes.items())
    ]
    return [*lines, *(f"- Outcomes of {row}." for row in rows)]


def _benchmark(report: Report, info: BenchmarkInfo) -> list[str]:
    cells = [cell for key, cell in report.summary.cells.items() if key.benchmark == info.name]
    cells.sort(
        key=lambda cell: (cell.key.unit, cell.key.metric, cell.median is None, cell.median or 0, cell.key.provider)
    )
    return ["", f"### {info.title}", "", *table(COLUMNS, map(cell_words, cells))]


def _workloads(report: Report) -> list[str]:
    rows = [
        [
            found.benchmark,
            found.provider,
            number(found.value),
            "" if found.cost is None else number(found.cost),
            f"substituted: {', '.join(found.substituted)}" if found.substituted else "",
        ]
        for found in report.summary.workloads
    ]
    if not rows:
        return [""]
    return ["", "### Workload values", "", *table(("workload", "provider", "geometric mean", "cost", ""), rows), ""]


def _scores(report: Report) -> list[str]:
    levels = report.scores.levels
    names = sorted(levels["overall"], key=lambda name: (-levels["overall"][name], name))
    rows = [
        [
            name,
            *(
                f"{levels[level][name]:.1f} (rank {report.scores.ranks[level][name]} of {len(levels[level])})"
                if name in levels[level]
                else "-"
                for level in LEVELS
            ),
        ]
        for name in names
    ]
    return table(("provider", *LEVELS), rows) if rows else ["No provider has a score."]


def audit_lines(report: Report) -> list[str]:
    """Return the audit: failures, notes, what could not be assessed, what could be detected."""
    found = report.audit
    lines = [
        f"{len(found.pairs)} pairs, {len(found.failed)} of them withheld.",
        f"{found.family} tests corrected together; one more would have needed p < {found.threshold:.2g}.",
        "",
    ]
    if found.shared_change:
        first = found.shared_change[0]
        names = ", ".join(change.key.provider for change in found.shared_change)
        lines += [
            f"**{len(found.shared_change)} providers change together at round {first.round + 1} ({first.batch}).**",
            f"Providers do not do that by themselves; look at what ran them: {names}.",
            "",
        ]
    rows = []
    for pair in found.pairs:
        for finding in pair.findings:
            if finding.verdict in {Verdict.FAIL, Verdict.NOTE, Verdict.CANNOT, Verdict.UNASSESSED}:
                q = "" if finding.q is None else f"{finding.q:.2g}"
                resolved = (
                    f" Resolved: {pair.resolution}." if finding.verdict is Verdict.FAIL and pair.resolution else ""
                )
                rows.append([str(finding.verdict), str(pair.key), finding.check, finding.text + resolved, q])
    order = [Verdict.FAIL, Verdict.NOTE, Verdict.CANNOT, Verdict.UNASSESSED]
    rows.sort(key=lambda row: order.index(Verdict(row[0])))
    rows += [[str(Verdict.UNASSESSED), str(key), "all", why, ""] for key, why in found.unassessed]
    lines += table(("verdict", "pair", "check", "what was seen", "q"), rows)
    return [*lines, "", "Smallest effects that would have been found (80% power):", "", *_detectable(report)]


def _detectable(report: Report) -> list[str]:
    names = ("trend", "first-round", "round-start", "lag-1", "overlap", "host-saturated")
    rows = []
    for pair in report.audit.pairs:
        by_check = {finding.check: finding for finding in pair.findings}
        rows.append([str(pair.key), str(pair.n), *(_one(by_check[name]) for name in names)])
    return table(("pair", "n", *names), rows)


def _one(finding: Finding) -> str:
    if finding.test is None:
        return "-"
    if finding.detectable is None:
        return "none up to 400%"
    return f"{finding.detectable:.2f}" if finding.check == "lag-1" else percent(finding.detectable).lstrip("+")
