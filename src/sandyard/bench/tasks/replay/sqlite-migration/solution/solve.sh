set -eu
python3 - << 'PYTHON'
import sqlite3

with sqlite3.connect("people.db") as db:
    print(db.execute("select sql from sqlite_master").fetchall())
    db.execute("create table name (id integer primary key, text text not null unique)")
    db.execute("insert into name (text) select distinct name from person order by name")
    db.execute(
        "create table moved (id integer primary key, name_id integer not null references name, city text not null)"
    )
    db.execute("insert into moved select p.id, n.id, p.city from person p join name n on n.text = p.name")
    db.execute("drop table person")
    db.execute("alter table moved rename to person")
PYTHON
