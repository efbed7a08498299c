set -eu
git clone -q "file://$PWD/origin.git" work
test "$(git -C work rev-list --count HEAD)" = 30
