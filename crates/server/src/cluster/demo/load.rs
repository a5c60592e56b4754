//! The load of `millrace cluster demo --load`: clients that pay from account to account while a node is killed and brought
//! back, and the books at the end.
//!
//! Promises: an answer counts when the client has it. A call without one is repeated at the next node, with the same
//! idempotency key. So at the end the accounts must say exactly what the clients know.

use std::cell::RefCell;
use std::fmt::Write as _;
use std::path::Path;
use std::rc::Rc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use millrace_client::{Call, Client, ClientError, ClientOptions};
use millrace_io::{Clock as _, RealClock};
use serde::Deserialize;
use serde_json::json;
use tokio::task::LocalSet;

use super::figures::{Figures, head};
use super::{Nodes, deploy, start};
use crate::Failure;

/// The service that the clients call; its app has the same name.
const SERVICE: &str = "demo_account";
const SOURCE: &str = include_str!("demo_account.ts");

/// Enough that most payments are between two shards, and few wait for another.
const ACCOUNTS: u32 = 512;

/// What three nodes on a small machine answer without a queue.
const CLIENTS: u32 = 16;

/// How long a client waits for one node before it asks the next.
const PATIENCE: Duration = Duration::from_secs(2);

/// Between two attempts.
const PAUSE: Duration = Duration::from_millis(20);

/// How long a client keeps away from a node that gave it no answer, as a load balancer would.
const AWAY: Duration = Duration::from_secs(1);

/// How long a call may go without an answer before the demo gives up.
const UNANSWERED: Duration = Duration::from_secs(30);

/// Which node is killed.
const VICTIM: usize = 1;

/// What the load needs of its cluster, and what the clients have seen.
struct Shared {
    clients: Vec<Client>,
    figures: RefCell<Figures>,
    started: Instant,
    length: Duration,
    /// Names the accounts and idempotency keys of this load: kept data may have those of earlier ones.
    run: String,
}

impl Shared {
    fn account(&self, number: u32) -> String {
        format!("{}-{number}", self.run)
    }
}

/// One account's books.
#[derive(Deserialize)]
struct Books {
    balance: i64,
    paid: u64,
}

/// Puts load on a cluster that has the app of [`install`], for `length`. A node is killed after a third of it, and started again after two thirds.
///
/// # Errors
/// When the accounts do not say what the clients know, or a call had no answer.
pub(super) async fn run(nodes: &mut Nodes, data: &Path, length: Duration, cores: usize) -> Result<(), Failure> {
    let options = || ClientOptions { timeout: PATIENCE, retries: 0, ..ClientOptions::default() };
    let clients = nodes.0.iter().map(|running| Client::new(&running.url(), options())).collect::<Result<_, _>>()?;
    let run = RealClock.now().to_string();
    let shared = Rc::new(Shared { clients, figures: RefCell::default(), started: Instant::now(), length, run });
    println!("{}", head());
    let tasks = LocalSet::new();
    let payers: Vec<_> = (0..CLIENTS).map(|client| tasks.spawn_local(pay_on(Rc::clone(&shared), client))).collect();
    tasks
        .run_until(async {
            watch(nodes, &shared, cores).await?;
            for payer in payers {
                payer.await??;
            }
            audit(&shared).await
        })
        .await?;
    let plot = data.with_extension("svg");
    std::fs::write(&plot, shared.figures.borrow().plot()).map_err(|error| format!("{}: {error}", plot.display()))?;
    println!("The plot is {}", plot.display());
    Ok(())
}

/// Deploys the app of the accounts. Waits for it, so not inside a runtime.
///
/// # Errors
/// When its file cannot be written, or the node refuses it.
pub(super) fn install(nodes: &Nodes, data: &Path) -> Result<(), Failure> {
    let folder = data.join(SERVICE);
    let file = folder.join(format!("{SERVICE}.ts"));
    std::fs::create_dir_all(&folder)
        .and_then(|()| std::fs::write(&file, SOURCE))
        .map_err(|error| format!("{}: {error}", file.display()))?;
    deploy(&nodes.0[0], &folder)
}

/// Shows each second, and kills and starts the node when it is time.
async fn watch(nodes: &mut Nodes, shared: &Shared, cores: usize) -> Result<(), Failure> {
    let (killed, revived) = (shared.length / 3, shared.length * 2 / 3);
    let (mut is_killed, mut is_revived) = (false, false);
    let mut ticks = tokio::time::interval(Duration::from_secs(1));
    ticks.tick().await;
    while shared.started.elapsed() < shared.length {
        ticks.tick().await;
        let owned = owned(shared).await;
        println!("{}", shared.figures.borrow_mut().turn(&owned));
        let now = shared.started.elapsed();
        if now >= killed && !is_killed {
            is_killed = true;
            nodes.0[VICTIM].child.kill()?;
            nodes.0[VICTIM].child.wait()?;
            say(shared, now, "killed", "kill -9");
        } else if now >= revived && !is_revived {
            is_revived = true;
            let directory = nodes.0[VICTIM].directory.clone();
            nodes.0[VICTIM].child = start(&directory, cores)?;
            say(shared, now, "started again", "with what is on its disk");
        }
    }
    Ok(())
}

