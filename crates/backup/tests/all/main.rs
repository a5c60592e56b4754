//! A place of backups, from archives to restored directories.

mod repository;
