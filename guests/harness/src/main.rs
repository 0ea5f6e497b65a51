//! Runs one guest program under the runtime without a cluster.

fn main() {}
