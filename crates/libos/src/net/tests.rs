//! Behaviour of sockets; the first thread is the one under test, and others act while it is blocked.
