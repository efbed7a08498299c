echo 0 > reward.txt
cd repo && python3 - << 'PYTHON' && echo 1 > ../reward.txt
import random

from intervals import length, merge

assert merge([(5, 9), (1, 4), (4, 5)]) == [(1, 9)]
assert merge([(1, 9), (2, 3)]) == [(1, 9)]
draw = random.Random(7)
for _ in range(2000):
    spans = [(low, low + draw.randrange(1, 9)) for low in (draw.randrange(50) for _ in range(12))]
    assert length(spans) == len({x for low, high in spans for x in range(low, high)})
PYTHON
exit 0
