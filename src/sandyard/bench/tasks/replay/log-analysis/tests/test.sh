echo 0 > reward.txt
python3 - << 'PYTHON' && echo 1 > reward.txt
import collections

counts = collections.Counter()
for line in open("access.log"):
    if line.endswith(" 500\n"):
        counts[line.split()[0]] += 1
client, count = counts.most_common(1)[0]
assert client == "10.0.0.17"
assert open("worst.txt").read().split() == [client, str(count)]
PYTHON
exit 0
