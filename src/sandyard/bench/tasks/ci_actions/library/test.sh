set -eu
cd work
python3 -m unittest -q $(seq -f 'tests.test_%.0f' 0 49) 2>&1 | grep -q '^Ran 500 tests'