fn say(shared: &Shared, now: Duration, what: &str, how: &str) {
    let what = format!("node {} {what}", VICTIM + 1);
    println!("       -- {what} ({how})");
    shared.figures.borrow_mut().happened(now, what);
}

/// How many shards each node owns, as the first node says that answers at once.
async fn owned(shared: &Shared) -> String {
    for client in &shared.clients {
        let Ok(Ok(guidance)) = tokio::time::timeout(Duration::from_millis(300), client.guidance()).await else {
            continue;
        };
        let owners = || guidance["shards"].as_array().into_iter().flatten().map(|shard| &shard["owner"]);
        let mut text = String::new();
        for node in 1..=shared.clients.len() {
            let count = owners().filter(|owner| **owner == json!(node)).count();
            // Writing to a String cannot fail.
            write!(text, "{}n{node} {count}", if node == 1 { "" } else { "  " }).unwrap_or_default();
        }
        return text;
    }
    "no node says".to_owned()
}

/// One client: a payment after the other, until the load ends.
async fn pay_on(shared: Rc<Shared>, client: u32) -> Result<(), String> {
    let mut payment = 0_u32;
    let mut route = Route::from(client as usize, &shared);
    while shared.started.elapsed() < shared.length {
        payment += 1;
        // Each client's steps through the accounts are others', so that they meet now and then.
        let from = (client * 31 + payment * 7) % ACCOUNTS;
        let to = (from + 1 + payment % (ACCOUNTS - 1)) % ACCOUNTS;
        let idempotency_key = format!("{}-{client}-{payment}", shared.run);
        pay(&shared, &mut route, &idempotency_key, (from, to)).await?;
    }
    Ok(())
}

/// Which node a client asks next.
struct Route {
    node: usize,
    /// Since when a node gave no answer.
    away: Vec<Option<Instant>>,
}

impl Route {
    fn from(node: usize, shared: &Shared) -> Self {
        Self { node, away: vec![None; shared.clients.len()] }
    }

    /// The next node, past those that gave no answer lately; the next one where that is all of them.
    fn next(&mut self) -> usize {
        let count = self.away.len();
        let is_near = |node: &usize| self.away[*node].is_none_or(|since| since.elapsed() > AWAY);
        let order = || (1..=count).map(|step| (self.node + step) % count);
        self.node = order().find(is_near).unwrap_or((self.node + 1) % count);
        self.node
    }
}

/// One payment, at one node after the other until it is answered.
async fn pay(shared: &Shared, route: &mut Route, idempotency_key: &str, (from, to): (u32, u32)) -> Result<(), String> {
    let text = json!({ "to": shared.account(to), "amount": 1 + (from + to) % 9 }).to_string();
    let payer = shared.account(from);
    let call = Call::new(SERVICE, &payer, "pay").json(text).idempotency_key(idempotency_key);
    let begun = Instant::now();
    ask(shared, route, &call).await.map_err(|error| format!("a payment from {from} to {to}: {error}"))?;
    shared.figures.borrow_mut().answered(begun.elapsed());
    Ok(())
}

/// The answer to a call, of one node after the other until one gives it.
async fn ask(shared: &Shared, route: &mut Route, call: &Call<'_>) -> Result<Bytes, String> {
    let begun = Instant::now();
    loop {
        let node = route.next();
        match shared.clients[node].call(call).await {
            Ok(answer) => return Ok(answer),
            Err(error) if is_repeated(&error) && begun.elapsed() < UNANSWERED => {
                shared.figures.borrow_mut().repeated();
                route.away[node] = Some(Instant::now());
                tokio::time::sleep(PAUSE).await;
            }
            Err(error) => return Err(format!("no answer after {:?}: {error}", begun.elapsed())),
        }
    }
}

/// Whether another node may answer. With an idempotency key it is safe to ask.
fn is_repeated(error: &ClientError) -> bool {
    error.is_retryable() || matches!(error.status(), Some(504))
}

/// Reads all accounts, and compares them with what the clients know.
async fn audit(shared: &Shared) -> Result<(), Failure> {
    let (answered, repeated, longest) = shared.figures.borrow().sums();
    let (mut balance, mut paid) = (0, 0);
    let mut route = Route::from(0, shared);
    for account in 0..ACCOUNTS {
        let account = shared.account(account);
        let answer = ask(shared, &mut route, &Call::new(SERVICE, &account, "books")).await;
        let answer = answer.map_err(|error| format!("the books of account {account}: {error}"))?;
        let books: Books = serde_json::from_slice(&answer)?;
        balance += books.balance;
        paid += books.paid;
    }
    println!("{answered} payments were answered, {repeated} attempts were repeated. The longest took {longest:.1?}.");
    if balance != 0 || paid != answered as u64 {
        return Err(format!("the accounts say {paid} payments, and their balances add up to {balance}, not 0").into());
    }
    println!("The accounts say {paid} payments, and their balances add up to 0: nothing was lost, nothing done twice.");
    Ok(())
}
