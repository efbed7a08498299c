# A Python library with 500 tests.
set -eu
mkdir -p source/lib source/tests
python3 - << 'PYTHON'
import pathlib

for i in range(50):
    pathlib.Path(f"source/lib/m{i}.py").write_text("".join(f"def f{j}(x):\n    return x * {j} + {i}\n\n\n" for j in range(20)))
    pathlib.Path(f"source/tests/test_{i}.py").write_text(
        f"import unittest\n\nfrom lib import m{i}\n\n\nclass T(unittest.TestCase):\n"
        + "".join(f"    def test_{j}(self):\n        self.assertEqual(m{i}.f{j}(2), {2 * j + i})\n\n" for j in range(10))
    )
for folder in ("lib", "tests"):
    pathlib.Path(f"source/{folder}/__init__.py").write_text("")
PYTHON
bash packages.sh
