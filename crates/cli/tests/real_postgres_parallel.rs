//! PostgreSQL's parallel workers on three replicas. A process that has asked for workers polls shared memory until each of them has attached, without any
//! call (`WaitForParallelWorkersToAttach`): it must let the workers run, at the same point on all replicas.

mod common;

use common::cluster::Cluster;
use common::postgres::Postgres;
use common::postgres_server::start;
use common::real::{ANSWER, Real, at_once};
use common::wait_for;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

const SETTINGS: [&str; 8] = [
    "max_connections=60",
    "max_worker_processes=64",
    "max_parallel_workers=48",
    "max_parallel_maintenance_workers=2",
    "min_parallel_table_scan_size=0",
    "parallel_setup_cost=0",
    "parallel_tuple_cost=0",
    "force_parallel_mode=on",
];

fn connect(port: u16) -> Postgres {
    wait_for("a connection", || Postgres::connect(port, ANSWER).ok())
}

/// Fills a table and has workers index and sum it, so many times.
fn build_indexes(sql: &mut Postgres, table: &str, times: usize) {
    sql.query(&format!("CREATE TABLE {table} AS SELECT n FROM generate_series(1, 3000) AS n"))
        .unwrap();
    for _ in 0..times {
        sql.query(&format!("CREATE INDEX {table}_n ON {table} (n)")).unwrap();
        let sum = sql.column(&format!("SELECT sum(n) FROM {table}")).unwrap();
        assert_eq!(sum, ["4501500"]);
        sql.query(&format!("DROP INDEX {table}_n")).unwrap();
    }
}

fn kill_leader(real: &Real) {
    let (leader, pid) = Cluster::leader(&real.cluster.wait_status(0));
    kill(Pid::from_raw(pid), Signal::SIGKILL).unwrap();
    wait_for("another leader", || {
        let (status, _) = real.cluster.status();
        status["leader"].as_u64().filter(|id| *id != leader)
    });
}

#[test]
fn parallel_workers_build_indexes() {
    let real = start(&SETTINGS);
    let port = real.port();
    build_indexes(&mut connect(port), "alone", 20);
    kill_leader(&real);
    build_indexes(&mut connect(port), "afterwards", 3);
    real.wait_agreed();
}

#[test]
fn many_processes_wait_for_their_workers_at_once() {
    let real = start(&SETTINGS);
    let port = real.port();
    at_once(20, |me| build_indexes(&mut connect(port), &format!("t{me}"), 1));
    real.wait_agreed();
}
