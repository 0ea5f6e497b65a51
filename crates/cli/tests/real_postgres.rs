//! PostgreSQL from Debian on three replicas: a server of many processes, which share memory and wake each other by signals. A benchmark's
//! transactions, inserts that are remembered while the leader dies, replicas that stay identical down to the write-ahead log.

mod common;

use common::bank::transfers;
use common::postgres::Postgres;
use common::postgres_server::{client, start, start_with};
use common::real::{ANSWER, Real, at_once};
use common::story::{PATIENCE_OF_A_CLIENT, leader_dies_under_load};
use common::wait_for;

const CLIENTS: usize = 8;
/// Inserts before and after the leader's death.
const INSERTS: u64 = 300;

/// So many transactions like TPC-B's from eight clients.
fn pgbench(port: u16, each: u64) {
    let report = client(port, "pgbench", &["-n", "-c8", "-j2", &format!("-t{each}"), "postgres"]);
    let all = CLIENTS as u64 * each;
    assert!(report.contains(&format!("actually processed: {all}/{all}")), "{report}");
}

#[test]
fn nothing_acknowledged_is_lost_when_the_leader_dies() {
    nothing_is_lost(start(&[]));
}

/// Its log and files are the same on processors that cannot hide anything from it.
#[test]
fn without_cpuid_faulting_nothing_is_lost_either() {
    let processor = std::fs::read_to_string("/proc/cpuinfo").unwrap();
    let faults = processor.split_whitespace().any(|flag| flag == "cpuid_fault");
    println!("CPUID faulting: {}", if faults { "switched off" } else { "this processor has none" });
    if faults {
        nothing_is_lost(start_with(&["--env", "NO_CPUID_FAULTING=1"], &[]));
    }
}

fn nothing_is_lost(real: Real) {
    let port = real.port();
    client(port, "pgbench", &["-i", "-q", "-s", "1", "postgres"]);
    pgbench(port, 50);
    let mut sql = Postgres::connect(port, ANSWER).unwrap();
    sql.query(
        "CREATE TABLE kept (word TEXT PRIMARY KEY, id UUID DEFAULT gen_random_uuid(),
         made TIMESTAMPTZ DEFAULT clock_timestamp(), by INT DEFAULT pg_backend_pid())",
    )
    .unwrap();

    // A transaction of the benchmark, and a row of our own. Writes and answers contain time, chance and process numbers.
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
    // The new leader serves a benchmark, too.
    pgbench(port, 25);
    let sums = sql
        .query(
            "SELECT (SELECT sum(abalance) FROM pgbench_accounts), (SELECT sum(tbalance) FROM pgbench_tellers),
             (SELECT sum(bbalance) FROM pgbench_branches), (SELECT sum(delta) FROM pgbench_history)",
        )
        .unwrap();
    assert!(sums[0].iter().all(|sum| *sum == sums[0][0]), "transactions are whole: {sums:?}");
    client(port, "pg_amcheck", &["--install-missing", "--heapallindexed", "-d", "postgres"]);
    // Data in memory must reach the files before these are compared.
    sql.query("CHECKPOINT").unwrap();
    real.end();
}

#[test]
fn transactions_that_wait_for_each_other_end_the_same_way_everywhere() {
    // Found by the timer of each waiting process.
    let real = start(&["deadlock_timeout=20ms"]);
    let port = real.port();
    let mut sql = Postgres::connect(port, ANSWER).unwrap();
    sql.query("CREATE TABLE account (id INT PRIMARY KEY, money INT)").unwrap();
    sql.query("INSERT INTO account SELECT id, 1000 FROM generate_series(0, 3) AS id").unwrap();
    let deadlocks: usize = at_once(CLIENTS, |me| {
        let mut sql = Postgres::connect(port, ANSWER).unwrap();
        transfers(me, 20, "account", |text| match sql.query(text) {
            Err(error) if error.to_string().contains("deadlock detected") => {
                sql.query("ROLLBACK").map(|_| false)
            }
            answer => answer.map(|_| true),
        })
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
    real.continue_a_follower_from_an_image(|| {
        assert_eq!(sql.column("SELECT sum(n) FROM numbers").unwrap(), ["1250025000"]);
    });

    // A process wakes another one by a signal.
    let mut listener = Postgres::connect(port, ANSWER).unwrap();
    listener.query("LISTEN news").unwrap();
    sql.query("NOTIFY news, 'hear, hear'").unwrap();
    assert_eq!(listener.notification().unwrap(), ("news".into(), "hear, hear".into()));

    // And ends a process.
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
