//! Databases on files that they had before, while clients write: a copy of the files leaves the cluster, is whole without Skein, and a new cluster begins with it; and another
//! program takes over the files on all replicas.

mod common;

use std::fs;
use std::io;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use common::mysql::Mysql;
use common::postgres::Postgres;
use common::real::{ANSWER, Real};
use common::story::{Books, PATIENCE_OF_A_CLIENT, tool, under_load};
use common::{Place, assert_line, cluster::free_port, mariadb_server, postgres_server, wait_for};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

const CLIENTS: usize = 4;
/// Transactions before and after what happens to the database.
const WANTED: u64 = 100;
const MONEY: u64 = 1_000_000;

type Rows = io::Result<Vec<Vec<String>>>;

/// A database and how it is handled.
struct Kind<C> {
    connect: fn(u16, Duration) -> io::Result<C>,
    query: fn(&mut C, &str) -> Rows,
    /// The word of its command that is the program.
    program: &'static str,
    /// The directory of its files, in its place.
    directory: &'static str,
    /// Ends it at once and in order.
    signal: Signal,
}

const POSTGRES: Kind<Postgres> = Kind {
    connect: Postgres::connect,
    query: Postgres::query,
    program: "/usr/lib/postgresql/15/bin/postgres",
    directory: "postgres",
    signal: Signal::SIGINT,
};

const MARIADB: Kind<Mysql> = Kind {
    connect: Mysql::connect,
    query: Mysql::query,
    program: "/usr/sbin/mariadbd",
    directory: "mysql",
    signal: Signal::SIGTERM,
};

impl<C: Send> Kind<C> {
    fn client(&self, port: u16) -> C {
        wait_for("a connection", || (self.connect)(port, ANSWER).ok())
    }

    fn prepare(&self, port: u16) {
        let mut sql = self.client(port);
        for statement in [
            "CREATE SCHEMA bank",
            "CREATE TABLE bank.before (word VARCHAR(40) PRIMARY KEY)",
            "CREATE TABLE bank.backup (word VARCHAR(40) PRIMARY KEY)",
            "CREATE TABLE bank.upgrade (word VARCHAR(40) PRIMARY KEY)",
            "CREATE TABLE bank.account (id INT PRIMARY KEY, money INT)",
            &format!("INSERT INTO bank.account VALUES (0, {MONEY}), (1, 0)"),
        ] {
            (self.query)(&mut sql, statement).unwrap();
        }
    }

    /// A word, and with it a coin from one account to the other.
    fn pay(&self, sql: &mut C, table: &str, word: &str) -> io::Result<()> {
        for statement in [
            "BEGIN",
            &format!("INSERT INTO bank.{table} VALUES ('{word}')"),
            "UPDATE bank.account SET money = money - 1 WHERE id = 0",
            "UPDATE bank.account SET money = money + 1 WHERE id = 1",
            "COMMIT",
        ] {
            (self.query)(sql, statement)?;
        }
        Ok(())
    }

    fn column(&self, sql: &mut C, statement: &str) -> Vec<String> {
        let rows = (self.query)(sql, statement).unwrap();
        rows.into_iter().map(|mut row| row.remove(0)).collect()
    }

    fn words(&self, sql: &mut C, table: &str) -> Vec<String> {
        self.column(sql, &format!("SELECT word FROM bank.{table}"))
    }

    /// As many coins have moved as there are words.
    fn assert_sums(&self, sql: &mut C) {
        let count: usize =
            ["before", "backup", "upgrade"].iter().map(|table| self.words(sql, table).len()).sum();
        let money = self.column(sql, "SELECT money FROM bank.account ORDER BY id");
        let count = count as u64;
        assert_eq!(money, [(MONEY - count).to_string(), count.to_string()]);
    }

    /// Clients pay while something happens.
    fn paid(&self, real: &Real, table: &str, blow: impl FnOnce()) -> Books {
        let connect = || (self.connect)(real.port(), PATIENCE_OF_A_CLIENT);
        let ask = |sql: &mut C, word: &str| self.pay(sql, table, word);
        under_load(real, CLIENTS, WANTED, connect, ask, blow)
    }

