//! Starts the replicated program (the server) in its sandbox and watches it.
