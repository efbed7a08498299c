set -eu
cd repo
git log --oneline > /dev/null
if python3 -c 'from intervals import length; assert length([(3, 5), (1, 2)]) == 3' 2> /dev/null; then exit 1; fi
grep -n 'for low, high in intervals' intervals.py
sed -i 's/for low, high in intervals:/for low, high in sorted(intervals):/' intervals.py
sed -i 's/if merged and low < merged/if merged and low <= merged/' intervals.py
sed -i 's/merged\[-1\] = (merged\[-1\]\[0\], high)/merged[-1] = (merged[-1][0], max(high, merged[-1][1]))/' intervals.py
git diff --binary --full-index > ../patch
git commit -q -a -m 'sort, join what touches, keep the longer end'
