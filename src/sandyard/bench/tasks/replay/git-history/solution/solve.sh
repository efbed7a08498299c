set -eu
cd repo
git branch -a
commit=$(git reflog --format='%H %gs' | sed -n 's/^\([0-9a-f]*\) commit: the answer$/\1/p')
git show --stat "$commit"
git cherry-pick "$commit"
git log --oneline | head -n 3
git fsck --no-progress
