//! The load generator as a program, with modes for the protocols of Redis and of MongoDB.

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use millrace_loadgen::{HttpArgs, LoadArgs, run_http, run_mongo, run_resp};

#[derive(Parser)]
#[command(about = "Send load and measure the replies")]
struct Arguments {
    #[command(subcommand)]
    protocol: Protocol,
}

#[derive(Subcommand)]
enum Protocol {
    /// HTTP/1.1, as `millrace bench http`.
    Http(Box<HttpArgs>),
    /// RESP commands.
    Resp {
        /// host:port
        address: String,
        /// The command's words; may hold template parts.
        #[arg(required = true)]
        words: Vec<String>,
        #[command(flatten)]
        load: Box<LoadArgs>,
    },
    /// Commands of MongoDB's protocol.
    Mongo {
        /// host:port
        address: String,
        /// The command as Extended JSON, such as '{"ping":1,"$db":"test"}'; may hold template parts.
        command: String,
        #[command(flatten)]
        load: Box<LoadArgs>,
    },
}

fn main() -> ExitCode {
    match Arguments::parse().protocol {
        Protocol::Http(args) => run_http(&args),
        Protocol::Resp { address, words, load } => run_resp(&address, &words, &load),
        Protocol::Mongo { address, command, load } => run_mongo(&address, &command, &load),
    }
}
