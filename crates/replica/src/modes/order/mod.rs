//! Mode `order`: agree on inputs first, execute them everywhere, compare the outputs (CRANE sections 2 to 5).

pub mod admission;
