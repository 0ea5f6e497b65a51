//! MariaDB from Debian on three replicas, with its usual configuration: a benchmark's transactions, inserts that are remembered
//! while the leader dies, replicas that stay identical.

mod common;

use common::bank::transfers;
use common::mysql::Mysql;
use common::real::{ANSWER, at_once};
use common::story::{PATIENCE_OF_A_CLIENT, leader_dies_under_load, tool};
use common::{mariadb_server, wait_for};

const CLIENTS: usize = 8;
/// Inserts before and after the leader's death.
const INSERTS: u64 = 400;

/// `sysbench oltp_read_write`; answers the number of its transactions.
fn sysbench(port: u16, args: &[&str]) -> String {
    let port = format!("--mysql-port={port}");
    let common = [
        "oltp_read_write",
        "--mysql-host=127.0.0.1",
        &port,
        "--mysql-user=root",
        "--tables=2",
        "--table-size=500",
        "--threads=8",
    ];
    tool("sysbench", &[&common[..], args].concat())
}

fn transactions(report: &str) -> u64 {
    let line = report.lines().find(|line| line.contains("transactions:")).expect(report);
    line.split_whitespace().nth(1).and_then(|number| number.parse().ok()).expect(line)
}

#[test]
fn nothing_acknowledged_is_lost_when_the_leader_dies() {
    let real = mariadb_server::start();
    let port = real.port();
    let mut sql = Mysql::connect(port, ANSWER).unwrap();
    sql.query("CREATE DATABASE sbtest").unwrap();
    sql.query(
        "CREATE TABLE sbtest.kept (word VARCHAR(40) PRIMARY KEY, made DATETIME(6), id CHAR(36))",
    )
    .unwrap();
    sysbench(port, &["prepare"]);
    let report = sysbench(port, &["--events=400", "--time=40", "run"]);
    assert!(transactions(&report) >= 400, "{report}");

    // Writes and answers contain time, chance and the connection's number.
    let insert = |sql: &mut Mysql, word: &str| {
        sql.query(&format!("INSERT INTO sbtest.kept VALUES ('{word}', NOW(6), UUID())"))?;
        let row = "SELECT word, made, id, RAND(), CONNECTION_ID() FROM sbtest.kept";
        let rows = sql.query(&format!("{row} WHERE word = '{word}'"))?;
        assert_eq!(rows[0][0], word);
        Ok(())
    };
    let connect = || Mysql::connect(port, PATIENCE_OF_A_CLIENT);
    let books = leader_dies_under_load(&real, CLIENTS, INSERTS, connect, insert);

    let mut sql = wait_for("a connection", || Mysql::connect(port, ANSWER).ok());
    books.assert_found(&sql.column("SELECT word FROM sbtest.kept").unwrap());
    for table in ["kept", "sbtest1", "sbtest2"] {
        let rows = sql.query(&format!("CHECK TABLE sbtest.{table} EXTENDED")).unwrap();
        assert_eq!(rows[0][3], "OK", "{rows:?}");
    }
    // The new leader serves a benchmark, too.
    let report = sysbench(port, &["--events=100", "--time=40", "run"]);
    assert!(transactions(&report) >= 100, "{report}");
    real.end();
}

#[test]
fn transactions_that_wait_for_each_other_end_the_same_way_everywhere() {
    let real = mariadb_server::start();
    let port = real.port();
    let mut sql = Mysql::connect(port, ANSWER).unwrap();
    sql.query("CREATE DATABASE bank").unwrap();
    sql.query("CREATE TABLE bank.account (id INT PRIMARY KEY, money INT)").unwrap();
    sql.query("INSERT INTO bank.account VALUES (0, 1000), (1, 1000), (2, 1000), (3, 1000)")
        .unwrap();
    let deadlocks: usize = at_once(CLIENTS, |me| {
        let mut sql = Mysql::connect(port, ANSWER).unwrap();
        transfers(me, 30, "bank.account", |text| match sql.query(text) {
            Err(error) if error.to_string().contains("Deadlock found") => Ok(false),
            answer => answer.map(|_| true),
        })
    })
    .iter()
    .sum();
    println!("{deadlocks} deadlocks");
    assert_eq!(sql.column("SELECT SUM(money) FROM bank.account").unwrap(), ["4000"]);
    real.continue_a_follower_from_an_image(|| {
        sql.query("UPDATE bank.account SET money = money + 1 WHERE id = 0").unwrap();
        sql.query("UPDATE bank.account SET money = money - 1 WHERE id = 0").unwrap();
    });
    assert_eq!(sql.column("SELECT SUM(money) FROM bank.account").unwrap(), ["4000"]);
    real.end();
}
