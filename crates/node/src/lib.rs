//! One replica: gateway, order mode, supervisor, admin.

pub mod supervisor;
