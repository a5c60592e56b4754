//! Tests of the command line, of the choice of letters, and of the summary at the end.

use clap::Parser;
use serde_json::json;

use super::*;
use crate::cli::{Cli, Command, DeadLettersArgs};

fn parse(line: &str) -> Result<DeadLettersArgs, String> {
    match Cli::try_parse_from(line.split(' ')).map_err(|error| error.to_string())?.command {
        Command::DeadLetters(args) => Ok(args),
        _ => Err("another command".to_owned()),
    }
}

#[test]
fn the_command_line_takes_one_or_all() {
    for line in [
        "millrace dead-letters --app shop --service mail --handler deliver --limit 5 --after x --json",
        "millrace dead-letters --retry-all",
        "millrace dead-letters --retry-all --app shop --service mail --handler deliver --url http://localhost:1",
        "millrace dead-letters --drop-all --app shop",
        "millrace dead-letters --drop-all --service mail --api-key k",
        "millrace dead-letters --drop-all --handler deliver",
        "millrace dead-letters --drop-all --yes",
        "millrace dead-letters --drop-all --yes --app shop",
    ] {
        assert!(parse(line).is_ok(), "{line}: {:?}", parse(line).err());
    }
    for line in [
        "millrace dead-letters --retry-all --retry A",
        "millrace dead-letters --retry-all --drop A",
        "millrace dead-letters --retry-all --drop-all --yes",
        "millrace dead-letters --drop-all --yes --drop A",
        "millrace dead-letters --drop-all --yes --retry A",
        "millrace dead-letters --retry-all --json",
        "millrace dead-letters --retry-all --limit 5",
        "millrace dead-letters --drop-all --yes --after x",
        "millrace dead-letters --retry-all --yes",
        "millrace dead-letters --yes",
        "millrace dead-letters --retry A --yes",
        "millrace dead-letters --service mail --yes",
        "millrace dead-letters --retry A --app shop",
        "millrace dead-letters --drop A --handler deliver",
    ] {
        assert!(parse(line).is_err(), "{line}");
    }
    let refused = parse("millrace dead-letters --drop-all").expect_err("neither some nor --yes");
    for needed in ["--app", "--service", "--handler", "--yes"] {
        assert!(refused.contains(needed), "{needed} is not in\n{refused}");
    }
}

#[test]
fn every_filter_that_is_given_counts() {
    let dead_letter = json!({
        "id": "d", "app": "shop", "service": "mail", "key": "bob", "handler": "deliver", "attempts": 16,
    });
    let dead_letter: DeadLetter = serde_json::from_value(dead_letter).expect("a letter");
    for (line, is_meant) in [
        ("millrace dead-letters", true),
        ("millrace dead-letters --app shop --service mail --handler deliver", true),
        ("millrace dead-letters --app sho", false),
        ("millrace dead-letters --app shop --service fax", false),
        ("millrace dead-letters --service mail --handler forward", false),
        // A script's empty variable means no letters, not all of them.
        ("millrace dead-letters --app ", false),
    ] {
        let args = parse(line).expect(line);
        assert_eq!(passes(&args.filter, &dead_letter), is_meant, "{line}");
    }
}

#[test]
fn the_end_says_what_became_of_all() {
    let tally = Tally { done: 3, gone: 2, ..Tally::default() };
    assert_eq!(tally.summary(Fate::Retried), "3 will be tried again, 2 gone meanwhile, 0 failed");
    let tally = Tally { failed: 1, not_asked_for: 7, ..tally };
    assert_eq!(tally.summary(Fate::Dropped), "3 dropped, 2 gone meanwhile, 1 failed, 7 not asked for");
}
