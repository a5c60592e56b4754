//! The cases, by group.

mod calls;
mod discovery;
mod fields;
mod frames;
mod objects;
mod replay;
mod routes;
mod signatures;
mod streams;
mod turns;
mod workflows;

use crate::Case;

/// Cases of this group need the worker's secret.
pub(crate) const SIGNED: &str = "signature/";

/// Cases of what version 2 of the protocol has added.
pub(crate) const OF_VERSION_2: [&str; 4] =
    ["calls/send-as", "workflow/result", "workflow/result-limited", "workflow/result-fails"];

/// Cases of this group need a worker of this version of the protocol.
pub(crate) const OBJECTS: (&str, u32) = ("objects/", objects::VERSION);

/// Cases of this group need a worker that takes the offer of the mode `stream`.
pub(crate) const ON_STREAMS: &str = "stream/";

/// All groups, in the order in which they run.
pub(crate) const GROUPS: [&[Case]; 11] = [
    discovery::CASES,
    signatures::CASES,
    frames::CASES,
    turns::CASES,
    fields::CASES,
    calls::CASES,
    objects::CASES,
    replay::CASES,
    workflows::CASES,
    routes::CASES,
    streams::CASES,
];
