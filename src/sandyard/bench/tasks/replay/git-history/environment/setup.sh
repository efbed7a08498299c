set -eu
git init -q -b main repo && cd repo
for i in $(seq 1 40); do
  printf 'line %d\n' "$i" >> notes
  git add . && git commit -q -m "note $i"
done
git checkout -q -b lost
printf 'the answer is 42\n' > answer
git add . && git commit -q -m 'the answer'
git checkout -q main && git branch -q -D lost
