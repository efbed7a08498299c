set -eu
cd work
python3 -m compileall -q -f -j "$(nproc)" lib vendor
PYTHONPATH=vendor python3 -c 'import pkg_1, pkg_20; assert pkg_1.VALUE + pkg_20.VALUE == 21'
