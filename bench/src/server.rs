//! Servers to measure. Each starts on its own CPUs with its own data folder, which is deleted afterwards.

use std::io::Read;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use sha1::{Digest, Sha1};
use tempfile::TempDir;

use crate::{Outcome, graph, small};

const START: Duration = Duration::from_secs(120);
const STOP: Duration = Duration::from_secs(60);

/// The user of every login comparison.
pub const USER: &str = "alice";
/// The user's password.
pub const PASSWORD: &str = "correct horse";
/// The user's salt.
pub const SALT: &str = "0123456789abcdef";

/// The login check as a function in the rival's store.
const LUA: &str = "#!lua name=login
redis.register_function{function_name='login', flags={'no-writes'}, callback=function(keys, args)
  local user = redis.call('HMGET', keys[1], 'salt', 'hash')
  if user[1] and redis.sha1hex(args[1] .. user[1]) == user[2] then return 'ok' end
  return redis.error_reply('DENIED wrong name or password')
end}";

/// Where the programs are and which CPUs they get.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The binary.
    pub millrace: PathBuf,
    /// The bare responder's binary.
    pub limit: PathBuf,
    /// The folder of example apps.
    pub examples: PathBuf,
    /// The folder of apps that exist for measuring only.
    pub apps: PathBuf,
    /// The folder of the rivals.
    pub rivals: PathBuf,
    /// Where data folders are made, on the disk to measure.
    pub data: PathBuf,
    /// The CPUs of servers, as taskset takes them.
    pub server_cpus: String,
    /// The CPUs of the load generator.
    pub load_cpus: Vec<usize>,
}

/// The server to start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A Millrace node.
    Millrace {
        /// The example, or app for measuring, deployed on it.
        app: &'static str,
        /// As its flag of this name.
        durability: &'static str,
        /// As its flag of this name.
        cores: usize,
    },
    /// A Millrace node without an app, because records need none.
    Records {
        /// As its flag of this name.
        durability: &'static str,
        /// As its flag of this name.
        cores: usize,
        /// Its flag `memory`, in MiB; the server's default without.
        memory_mib: Option<u64>,
    },
    /// A Millrace node that listens for S3, too.
    Objects {
        /// As its flag of this name.
        durability: &'static str,
        /// As its flag of this name.
        cores: usize,
        /// Where it listens for S3.
        s3: SocketAddr,
    },
    /// The bare epoll responder.
    Limit,
    /// Express with its store, both on the server's CPUs.
    Express,
    /// Node.js without a framework, its data in a `Map`.
    NodeMap,
    /// Valkey or Redis; with `appendfsync always` or without any log.
    Store {
        /// Whether every write is synced before its reply.
        is_durable: bool,
    },
    /// One of the sides of `rivals/python`.
    Python(PythonSide),
    /// A rival with several processes; its `start.sh` starts them.
    Rival {
        /// Its folder in the folder of the rivals.
        folder: &'static str,
    },
}

/// What `rivals/python/start.sh` is told, which says what each means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PythonSide {
    /// `SIDE`
    pub side: &'static str,
    /// `APP`
    pub app: &'static str,
    /// `PROCESSES`
    pub processes: usize,
    /// `COUNTED`
    pub counted: &'static str,
    /// `DURABILITY`
    pub durability: &'static str,
}

impl Setup {
    fn app(&self, name: &str) -> PathBuf {
        let example = self.examples.join(name);
        if example.is_dir() { example } else { self.apps.join(name) }
    }
}

/// A running server. Dropping it kills its processes.
pub struct Server {
    children: Vec<Child>,
    /// The processes that a rival's script reports.
    started: Vec<u32>,
    /// Where it listens.
    pub address: SocketAddr,
    /// From starting the process to its first reply.
    pub ready_after: Duration,
    folder: Option<TempDir>,
}

impl Server {
    /// Starts a server with an empty data folder and the user to log in as.
    ///
    /// # Errors
    /// If a program is missing or does not come up.
    pub fn start(kind: &Kind, setup: &Setup) -> Outcome<Self> {
        let folder = tempfile::Builder::new().prefix("millrace-bench-").tempdir_in(&setup.data);
        let folder = folder.map_err(|error| format!("cannot make a folder in {}: {error}", setup.data.display()))?;
        let mut server = Self::start_in(kind, setup, folder.path())?;
        server.folder = Some(folder);
        server.prepare(kind)?;
        Ok(server)
    }

