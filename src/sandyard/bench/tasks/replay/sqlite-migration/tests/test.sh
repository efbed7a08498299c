echo 0 > reward.txt
python3 - << 'PYTHON' && echo 1 > reward.txt
import sqlite3

db = sqlite3.connect("people.db")
assert db.execute("select count(*) from name").fetchone() == (3000,)
rows = db.execute("select p.id, n.text, p.city from person p join name n on n.id = p.name_id order by p.id").fetchall()
assert rows == [(i, f"name {i % 3000}", f"city {i % 70}") for i in range(60000)]
assert db.execute("pragma integrity_check").fetchone() == ("ok",)
PYTHON
exit 0
