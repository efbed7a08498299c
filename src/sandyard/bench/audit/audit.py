"""All checks over all series of a run, corrected together."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from sandyard.bench.audit import (
    cache_flags,
    change,
    first_round,
    host_saturated,
    host_type,
    lag_1,
    outliers,
    overlap,
    round_start,
    tier_split,
    trend,
)
from sandyard.bench.audit.finding import LEAST_TRIALS, Finding, Verdict
from sandyard.bench.records import Manifest, Trial
from sandyard.bench.series import Key, Series, all_series
from sandyard.stats import discovery, power

CHECKS = (trend, first_round, round_start, lag_1, overlap, host_saturated, tier_split, outliers, cache_flags)


@dataclass(frozen=True, slots=True)
class PairAudit:
    """What all checks say of one series."""

    key: Key
    n: int
    findings: tuple[Finding, ...]
    excluded: tuple[str, ...] = ()
    resolution: str | None = None
    """Why a failing pair may be published all the same."""

    @property
    def failures(self) -> list[Finding]:
        """The findings that fail the pair."""
        return [finding for finding in self.findings if finding.verdict is Verdict.FAIL]

    @property
    def is_publishable(self) -> bool:
        """Whether nothing fails, or what fails is resolved."""
        return not self.failures or self.resolution is not None


@dataclass(frozen=True, slots=True)
class Audit:
    """The audit of one run."""

    pairs: tuple[PairAudit, ...]
    family: int
    """Tests corrected together."""
    threshold: float
    """The p that one more check would have had to reach."""
    unassessed: tuple[tuple[Key, str], ...] = ()
    """Pairs that were not audited, with the reason."""
    changes: tuple[change.Change, ...] = ()
    """Steps between rounds in the pairs whose trend or tiers fail."""
    shared_change: tuple[change.Change, ...] = ()
    """Those that several providers make at once, which points at the harness rather than at them."""
    by_key: Mapping[Key, PairAudit] = field(default_factory=dict)

    @property
    def failed(self) -> list[PairAudit]:
        """The pairs that stay out of publication."""
        return [pair for pair in self.pairs if not pair.is_publishable]

    def excluded(self, key: Key) -> tuple[str, ...]:
        """Return the trials that are left out of the statistics of one pair."""
        pair = self.by_key.get(key)
        return () if pair is None else pair.excluded


def audit(manifest: Manifest, trials: Sequence[Trial], resolutions: Mapping[str, str] | None = None) -> Audit:
    """Audit a run.

    Args:
        manifest: of the run.
        trials: all of them.
        resolutions: pair (as text) to the reason that explains its failure.
    """
    return audit_series(all_series(manifest, trials), resolutions)


def audit_series(
    series: Iterable[Series], resolutions: Mapping[str, str] | None = None, *, with_power: bool = True
) -> Audit:
    """Audit series, all in one family; the detectable effects, which take the longest, can be left out."""
    assessed, short = [], []
    for one in series:
        if len(one.values) >= LEAST_TRIALS:
            assessed.append(one)
        else:
            short.append((one.key, f"{len(one.values)} successful trials: {LEAST_TRIALS} needed"))
    raw = [_look(one) for one in assessed]
    family = [f.test.p for findings in raw for f in findings if f.test is not None and f.in_family]
    side = [f.test.p for findings in raw for f in findings if f.test is not None and not f.in_family]
    q_family, q_side = iter(discovery.q_values(family)), iter(discovery.q_values(side))
    alpha, side_alpha = discovery.threshold(family), discovery.threshold(side)
    pairs = []
    for one, findings in zip(assessed, raw, strict=True):
        judged = []
        for finding in findings:
            q = None if finding.test is None else next(q_family if finding.in_family else q_side)
            threshold = alpha if finding.in_family else side_alpha
            judged.append(_judge(one, replace(finding, q=q), threshold, with_power=with_power))
        pairs.append(_pair(one, tuple(judged), alpha, (resolutions or {}).get(str(one.key))))
    moved = [
        one
        for one, pair in zip(assessed, pairs, strict=True)
        if {finding.check for finding in pair.failures} & {"trend", tier_split.NAME}
    ]
    changes = tuple(found for one in moved if (found := change.locate(one)) is not None)
    together = change.shared(changes)
    return Audit(
        tuple(pairs),
        len(family),
        alpha,
        unassessed=tuple(short),
        changes=changes,
        shared_change=() if together is None else tuple(together[1]),
        by_key={pair.key: pair for pair in pairs},
    )


def _look(series: Series) -> list[Finding]:
    findings = [module.check(series) for module in CHECKS]
    return findings + host_type.check(series)


def _judge(series: Series, finding: Finding, alpha: float, *, with_power: bool) -> Finding:
    """Decide by size and corrected significance together."""
    test, q = finding.test, finding.q
    if finding.verdict is not None or test is None or q is None:
        return replace(finding, verdict=finding.verdict or Verdict.PASS)
    if with_power:
        finding = replace(finding, detectable=_detectable(series, finding, alpha))
    if q < discovery.Q:
        if finding.is_large:
            return replace(finding, verdict=finding.if_large)
        return replace(finding, verdict=Verdict.NOTE if finding.is_significant_alone else Verdict.PASS)
    return replace(finding, verdict=Verdict.CANNOT if test.least_p >= alpha else finding.if_insignificant)


def _detectable(series: Series, finding: Finding, alpha: float) -> float | None:  # noqa: PLR0911 - one for each check
    """Return the smallest effect that the check would have found, by what its groups and noise are."""
    least = finding.minimum or 0.0
    if finding.check == "trend":
        return power.detectable_trend(series.values, alpha=alpha, least=least)
    if finding.check == first_round.NAME:
        return power.detectable_difference(
            series.values, int(first_round.members(series).sum()), alpha=alpha, least=least
        )
    if finding.check == round_start.NAME:
        opened = int(round_start.members(series).sum())
        return power.detectable_difference(series.over_medians(series.rounds), opened, alpha=alpha, least=least)
    if finding.check == overlap.NAME and (groups := overlap.groups(series)) is not None:
        beside, alone = groups
        values = series.over_medians(series.batches)[beside | alone]
        return power.detectable_difference(values, int(beside.sum()), alpha=alpha, least=least)
    if finding.check == host_saturated.NAME and (hot := host_saturated.members(series)) is not None:
        return power.detectable_difference(series.values, int(hot.sum()), alpha=alpha, least=least)
    if finding.check == lag_1.NAME:
        batches = series.batches
        neighbours = int((batches[1:] == batches[:-1]).sum())
        return power.detectable_lag(neighbours, alpha=alpha, least=least)
    return None


def _pair(series: Series, findings: tuple[Finding, ...], alpha: float, resolution: str | None) -> PairAudit:
    excluded = tuple(trial for finding in findings for trial in finding.excluded)
    pair = PairAudit(series.key, len(series.values), findings, excluded, resolution)
    if not excluded or resolution is not None or not pair.failures:
        return pair
    again = _look(series.without(excluded))
    if any(_fails(finding, alpha) for finding in again):
        return pair
    return replace(pair, resolution=f"passes without {', '.join(excluded)}, excluded by the outlier rule")


def _fails(finding: Finding, alpha: float) -> bool:
    if finding.test is None or finding.verdict is not None:
        return finding.verdict is Verdict.FAIL
    return finding.is_large and finding.if_large is Verdict.FAIL and finding.test.p < alpha
