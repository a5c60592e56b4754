//! The proof: a world of replicas, disks and messages; one list of promises that every step is checked against; an exhaustive
//! search at small bounds, and long random runs at larger ones. Bugs planted on purpose are found by one or the other.

mod bugs;
mod checker;
mod disk;
mod model;
mod simulation;
mod table;
mod world;
