//! Tests of the crate's promises, from outside.

mod listing;
