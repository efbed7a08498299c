# Makes a Python project of 80 modules and the wheel of a package that it needs.
set -eu
mkdir -p wheels project/app project/tests
python3 - << 'PYTHON'
import base64, hashlib, pathlib, zipfile

files = {f"helper/m{i}.py": f"def scale(x):\n    return x * {i} + 1\n" for i in range(40)}
files["helper/__init__.py"] = ""
files["helper-1.0.dist-info/METADATA"] = "Metadata-Version: 2.1\nName: helper\nVersion: 1.0\n"
files["helper-1.0.dist-info/WHEEL"] = "Wheel-Version: 1.0\nGenerator: bench\nRoot-Is-Purelib: true\nTag: py3-none-any\n"


def line(name, text):
    digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
    return f"{name},sha256={digest},{len(text)}"


record = [line(*item) for item in files.items()] + ["helper-1.0.dist-info/RECORD,,"]
files["helper-1.0.dist-info/RECORD"] = "\n".join(record) + "\n"
with zipfile.ZipFile("wheels/helper-1.0-py3-none-any.whl", "w") as wheel:
    for name, text in files.items():
        wheel.writestr(zipfile.ZipInfo(name), text)

app = pathlib.Path("project/app")
(app / "__init__.py").write_text("")
for i in range(80):
    body = "".join(f"def f{j}(x):\n    return (x + {j}) % 997\n\n\n" for j in range(25))
    (app / f"m{i}.py").write_text(f"from helper.m{i % 40} import scale\n\n\n{body}def run(x):\n    return f3(scale(x))\n")
for i in range(40):
    pathlib.Path(f"project/tests/test_{i}.py").write_text(
        f"import unittest\n\nfrom app import m{i}\n\n\nclass T(unittest.TestCase):\n"
        + "".join(f"    def test_{j}(self):\n        self.assertEqual(m{i}.f{j}(1), {1 + j})\n\n" for j in range(25))
    )
pathlib.Path("project/tests/__init__.py").write_text("")
PYTHON
cd project && git init -q -b main && git add . && git commit -q -m 'all of it'
