set -eu
python3 -m pip install -q --no-index --find-links wheels --target site --no-compile --disable-pip-version-check \
  --root-user-action ignore helper
test -e site/helper/m39.py