    /// Its directory in the export.
    fn exported(&self, real: &Real) -> PathBuf {
        let place = &real.cluster.place;
        let own = place.path(self.directory);
        place.path("backup").join(own.strip_prefix("/").unwrap())
    }

    fn exported_under_load(&self, real: &Real) -> Books {
        let place = &real.cluster.place;
        let (backup, copy) = (place.path("backup"), place.path("copy"));
        let books = self.paid(real, "backup", || {
            let dir = backup.to_str().unwrap();
            let output = place.run(&["files", "--name", "t", "--export", dir]);
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            assert_eq!(output.status.code(), Some(0), "{said}\n{}", real.cluster.evidence());
        });
        // An export has what the server wrote, and this database had files before.
        for from in [&place.path(self.directory), &self.exported(real)] {
            let from = format!("{}/.", from.display());
            fs::create_dir_all(&copy).unwrap();
            tool("cp", &["-a", &from, copy.to_str().unwrap()]);
        }
        books
    }

    /// What a server without Skein says of the copy.
    fn natively<T>(&self, real: &Real, check: impl FnOnce(&mut C) -> T) -> T {
        let place = &real.cluster.place;
        let (own, copy) = (place.path(self.directory), place.path("copy"));
        let port = free_port();
        let other = |word: &String| {
            let word = word.replace(own.to_str().unwrap(), copy.to_str().unwrap());
            word.replace(&real.port().to_string(), &port.to_string())
        };
        let words: Vec<String> = real.command().iter().map(other).collect();
        let log = fs::File::create(place.path("native.log")).unwrap();
        let mut server = Command::new(&words[0])
            .args(&words[1..])
            .current_dir(place.dir.path())
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            check(&mut self.client(port))
        }));
        kill(Pid::from_raw(server.id().cast_signed()), self.signal).unwrap();
        server.wait().unwrap();
        result.unwrap_or_else(|panic| {
            println!("{}", fs::read_to_string(place.path("native.log")).unwrap());
            std::panic::resume_unwind(panic)
        })
    }

    /// What a new cluster of three says that begins with the export: its replicas are equal.
    fn imported<T>(&self, real: &Real, check: impl FnOnce(&mut C) -> T) -> T {
        let backup = real.cluster.place.path("backup");
        let port = free_port();
        let words = real.command().iter();
        let words = words.map(|word| word.replace(&real.port().to_string(), &port.to_string()));
        let options = ["--import", backup.to_str().unwrap()];
        let new = Real::serve(Place::new(), port, &options, words.collect());
        let mut sql = self.client(port);
        let checked = check(&mut sql);
        // It goes on with them.
        self.pay(&mut sql, "upgrade", "imported").unwrap();
        assert_eq!(self.words(&mut sql, "upgrade"), ["imported"]);
        self.assert_sums(&mut sql);
        drop(sql);
        new.end();
        checked
    }

    /// The command with another program: a copy under another name.
    fn other_program(&self, real: &Real, name: &str, more: &[&str]) -> Vec<String> {
        let program = real.cluster.place.path(name);
        fs::copy(self.program, &program).unwrap();
        let mut words = real.command().to_vec();
        let at = words.iter().position(|word| word == self.program).unwrap();
        words[at] = program.to_str().unwrap().to_owned();
        words.extend(more.iter().map(ToString::to_string));
        words
    }
}

fn upgrade(real: &Real, options: &[&str], words: &[String]) -> std::process::Output {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    real.cluster.place.run(&[&["upgrade", "--name", "t"], options, &["--"], &words[..]].concat())
}

fn upgraded(real: &Real, options: &[&str], words: &[String]) {
    let output = upgrade(real, options, words);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(0), "{said}\n{}", real.cluster.evidence());
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(printed.contains(" is up: ") && printed.contains("other-server"), "{printed}");
}

