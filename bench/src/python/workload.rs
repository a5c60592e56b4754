//! The loads that transactions do not have: one counter behind several paths, posts of a social network, and loads whose
//! state nobody audits, because their side promises nothing about it.

use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use millrace_loadgen::{Expectation, HttpRequest, Plan, RequestTemplate};
use serde_json::json;

use crate::Outcome;
use crate::contest::Load;
use crate::server::{Server, Setup};
use crate::transactions::workload::{get, post_all};

/// Users of the social network; each follows the next few.
const USERS: usize = 100;
const FOLLOWED: usize = 5;

/// Requests to one kind of path.
#[derive(Clone, Debug)]
pub struct Requests {
    /// A template of the load generator's.
    pub path: &'static str,
    /// Another template.
    pub body: String,
    /// The text that a right reply contains.
    pub mark: Option<&'static str>,
    /// Each request has an idempotency key of its own.
    pub is_keyed: bool,
    /// Requests a second, if they come at times of their own.
    pub rate: Option<f64>,
}

impl Requests {
    /// Adds one to counters: to one of them, or to many in turn.
    #[must_use]
    pub fn counter(path: &'static str) -> Self {
        Self { path, body: "1".to_owned(), mark: None, is_keyed: false, rate: None }
    }

    /// With a key.
    #[must_use]
    pub fn keyed(self) -> Self {
        Self { is_keyed: true, ..self }
    }

    fn plan_of(&self, name: &str, server: &Server) -> Outcome<Plan> {
        let url = format!("http://{}{}", server.address, self.path);
        let mut headers = vec!["Content-Type: application/json".to_owned()];
        headers.extend(self.is_keyed.then(|| "Idempotency-Key: {{uuid}}".to_owned()));
        let request = HttpRequest { method: "POST", url: &url, headers: &headers, body: Some(&self.body) };
        let (request, ..) = RequestTemplate::http(&request).map_err(|error| error.to_string())?;
        let mut plan = Plan::new(name, server.address, request);
        plan.expectation = Expectation {
            statuses: vec![200],
            body_contains: self.mark.map(|mark| mark.as_bytes().to_vec()),
            ..Expectation::default()
        };
        plan.rate = self.rate;
        plan.timeout = Duration::from_secs(30);
        plan.server_pids = server.pids();
        Ok(plan)
    }
}

impl Load for Requests {
    fn plan(&self, name: &str, server: &Server) -> Outcome<Plan> {
        self.plan_of(name, server)
    }

    fn prepare(&self, _server: &Server, _setup: &Setup) -> Outcome<()> {
        Ok(())
    }

    fn audit(&self, _address: SocketAddr) -> Outcome<()> {
        Ok(())
    }
}

/// Posts of users who follow each other.
#[derive(Clone, Debug)]
pub struct Social {
    /// The posts.
    pub requests: Requests,
}

impl Social {
    /// With or without a key.
    #[must_use]
    pub fn new(is_keyed: bool) -> Self {
        let body = format!(r#"{{"user":"u{{{{uniform:0:{USERS}}}}}","text":"hello"}}"#);
        let requests = Requests { path: "/social/compose", body, mark: Some("\"text\":"), is_keyed, rate: None };
        Self { requests }
    }
}

impl Load for Social {
    fn plan(&self, name: &str, server: &Server) -> Outcome<Plan> {
        self.requests.plan_of(name, server)
    }

    fn prepare(&self, server: &Server, _setup: &Setup) -> Outcome<()> {
        let users =
            (0..USERS).map(|user| ("/social/register", json!({"user": format!("u{user}")}))).collect::<Vec<_>>();
        post_all(server.address, &users)?;
        let follow = |user: usize, next: usize| {
            let followee = format!("u{}", (user + next) % USERS);
            ("/social/follow", json!({"user": format!("u{user}"), "followee": followee}))
        };
        let edges = (0..USERS).flat_map(|user| (1..=FOLLOWED).map(move |next| follow(user, next)));
        post_all(server.address, &edges.collect::<Vec<_>>())
    }

    /// Both ends of an edge know it.
    fn audit(&self, address: SocketAddr) -> Outcome<()> {
        let edges = get(address, "/social/edges?user=u0")?;
        let count = |what: &str| edges[what].as_array().map_or(0, Vec::len);
        if count("followees") == FOLLOWED && count("followers") == FOLLOWED {
            return Ok(());
        }
        Err(format!("the edges of u0 are {edges}"))
    }
}

/// A load whose side keeps no promise about state, so that nobody looks at it afterwards.
#[derive(Clone, Debug)]
pub struct Unaudited(pub Rc<dyn Load>);

impl Load for Unaudited {
    fn plan(&self, name: &str, server: &Server) -> Outcome<Plan> {
        self.0.plan(name, server)
    }

    fn prepare(&self, server: &Server, setup: &Setup) -> Outcome<()> {
        self.0.prepare(server, setup)
    }

    fn audit(&self, _address: SocketAddr) -> Outcome<()> {
        Ok(())
    }
}
