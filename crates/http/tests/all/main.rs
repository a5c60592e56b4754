//! The integration tests of this crate: one program, which compiles and links once, with a module for each subject.

mod auth;
mod classic;
mod connections;
mod contract;
mod cors;
mod events;
mod frames;
mod limits;
mod operations;
mod origins;
mod plain;
mod records;
mod reply_batch;
mod schemas;
mod starting;
mod strict;
mod support;
mod users;
mod workflows;
