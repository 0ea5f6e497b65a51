"""A server that tells what it finds of its host's files: `files.py PORT DIRECTORY`.

At its start it imports a module beside it and opens a database with rows in it. A line is a question: `read`, `time`, `list`, `there` or `link`
and a name in the directory; `about` is its permissions and owner; `number` is what the kernel numbers it by, `middle` is 8 bytes of it, `add` writes a line to it, `move A B` renames it; `rows` is what the database has, `row TEXT` adds to it; `plug` asks a library and `tool` a program; `jail NAME` is a child
that has the directory `jail` for its root. Every answer is a line.
"""

import ctypes
import os
import socketserver
import sqlite3
import subprocess
import sys

import words

DIRECTORY = sys.argv[2]
base = sqlite3.connect(os.path.join(DIRECTORY, "seed.db"), check_same_thread=False)
base.execute("create table if not exists row (id integer primary key, text)")


def in_jail(name):
    path = "/" + name
    assert not os.path.exists(path)
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.chroot(os.path.join(DIRECTORY, "jail"))
        os.chdir("/")
        with open(path, "rb") as file:
            text = file.read()
            os.write(writer, b"%s %d" % (text.strip(), os.fstat(file.fileno()).st_mtime))
        os._exit(0)
    os.close(writer)
    with open(reader, encoding="utf-8") as pipe:
        text = pipe.read()
    os.waitpid(child, 0)
    return text


def answer(question, rest):
    path = os.path.join(DIRECTORY, rest)
    if question == "read":
        with open(path, encoding="utf-8") as file:
            return file.read().replace("\n", " ")
    if question == "middle":
        with open(path, "rb") as file:
            file.seek(os.fstat(file.fileno()).st_size // 2)
            return file.read(8).decode()
    if question == "time":
        return str(os.stat(path).st_mtime_ns)
    if question == "about":
        found = os.stat(path)
        return f"{found.st_mode:o} {found.st_uid} {found.st_gid}"
    if question == "number":
        return str(os.stat(path).st_ino)
    if question == "add":
        with open(path, "a", encoding="utf-8") as file:
            file.write("more\n")
            return str(os.fstat(file.fileno()).st_ino)
    if question == "move":
        old, new = rest.split()
        os.rename(os.path.join(DIRECTORY, old), os.path.join(DIRECTORY, new))
        return "moved"
    if question == "list":
        return " ".join(os.listdir(path))
    if question == "there":
        return str(os.path.exists(path))
    if question == "link":
        return os.readlink(path)
    if question == "jail":
        return in_jail(rest)
    if question == "plug":
        return str(ctypes.CDLL(os.path.join(DIRECTORY, "plug.so")).number())
    if question == "tool":
        return subprocess.check_output([os.path.join(DIRECTORY, "tool")], text=True).strip()
    if question == "row":
        base.execute("insert into row (text) values (?)", (rest,))
        base.commit()
    if question in ("row", "rows"):
        return " ".join(f"{id}:{text}" for id, text in base.execute("select id, text from row"))
    return words.UNKNOWN


class Handler(socketserver.StreamRequestHandler):
    def handle(self):
        for line in self.rfile:
            question, _, rest = line.decode().strip().partition(" ")
            try:
                said = answer(question, rest)
            except OSError as error:
                said = f"error {error.errno}"
            self.wfile.write(f"{said}\n".encode())


class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True


Server(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
