set -eu
mkdir repo && cd repo
cat > intervals.py << 'PYTHON'
"""Sets of half-open intervals."""


def merge(intervals):
    """Return the same set as disjoint intervals in ascending order."""
    merged = []
    for low, high in intervals:
        if merged and low < merged[-1][1]:
            merged[-1] = (merged[-1][0], high)
        else:
            merged.append((low, high))
    return merged


def length(intervals):
    """Return how much the set covers."""
    return sum(high - low for low, high in merge(intervals))
PYTHON
git init -q -b main && git add . && git commit -q -m 'interval sets'
