"""Arrays in, estimates out: seed estimators of the benchmark. No clock, file, network or process."""

from sandyard.stats.bootstrap import DRAWS, Interval, median_interval, pooled_median_interval, ratio_interval
from sandyard.stats.means import geometric_mean, mean
from sandyard.stats.ranks import TAIL_FLOOR, Tail, median, percentile, rank, tail

__all__ = [
    "DRAWS",
    "TAIL_FLOOR",
    "Interval",
    "Tail",
    "geometric_mean",
    "mean",
    "median",
    "median_interval",
    "percentile",
    "pooled_median_interval",
    "rank",
    "ratio_interval",
    "tail",
]