/// Words that were there before the clients came.
fn before<C: Send>(kind: &Kind<C>, port: u16) -> Vec<String> {
    let mut sql = kind.client(port);
    let words: Vec<String> = (0..20).map(|n| format!("before-{n}")).collect();
    words.iter().for_each(|word| kind.pay(&mut sql, "before", word).unwrap());
    words
}

fn sorted(mut words: Vec<String>) -> Vec<String> {
    words.sort_unstable();
    words
}

/// The copy has all that was acknowledged before it, whole transactions, and nothing that nobody asked for; answers what was written while it was made.
fn assert_copy<C: Send>(
    kind: &Kind<C>,
    sql: &mut C,
    words: &[String],
    books: &Books,
) -> Vec<String> {
    assert_eq!(sorted(kind.words(sql, "before")), sorted(words.to_vec()));
    let found = sorted(kind.words(sql, "backup"));
    for word in &found {
        let known = books.kept.iter().chain(&books.doubtful).any(|known| known == word);
        assert!(known, "nobody asked for {word}");
    }
    kind.assert_sums(sql);
    found
}

fn end<C: Send>(kind: &Kind<C>, real: Real, words: &[String], copied: &Books, upgraded: &Books) {
    let mut sql = kind.client(real.port());
    assert_eq!(sorted(kind.words(&mut sql, "before")), sorted(words.to_vec()));
    copied.assert_found(&kind.words(&mut sql, "backup"));
    upgraded.assert_found(&kind.words(&mut sql, "upgrade"));
    kind.assert_sums(&mut sql);
    drop(sql);
    real.end();
}

#[test]
fn postgresql_is_copied_and_gets_another_program() {
    let real = postgres_server::start(&[]);
    let kind = &POSTGRES;
    kind.prepare(real.port());
    let words = before(kind, real.port());
    let copied = kind.exported_under_load(&real);
    // The server was running, so its process number is in its directory.
    let pid = real.cluster.place.path("copy/postmaster.pid");
    assert!(pid.exists());
    fs::remove_file(pid).unwrap();
    let found = kind.natively(&real, |sql| assert_copy(kind, sql, &words, &copied));
    // In the export that file is still there, and much is in the database's log alone.
    assert!(kind.exported(&real).join("postmaster.pid").exists());
    let again = kind.imported(&real, |sql| assert_copy(kind, sql, &words, &copied));
    assert_eq!(again, found);

    let other = kind.other_program(&real, "other-server", &["-c", "max_connections=77"]);
    // At SIGTERM it waits for its clients.
    let mut idle = kind.client(real.port());
    let waits = upgrade(&real, &["--wait", "2"], &other);
    assert_line(&waits, 1, &["did not end within 2 s", "--signal"]);
    assert_eq!(kind.column(&mut idle, "SHOW max_connections"), ["100"]);
    upgraded(&real, &["--signal", "INT"], &other);
    let changed = kind.paid(&real, "upgrade", || {
        let back = kind.other_program(&real, "third-server", &["-c", "max_connections=78"]);
        let output = upgrade(&real, &["--signal", "INT"], &back);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(0), "{said}\n{}", real.cluster.evidence());
    });
    let mut sql = kind.client(real.port());
    assert_eq!(kind.column(&mut sql, "SHOW max_connections"), ["78"]);
    drop((sql, idle));
    end(kind, real, &words, &copied, &changed);
}

#[test]
fn mariadb_is_copied_and_gets_another_program() {
    let real = mariadb_server::start();
    let kind = &MARIADB;
    kind.prepare(real.port());
    let words = before(kind, real.port());
    let copied = kind.exported_under_load(&real);
    let found = kind.natively(&real, |sql| assert_copy(kind, sql, &words, &copied));
    let again = kind.imported(&real, |sql| assert_copy(kind, sql, &words, &copied));
    assert_eq!(again, found);
    let other = kind.other_program(&real, "other-server", &["--max-connections=77"]);
    let changed = kind.paid(&real, "upgrade", || upgraded(&real, &[], &other));
    let mut sql = kind.client(real.port());
    assert_eq!(kind.column(&mut sql, "SELECT @@max_connections"), ["77"]);
    drop(sql);
    end(kind, real, &words, &copied, &changed);
}
