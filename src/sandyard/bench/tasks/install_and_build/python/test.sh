set -eu
cd project
PYTHONPATH=../site python3 -m unittest -q tests.test_0 $(seq -f 'tests.test_%.0f' 1 39) 2>&1 | grep -q '^Ran 1000 tests'
