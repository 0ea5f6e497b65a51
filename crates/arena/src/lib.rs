//! The shared memory between a node and its server.
