//! PostgreSQL from Debian on three replicas: a server of many processes, which share memory and wake each other by signals. A benchmark's
//! transactions, inserts that are remembered while the leader dies, replicas that stay identical down to the write-ahead log.

mod common;

use std::fs;
use std::os::unix::fs::chown;

use common::cluster::free_port;
use common::postgres::Postgres;
use common::real::{ANSWER, Real, at_once, installed};
use common::story::{PATIENCE_OF_A_CLIENT, leader_dies_under_load, tool};
use common::{Place, wait_for};
use nix::unistd::{User, geteuid};

const CLIENTS: usize = 8;
/// Inserts before and after the leader's death.
const INSERTS: u64 = 300;
const PROGRAMS: &str = "/usr/lib/postgresql/15/bin";

fn program(name: &str) -> String {
    format!("{PROGRAMS}/{name}")
}

/// Three replicas on a fresh data directory, the same for all of them. It refuses to run as root.
fn start(settings: &[&str]) -> Real {
    installed(&program("postgres"));
    let place = Place::new();
    let data = place.path("postgres");
    fs::create_dir(&data).unwrap();
    let data = data.to_str().unwrap();
    let mut server = Vec::new();
    if geteuid().is_root() {
        let user = User::from_name("postgres").unwrap().expect("the package made a user");
        chown(data, Some(user.uid.as_raw()), Some(user.gid.as_raw())).unwrap();
        let ids = ["/usr/bin/setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"];
        server.extend(ids.map(String::from));
    }
    let initdb = [program("initdb"), "-D".into(), data.into()];
    let initdb = [&server[..], &initdb[..]].concat();
    let initdb: Vec<&str> = initdb.iter().map(String::as_str).collect();
    let options = ["--username=postgres", "--auth=trust", "--no-sync"];
    tool(initdb[0], &[&initdb[1..], &options[..]].concat());
    let port = free_port();
    let port_text = port.to_string();
    server.push(program("postgres"));
    for word in ["-D", data, "-k", data, "-p", &port_text] {
        server.push(word.into());
    }
    server.extend(settings.iter().flat_map(|set| ["-c".to_string(), (*set).to_string()]));
    Real::serve(place, port, &[], server)
}

/// A client program that comes with it.
fn client(port: u16, name: &str, args: &[&str]) -> String {
    let port = port.to_string();
    let common = ["-h", "127.0.0.1", "-p", &port, "-U", "postgres"];
    tool(&program(name), &[&common[..], args].concat())
}

/// So many transactions like TPC-B's from eight clients.
fn pgbench(port: u16, each: u64) {
    let report = client(port, "pgbench", &["-n", "-c8", "-j2", &format!("-t{each}"), "postgres"]);
    let all = CLIENTS as u64 * each;
    assert!(report.contains(&format!("actually processed: {all}/{all}")), "{report}");
}

#[test]
fn nothing_acknowledged_is_lost_when_the_leader_dies() {
    let real = start(&[]);
    let port = real.port();
    client(port, "pgbench", &["-i", "-q", "-s", "1", "postgres"]);
    pgbench(port, 50);
    let mut sql = Postgres::connect(port, ANSWER).unwrap();
    sql.query(
        "CREATE TABLE kept (word TEXT PRIMARY KEY, id UUID DEFAULT gen_random_uuid(),
         made TIMESTAMPTZ DEFAULT clock_timestamp(), by INT DEFAULT pg_backend_pid())",
    )
    .unwrap();

    // A transaction of the benchmark's, and a row of its own. Time, chance and process numbers are in what is written and in what is answered.
    let insert = |sql: &mut Postgres, word: &str| {
        let number = word.bytes().fold(7, |sum: u64, byte| sum * 31 + u64::from(byte));
        let (account, teller, delta) = (number % 100_000 + 1, number % 10 + 1, number % 9_999);
        let rows = sql.query(&format!(
            "UPDATE pgbench_accounts SET abalance = abalance + {delta} WHERE aid = {account};
             UPDATE pgbench_tellers SET tbalance = tbalance + {delta} WHERE tid = {teller};
             UPDATE pgbench_branches SET bbalance = bbalance + {delta} WHERE bid = 1;
             INSERT INTO pgbench_history (tid, bid, aid, delta, mtime)
                VALUES ({teller}, 1, {account}, {delta}, CURRENT_TIMESTAMP);
             INSERT INTO kept (word) VALUES ('{word}') RETURNING *, random()"
        ))?;
        assert_eq!(rows[0][0], word);
        Ok(())
    };
    let connect = || Postgres::connect(port, PATIENCE_OF_A_CLIENT);
    let books = leader_dies_under_load(&real, CLIENTS, INSERTS, connect, insert);

    let mut sql = wait_for("a connection", || Postgres::connect(port, ANSWER).ok());
    books.assert_found(&sql.column("SELECT word FROM kept").unwrap());
    // The new leader takes a benchmark, too.
    pgbench(port, 25);
    let sums = sql
        .query(
            "SELECT (SELECT sum(abalance) FROM pgbench_accounts), (SELECT sum(tbalance) FROM pgbench_tellers),
             (SELECT sum(bbalance) FROM pgbench_branches), (SELECT sum(delta) FROM pgbench_history)",
        )
        .unwrap();
    assert!(sums[0].iter().all(|sum| *sum == sums[0][0]), "transactions are whole: {sums:?}");
    client(port, "pg_amcheck", &["--install-missing", "--heapallindexed", "-d", "postgres"]);
    // What lies in memory goes to its files, too, before they are compared.
    sql.query("CHECKPOINT").unwrap();
    real.end();
}

