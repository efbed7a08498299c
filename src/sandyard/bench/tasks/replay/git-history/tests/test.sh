echo 0 > reward.txt
cd repo && test "$(git show main:answer)" = 'the answer is 42' && test "$(git rev-list --count main)" = 41 &&
  test -z "$(git status --porcelain)" && echo 1 > ../reward.txt
exit 0
