//! One replica: gateway, order mode, supervisor, admin.