#[test]
fn transactions_that_wait_for_each_other_end_the_same_way_everywhere() {
    // Found by a timer of each process that waits.
    let real = start(&["deadlock_timeout=20ms"]);
    let port = real.port();
    let mut sql = Postgres::connect(port, ANSWER).unwrap();
    sql.query("CREATE TABLE account (id INT PRIMARY KEY, money INT)").unwrap();
    sql.query("INSERT INTO account SELECT id, 1000 FROM generate_series(0, 3) AS id").unwrap();
    // Each takes two accounts, in opposite orders: some wait, some are chosen as the victim of a deadlock.
    let deadlocks: usize = at_once(CLIENTS, |me| {
        let mut sql = Postgres::connect(port, ANSWER).unwrap();
        let mut deadlocks = 0;
        for round in 0..20 {
            let (from, to) = ((me + round) % 4, (me + round * 3 + 1) % 4);
            let mut transfer = || {
                sql.query("BEGIN")?;
                for (account, sign) in [(from, '-'), (to, '+')] {
                    let set = format!("money = money {sign} 1");
                    sql.query(&format!("UPDATE account SET {set} WHERE id = {account}"))?;
                }
                sql.query("COMMIT")
            };
            if let Err(error) = transfer() {
                assert!(error.to_string().contains("deadlock detected"), "{error}");
                sql.query("ROLLBACK").unwrap();
                deadlocks += 1;
            }
        }
        deadlocks
    })
    .iter()
    .sum();
    println!("{deadlocks} deadlocks");
    assert_eq!(sql.column("SELECT SUM(money) FROM account").unwrap(), ["4000"]);
    real.end();
}

#[test]
fn its_processes_work_together() {
    let settings =
        ["parallel_setup_cost=0", "parallel_tuple_cost=0", "min_parallel_table_scan_size=0"];
    let real = start(&settings);
    let port = real.port();
    let mut sql = Postgres::connect(port, ANSWER).unwrap();
    sql.query("CREATE TABLE numbers AS SELECT n FROM generate_series(1, 50000) AS n").unwrap();
    sql.query("ANALYZE numbers").unwrap();
    // Workers are forked for one query and share its memory.
    let plan = sql.column("EXPLAIN (ANALYZE) SELECT sum(n) FROM numbers").unwrap().join("\n");
    assert!(plan.contains("Workers Launched: ") && !plan.contains("Launched: 0"), "{plan}");
    assert_eq!(sql.column("SELECT sum(n) FROM numbers").unwrap(), ["1250025000"]);

    // A process wakes another one by a signal.
    let mut listener = Postgres::connect(port, ANSWER).unwrap();
    listener.query("LISTEN news").unwrap();
    sql.query("NOTIFY news, 'hear, hear'").unwrap();
    assert_eq!(listener.notification().unwrap(), ("news".into(), "hear, hear".into()));

    // And ends one.
    let me = listener.column("SELECT pg_backend_pid()").unwrap().remove(0);
    assert_eq!(sql.column(&format!("SELECT pg_terminate_backend({me}, 30000)")).unwrap(), ["t"]);
    let error = listener.query("SELECT 1").unwrap_err().to_string();
    assert!(error.contains("terminating connection"), "{error}");
    // A configuration that is read again: the signal comes from outside, through the log.
    sql.query("ALTER SYSTEM SET work_mem = '7MB'").unwrap();
    let signal = real.cluster.place.run(&["signal", "--name", "t", "HUP"]);
    assert_eq!(signal.status.code(), Some(0));
    wait_for("the new setting", || {
        let found = sql.column("SHOW work_mem").unwrap();
        (found == ["7MB"]).then_some(())
    });
    real.end();
}
