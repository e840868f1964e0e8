"""The hub's database, written behind the hub's back."""

import contextlib
import json
import sqlite3
import time

from formats import manifest, sha256


class Rows:
    """Rows that the thief reads and writes, and can put back as they were."""

    # Every table that an act writes. Nobody needs accounts and logins put back: the thief does not write them.
    TABLES = (
        "anchors", "audit", "documents", "drafts", "files", "guests", "host_states", "hosts", "manifest_files", "manifests",
        "pending_items",
    )

    def __init__(self, path):
        self.path = path
        self.undo = []

    def _open(self):
        return contextlib.closing(sqlite3.connect(self.path, timeout=30))

    def read(self, sql, values=()):
        with self._open() as rows:
            return rows.execute(sql, values).fetchall()

    def write(self, *statements):
        """Writes in one transaction, and remembers how to undo exactly that."""
        with self._open() as rows, rows:
            rows.execute("BEGIN IMMEDIATE")
            before = self._snapshot(rows)
            for sql, values in statements:
                rows.execute(sql, values)
            after = self._snapshot(rows)
        for table in self.TABLES:
            self.undo += _undo(table, before[table], after[table])

    def _snapshot(self, rows):
        """Every row of every table by its rowid, as a dictionary."""
        found = {}
        for table in self.TABLES:
            cursor = rows.execute(f"SELECT rowid AS row_number, * FROM {table}")
            names = [column[0] for column in cursor.description]
            found[table] = {row[0]: dict(zip(names[1:], row[1:])) for row in cursor}
        return found

    @contextlib.contextmanager
    def put_back(self):
        """Undoes afterwards what the thief writes meanwhile; what the hub itself writes meanwhile stays."""
        self.undo = []
        try:
            yield
        finally:
            undo, self.undo = self.undo, []
            with self._open() as rows, rows:
                for sql, values in reversed(undo):
                    rows.execute(sql, values)

    def newest(self, host):
        """Number and author's statement of the newest document that the hub has for a host."""
        sql = "SELECT generation, author FROM documents WHERE host = ? ORDER BY generation DESC"
        generation, author = self.read(sql, (host,))[0]
        return generation, json.loads(author)

    def item(self, name):
        """A pending item as its host signed it."""
        return json.loads(self.read("SELECT item FROM pending_items WHERE id = ?", (name,))[0][0])

    def list_item(self, host, name, seal):
        """Makes the hub list something among what waits for a signature."""
        sql = "INSERT OR REPLACE INTO pending_items (host, id, item, received_at) VALUES (?, ?, ?, 0)"
        self.write((sql, (host, name, json.dumps(seal))))

    def keep_texts(self, files, under=None):
        """Keeps texts under their own manifest, or under that of other files; the manifest's hash."""
        listed = manifest(under or files)
        name_of_manifest = sha256(listed)
        statements = [
            ("INSERT OR REPLACE INTO manifests (hash, bytes, refs) VALUES (?, ?, 9)", (name_of_manifest, listed)),
        ]
        for entry in json.loads(listed)["files"]:
            values = (entry["sha256"], files.get(entry["name"], ""))
            statements.append(("INSERT OR REPLACE INTO files (sha256, text, refs) VALUES (?, ?, 9)", values))
            values = (name_of_manifest, entry["name"], entry["sha256"])
            statements.append(("INSERT OR REPLACE INTO manifest_files (manifest, name, sha256) VALUES (?, ?, ?)", values))
        self.write(*statements)
        return name_of_manifest

    def keep_document(self, host, generation, files, author=None, under=None):
        """Keeps a document of the thief's as the newest of a host, with an author's statement or none."""
        now_ms = int(time.time() * 1000)
        values = (
            host, generation, self.keep_texts(files, under), json.dumps(author) if author else "",
            "SHA256:x" if author else "", now_ms,
        )
        sql = (
            "INSERT OR REPLACE INTO documents (host, generation, manifest, author, author_key, message, pushed_by, pushed_at)"
            " VALUES (?, ?, ?, ?, ?, '', 'thief', ?)"
        )
        wanted = "UPDATE hosts SET wanted = ? WHERE id = ? AND wanted < ?"
        self.write((sql, values), (wanted, (generation, host, generation)))

    def say_in_effect(self, host, generation, files):
        """Makes the hub tell people that a host has this document in effect."""
        state = {"number": generation, "manifest": sha256(manifest(files)), "signer": "author"}
        self.write(("UPDATE host_states SET generation = ? WHERE host = ?", (json.dumps(state), host)))


def _undo(table, before, after):
    """Statements that undo one write to one table. They are run in reverse order, so new rows go before old ones return."""
    statements = []
    for row_number, row in before.items():
        now = after.get(row_number)
        if now is None:
            names, marks = ", ".join(row), ", ".join("?" * len(row))
            statements.append((f"INSERT OR IGNORE INTO {table} (rowid, {names}) VALUES (?, {marks})", (row_number, *row.values())))
            continue
        for name in row:
            if row[name] != now[name]:
                statements.append((f"UPDATE {table} SET {name} = ? WHERE rowid = ?", (row[name], row_number)))
    for row_number in after.keys() - before.keys():
        statements.append((f"DELETE FROM {table} WHERE rowid = ?", (row_number,)))
    return statements
