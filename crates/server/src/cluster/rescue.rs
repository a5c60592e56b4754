//! `millrace cluster rescue`: a cluster goes on with one node when a majority is lost for good.

use millrace_base::{Lsn, ShardId};
use millrace_node::Kept;

use super::{RescueArgs, options};
use crate::Failure;

/// Shards in a line.
const IN_A_LINE: usize = 8;

/// Makes what a node has the truth, or says what that is.
///
/// # Errors
/// Why the node cannot be it; or that the loss is not accepted.
pub(super) fn run(args: &RescueArgs) -> Result<(), Failure> {
    let place = options(&args.directory)?;
    let node = place.options.node;
    let kept = millrace_node::rescue(&args.directory, place.options, args.accept_loss)?;
    let has = if args.accept_loss { "keeps" } else { "has" };
    print!("node {node} {has} all shards, each up to this position:\n{}", render(&kept));
    let lost: Vec<String> = kept.lost.iter().map(ToString::to_string).collect();
    let lost = lost.join(", ");
    if !args.accept_loss {
        return Err(format!(
            "nothing was changed. What only other nodes ({lost}) had acknowledged would be lost, and a transaction may be \
             kept in one shard and lost in another. If a majority of the nodes is lost for good, stop the others, and repeat \
             the command with --accept-loss"
        )
        .into());
    }
    if lost.is_empty() {
        eprintln!("node {node} was the only one of its cluster before: start it, and have others join");
        return Ok(());
    }
    eprintln!(
        "node {node} is the only one of its cluster now: start it, and have others join. Those that were there ({lost}) are \
         refused from now on: never start them again, and delete their directories"
    );
    Ok(())
}

/// The positions, some in a line.
fn render(kept: &Kept) -> String {
    let of = |(shard, lsn): (usize, &Lsn)| format!("{shard}: {lsn}");
    let shards: Vec<String> = kept.shards.iter().enumerate().map(of).collect();
    let lines = shards.chunks(IN_A_LINE).map(|line| format!("  {}\n", line.join("  ")));
    let mut text: String = lines.collect();
    text.push_str(&format!("  guidance: {}\n", kept.guidance));
    if !kept.doubtful.is_empty() {
        let doubtful: Vec<String> = kept.doubtful.iter().map(ShardId::to_string).collect();
        text.push_str(&format!("  may lack what this node itself had acknowledged: shards {}\n", doubtful.join(", ")));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_are_shown_eight_in_a_line() {
        let kept = Kept {
            shards: (1..=9).map(Lsn).collect(),
            guidance: Lsn(77),
            doubtful: vec![ShardId(2), ShardId(5)],
            lost: Vec::new(),
        };
        let expected = "  0: 1  1: 2  2: 3  3: 4  4: 5  5: 6  6: 7  7: 8\n  8: 9\n  guidance: 77\n  \
                        may lack what this node itself had acknowledged: shards 2, 5\n";
        assert_eq!(render(&kept), expected);
    }
}
