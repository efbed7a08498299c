set -eu
python3 - << 'PYTHON'
import sqlite3

with sqlite3.connect("people.db") as db:
    db.execute("create table person (id integer primary key, name text not null, city text not null)")
    db.executemany(
        "insert into person values (?, ?, ?)", ((i, f"name {i % 3000}", f"city {i % 70}") for i in range(60000))
    )
PYTHON
