//! `millrace worker-check`: does a worker keep the protocol?

use std::path::Path;

use millrace_worker_check::{Bench, HttpTransport, Outcome, Signer, Verdict, cases, run};
use serde_json::{Value, json};

use crate::Failure;
use crate::cli::WorkerCheckArgs;
use crate::table::printable;

/// The private key of checks, which is no secret: the first of RFC 8032, section 7.1. A worker that is checked has the public
/// one, d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a.
const CHECKED_SEED: [u8; 32] = [
    0x9d, 0x61, 0xb1, 0x9d, 0xef, 0xfd, 0x5a, 0x60, 0xba, 0x84, 0x4a, 0xf4, 0x92, 0xec, 0x2c, 0xc4, 0x44, 0x49, 0xc5,
    0x69, 0x7b, 0x32, 0x69, 0x19, 0x70, 0x3b, 0xac, 0x03, 0x1c, 0xae, 0x7f, 0x60,
];

/// Runs the list of cases against a worker, and prints those that it fails.
///
/// # Errors
/// The worker fails a case, or the command line says something that cannot be.
pub(crate) fn check(args: &WorkerCheckArgs) -> Result<(), Failure> {
    if args.list {
        cases().for_each(|case| println!("{}: {}", case.name, case.expected));
        return Ok(());
    }
    let url = args.worker.as_deref().unwrap_or_default();
    let secret = args.secret_file.as_deref().map(secret_of).transpose()?;
    let signer = if args.ed25519 { Some(Signer::from_seed(&CHECKED_SEED)) } else { secret.map(Signer::Secret) };
    let transport = HttpTransport::new(url).map_err(|error| format!("{url}: {error}"))?;
    let outcomes = run(&Bench::new(&transport, signer), &args.only);
    if outcomes.is_empty() {
        return Err(format!("no case's name begins with {:?}: see --list", args.only).into());
    }
    if args.json {
        println!("{}", serde_json::to_string_pretty(&as_json(&outcomes))?);
    } else {
        print!("{}", render(&outcomes));
    }
    match count(&outcomes, |verdict| matches!(verdict, Verdict::Failed(_))) {
        0 => Ok(()),
        failed => Err(format!("the worker at {url} fails {failed} of {} cases", outcomes.len()).into()),
    }
}

fn secret_of(file: &Path) -> Result<String, Failure> {
    let text = std::fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))?;
    Ok(text.trim().to_owned())
}

fn count(outcomes: &[Outcome], is_meant: fn(&Verdict) -> bool) -> usize {
    outcomes.iter().filter(|outcome| is_meant(&outcome.verdict)).count()
}

/// Each failed case with what was expected, why others were skipped, and the counts.
fn render(outcomes: &[Outcome]) -> String {
    let mut text = String::new();
    let mut reasons: Vec<(&str, usize)> = Vec::new();
    for Outcome { case, verdict, .. } in outcomes {
        match verdict {
            Verdict::Passed => {}
            Verdict::Failed(problem) => {
                let problem = printable(problem);
                text.push_str(&format!("{}\n  expected: {}\n  but: {problem}\n", case.name, case.expected));
            }
            Verdict::Skipped(reason) => match reasons.iter_mut().find(|(known, _)| known == reason) {
                Some((_, number)) => *number += 1,
                None => reasons.push((reason, 1)),
            },
        }
    }
    let passed = count(outcomes, |verdict| *verdict == Verdict::Passed);
    let failed = count(outcomes, |verdict| matches!(verdict, Verdict::Failed(_)));
    text.push_str(&format!("{passed} cases passed, {failed} failed"));
    for (reason, number) in reasons {
        text.push_str(&format!(", {number} skipped because {reason}"));
    }
    text.push('\n');
    text
}

fn as_json(outcomes: &[Outcome]) -> Value {
    let one = |outcome: &Outcome| {
        let (verdict, detail) = match &outcome.verdict {
            Verdict::Passed => ("passed", None),
            Verdict::Failed(problem) => ("failed", Some(problem.as_str())),
            Verdict::Skipped(reason) => ("skipped", Some(*reason)),
        };
        let Outcome { case, took, .. } = outcome;
        json!({
            "case": case.name, "verdict": verdict, "expected": case.expected, "detail": detail,
            "took_us": u64::try_from(took.as_micros()).unwrap_or(u64::MAX),
        })
    };
    outcomes.iter().map(one).collect()
}
