//! libskein.so.