    /// Starts a server on a data folder that may hold something already.
    ///
    /// # Errors
    /// If a program is missing or does not come up.
    pub fn start_in(kind: &Kind, setup: &Setup, folder: &Path) -> Outcome<Self> {
        let address = free_address()?;
        let port = address.port().to_string();
        let mut server =
            Self { children: Vec::new(), started: Vec::new(), address, ready_after: Duration::ZERO, folder: None };
        match kind {
            Kind::Limit => server.spawn(setup, &setup.limit, &["--port", &port], &[])?,
            Kind::Store { is_durable } => server.spawn_store(setup, folder, &port, *is_durable)?,
            Kind::Express => {
                let store = free_address()?.port().to_string();
                server.spawn_store(setup, folder, &store, false)?;
                wait_for_port(SocketAddr::from((Ipv4Addr::LOCALHOST, store.parse().unwrap_or(0))))?;
                let express = setup.rivals.join("express");
                let script = express.join("server.js");
                if !express.join("node_modules").is_dir() {
                    return Err("Express is not installed; run bench/rivals/install.sh".to_owned());
                }
                let variables = [("PORT", port.as_str()), ("REDIS_PORT", &store), ("NODE_ENV", "production")];
                server.spawn(setup, Path::new("node"), &[&script.to_string_lossy()], &variables)?;
            }
            Kind::NodeMap => {
                let script = setup.rivals.join("friends-node/server.js");
                server.spawn(setup, Path::new("node"), &[&script.to_string_lossy()], &[("PORT", &port)])?;
            }
            Kind::Millrace { app, durability, cores } => {
                let app = setup.app(app);
                server.spawn_node(setup, folder, (durability, *cores), &["--app", &app.to_string_lossy()])?;
            }
            Kind::Records { durability, cores, memory_mib } => {
                let memory = memory_mib.map(|size| format!("{size}MiB"));
                let further = memory.iter().flat_map(|size| ["--memory", size]).collect::<Vec<_>>();
                server.spawn_node(setup, folder, (durability, *cores), &further)?;
            }
            Kind::Objects { durability, cores, s3 } => {
                server.spawn_node(setup, folder, (durability, *cores), &["--s3", &s3.to_string()])?;
            }
            Kind::Python(PythonSide { side, app, processes, counted, durability }) => {
                let program = setup.millrace.to_string_lossy();
                let processes = processes.to_string();
                let told = [("SIDE", *side), ("APP", app), ("COUNTED", counted), ("DURABILITY", durability)];
                let further = [("MILLRACE", program.as_ref()), ("PROCESSES", &processes)];
                server.spawn_rival(setup, folder, "python", &[&told[..], &further].concat())?;
            }
            Kind::Rival { folder: name } => server.spawn_rival(setup, folder, name, &[])?,
        }
        let start = Instant::now();
        match kind {
            Kind::Millrace { .. } | Kind::Records { .. } | Kind::Express | Kind::NodeMap => {
                server.wait_until_healthy()?;
            }
            Kind::Objects { s3, .. } => {
                server.wait_until_healthy()?;
                wait_for_port(*s3)?;
            }
            Kind::Limit | Kind::Store { .. } => wait_for_port(address)?,
            // Its script has waited until it serves.
            Kind::Rival { .. } | Kind::Python(_) => {}
        }
        server.ready_after = start.elapsed();
        Ok(server)
    }

    fn spawn_node(
        &mut self,
        setup: &Setup,
        folder: &Path,
        (durability, cores): (&str, usize),
        further: &[&str],
    ) -> Outcome<()> {
        let data = folder.to_string_lossy();
        let (http, cores) = (self.address.to_string(), cores.to_string());
        let mut arguments =
            vec!["serve", "--data", &data, "--http", &http, "--cores", &cores, "--durability", durability];
        arguments.extend(further);
        self.spawn(setup, &setup.millrace, &arguments, &[("MILLRACE_LOG", "warn")])
    }

    /// Runs the `start.sh` of a rival. The script reports its processes when all of them serve, and stays to end them.
    fn spawn_rival(&mut self, setup: &Setup, folder: &Path, name: &str, told: &[(&str, &str)]) -> Outcome<()> {
        let script = setup.rivals.join(name).join("start.sh");
        let failed = |error: std::io::Error| format!("cannot run {}: {error}", script.display());
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL"]).arg(&script);
        command.envs(told.iter().copied());
        command.envs([("WAIT", "1"), ("CPUS", &setup.server_cpus), ("PORT", &self.address.port().to_string())]);
        command.env("DATA", folder).stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = command.spawn().map_err(failed)?;
        let output = child.stdout.take();
        self.children.push(child);
        let mut told = String::new();
        if let Some(mut output) = output {
            output.read_to_string(&mut told).map_err(failed)?;
        }
        self.started = told.lines().filter_map(|line| line.trim().parse().ok()).collect();
        if self.started.is_empty() { Err(format!("{name} did not start")) } else { Ok(()) }
    }

    fn spawn_store(&mut self, setup: &Setup, folder: &Path, port: &str, is_durable: bool) -> Outcome<()> {
        let folder = folder.to_string_lossy();
        let mut arguments = vec!["--port", port, "--bind", "127.0.0.1", "--dir", &folder, "--save", ""];
        arguments.extend(["--daemonize", "no", "--maxclients", "12000"]);
        if is_durable {
            arguments.extend(["--appendonly", "yes", "--appendfsync", "always"]);
        }
        self.spawn(setup, Path::new(store_program()), &arguments, &[])
    }

