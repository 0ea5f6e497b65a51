//! Transactions that wait for each other, for databases: transfers between four accounts.

use std::io;

/// Transfers between accounts 0 to 3 of `table`, each of which takes two of them, in opposite orders for different clients: some wait, some
/// are the victim of a deadlock. `execute` answers whether a statement was executed: false for a victim, whose transaction is then
/// over. Answers how many were victims.
pub fn transfers(
    client: usize,
    rounds: usize,
    table: &str,
    mut execute: impl FnMut(&str) -> io::Result<bool>,
) -> usize {
    let is_victim = |round: &usize| {
        let (from, to) = ((client + round) % 4, (client + round * 3 + 1) % 4);
        let add = |sign, account| {
            format!("UPDATE {table} SET money = money {sign} 1 WHERE id = {account}")
        };
        let statements = ["BEGIN".into(), add('-', from), add('+', to), "COMMIT".into()];
        !statements.iter().all(|statement| execute(statement).unwrap())
    };
    (0..rounds).filter(is_victim).count()
}