    fn spawn(&mut self, setup: &Setup, program: &Path, arguments: &[&str], env: &[(&str, &str)]) -> Outcome<()> {
        // A server must not outlive the program that measures it.
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "taskset", "-c", &setup.server_cpus]).arg(program).args(arguments);
        command.envs(env.iter().copied()).stdin(Stdio::null()).stdout(Stdio::null());
        let child = command.spawn().map_err(|error| format!("cannot start {}: {error}", program.display()))?;
        self.children.push(child);
        Ok(())
    }

    fn wait_until_healthy(&mut self) -> Outcome<()> {
        let deadline = Instant::now() + START;
        loop {
            if small::http(self.address, "GET", "/healthz", "").is_ok_and(|reply| reply.0 == 200) {
                return Ok(());
            }
            for child in &mut self.children {
                if let Ok(Some(status)) = child.try_wait() {
                    return Err(format!("the server ended with {status} instead of serving"));
                }
            }
            if Instant::now() > deadline {
                return Err(format!("the server was not ready after {START:?}"));
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Creates the user.
    fn prepare(&self, kind: &Kind) -> Outcome<()> {
        let hash = hex(&Sha1::digest(format!("{PASSWORD}{SALT}")));
        match kind {
            Kind::Millrace { app: "login", .. } => {
                let body = format!(r#"{{"scheme":"sha1","salt":"{SALT}","hash":"{hash}"}}"#);
                let (status, reply) = small::http(self.address, "POST", &format!("/call/user/{USER}/import"), &body)?;
                if status == 200 { Ok(()) } else { Err(format!("importing the user gave {status}: {reply}")) }
            }
            Kind::Millrace { app: "friends", .. } | Kind::NodeMap => graph::load(self.address),
            Kind::Express => {
                let body = format!(r#"{{"username":"{USER}","password":"{PASSWORD}"}}"#);
                let (status, reply) = small::http(self.address, "POST", "/user/register", &body)?;
                if status == 201 { Ok(()) } else { Err(format!("registering the user gave {status}: {reply}")) }
            }
            Kind::Store { .. } => {
                small::resp(self.address, &["FUNCTION", "LOAD", LUA])?;
                small::resp(self.address, &["HSET", &format!("user:{USER}"), "salt", SALT, "hash", &hash])?;
                Ok(())
            }
            Kind::Millrace { .. }
            | Kind::Records { .. }
            | Kind::Objects { .. }
            | Kind::Limit
            | Kind::Python(_)
            | Kind::Rival { .. } => Ok(()),
        }
    }

    /// The processes whose CPU time is the server's.
    #[must_use]
    pub fn pids(&self) -> Vec<u32> {
        if self.started.is_empty() {
            return self.children.iter().map(Child::id).collect();
        }
        // The server starts and ends helper processes as it likes.
        let is_alive = |pid: &u32| Path::new("/proc").join(pid.to_string()).exists();
        self.started.iter().copied().filter(is_alive).collect()
    }

    /// Asks the server to end, waits, and deletes its folder.
    ///
    /// # Errors
    /// If it does not end in time.
    pub fn stop(mut self) -> Outcome<()> {
        self.signal(Signal::TERM);
        let deadline = Instant::now() + STOP;
        for child in &mut self.children {
            while !matches!(child.try_wait(), Ok(Some(_))) {
                if Instant::now() > deadline {
                    return Err(format!("the server did not end within {STOP:?}"));
                }
                std::thread::sleep(Duration::from_millis(5));
            }
        }
        Ok(())
    }

    /// Kills the process.
    pub fn kill(self) {
        drop(self);
    }

    fn signal(&self, signal: Signal) {
        for child in &self.children {
            if let Some(pid) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
                // The process may have ended already.
                kill_process(pid, signal).ok();
            }
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        for child in &mut self.children {
            child.kill().ok();
            child.wait().ok();
        }
        drop(self.folder.take());
    }
}

/// Valkey if it is installed, otherwise Redis.
#[must_use]
pub fn store_program() -> &'static str {
    let has_valkey =
        Command::new("valkey-server").arg("--version").output().is_ok_and(|output| output.status.success());
    if has_valkey { "valkey-server" } else { "redis-server" }
}

pub(crate) fn free_address() -> Outcome<SocketAddr> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|listener| listener.local_addr());
    listener.map_err(|error| format!("no free port: {error}"))
}

fn wait_for_port(address: SocketAddr) -> Outcome<()> {
    let deadline = Instant::now() + START;
    while std::net::TcpStream::connect(address).is_err() {
        if Instant::now() > deadline {
            return Err(format!("nothing listens on {address} after {START:?}"));
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    Ok(())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
