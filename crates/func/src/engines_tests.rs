//! Which engine is told what.

use bytes::Bytes;

use super::*;
use crate::{BuiltInCall, FetchRequest, LogLevel, Message, NestedCall, Offload};
use crate::{RouteId, ScanRequest};
use millrace_base::{ErrorCode, UnixMillis, Value};

/// Tells what it was asked. Input `wait` waits, and any result ends that.
struct Told {
    name: &'static str,
    told: Rc<RefCell<Vec<String>>>,
}

impl Told {
    fn tell(&self, what: &str, number: u32) {
        self.told.borrow_mut().push(format!("{} {what} {number}", self.name));
    }
}

impl Engine for Told {
    fn load(&self, program: Program, app: &App) -> Result<(), Error> {
        self.tell("loads", program.0);
        if app.is_kept { Err(Error::new(ErrorCode::AppRefused, "broken")) } else { Ok(()) }
    }

    fn services(&self, program: Program) -> Vec<Service> {
        self.tell("services", program.0);
        Vec::new()
    }

    fn sweeps(&self, program: Program) -> Vec<(Name, u64)> {
        self.tell("sweeps", program.0);
        Vec::new()
    }

    fn drops(&self, program: Program, _: &str, _: &str) -> bool {
        self.tell("drops", program.0);
        true
    }

    fn begun_again(&self, program: Program, _: &str, input: Bytes) -> Bytes {
        self.tell("begins again", program.0);
        input
    }

    fn close(&self, program: Program) -> Vec<Name> {
        self.tell("closes", program.0);
        Vec::new()
    }

    fn reopen(&self, program: Program) {
        self.tell("reopens", program.0);
    }

    fn unload(&self, program: Program) {
        self.tell("unloads", program.0);
    }

    fn answer(&self, query: HandlerId, _: &[u8], _: &mut dyn Reader) -> Option<Result<Answer, Error>> {
        self.tell("answers", query.program.0);
        None
    }

    fn start(&self, activation: ActivationId, start: Start<'_>, _: &mut dyn Host) -> TurnResult {
        self.tell("starts", activation.0);
        match start {
            Start::Handler { input: b"wait", .. } => TurnResult::Waiting,
            _ => TurnResult::Done(Err(Error::new(ErrorCode::Internal, self.name))),
        }
    }

    fn resume(
        &self,
        activation: ActivationId,
        _: OperationId,
        result: Result<Bytes, Error>,
        _: &mut dyn Host,
    ) -> TurnResult {
        self.tell("resumes", activation.0);
        match result {
            Ok(_) => TurnResult::Waiting,
            Err(error) => TurnResult::Done(Err(error)),
        }
    }

    fn cancel(&self, activation: ActivationId) {
        self.tell("cancels", activation.0);
    }
}

/// Nobody asks it for anything.
struct NoHost;

fn never<T>() -> Result<T, Error> {
    Err(Error::new(ErrorCode::Internal, "nobody asks"))
}

impl Host for NoHost {
    fn get(&mut self, _: &[u8]) -> Result<Option<&Value>, Error> {
        never()
    }
    fn set(&mut self, _: &[u8], _: Value) -> Result<(), Error> {
        never()
    }
    fn delete(&mut self, _: &[u8]) -> Result<bool, Error> {
        never()
    }
    fn scan(&mut self, _: &ScanRequest) -> Result<Vec<(Vec<u8>, Value)>, Error> {
        never()
    }
    fn keys(&mut self, _: u16, _: &[u8], _: Option<&[u8]>, _: usize) -> Result<Vec<Vec<u8>>, Error> {
        never()
    }
    fn operate(&mut self, _: BuiltInCall<'_>) -> Result<OperationId, Error> {
        never()
    }
    fn call(&mut self, _: NestedCall) -> Result<OperationId, Error> {
        never()
    }
    fn send(&mut self, _: Message) -> Result<Option<String>, Error> {
        never()
    }
    fn signal(&mut self, _: &str, _: &str, _: Bytes) -> Result<(), Error> {
        never()
    }
    fn offload(&mut self, _: Offload) -> Result<OperationId, Error> {
        never()
    }
    fn fetch(&mut self, _: FetchRequest) -> Result<OperationId, Error> {
        never()
    }
    fn now(&self) -> UnixMillis {
        UnixMillis(0)
    }
    fn random(&mut self) -> u64 {
        0
    }
    fn log(&mut self, _: LogLevel, _: &str) {}
}

struct Bench {
    engines: Engines,
    told: Rc<RefCell<Vec<String>>>,
}

impl Bench {
    fn new() -> Self {
        let told: Rc<RefCell<Vec<String>>> = Rc::default();
        let engine = |name| Told { name, told: Rc::clone(&told) };
        let engines = Engines::new(Rc::new(engine("js"))).with("keys", engine("keys")).with("files", engine("files"));
        Self { engines, told }
    }

    fn load(&self, program: u32, app: &str, is_broken: bool) -> Result<(), Error> {
        let app = App { is_kept: is_broken, ..App::new(Name::new(app).expect("a name")) };
        self.engines.load(Program(program), &app)
    }

    fn start(&self, activation: u32, program: u32, input: &[u8]) -> TurnResult {
        let id = HandlerId { program: Program(program), service: 0, handler: 0 };
        self.engines.start(ActivationId(activation), Start::Handler { id, key: b"k", input }, &mut NoHost)
    }

    fn resume(&self, activation: u32, goes_on: bool) -> TurnResult {
        let result = if goes_on { Ok(Bytes::new()) } else { never() };
        self.engines.resume(ActivationId(activation), OperationId(1), result, &mut NoHost)
    }

    /// What the engines were told since the last look.
    fn told(&self) -> Vec<String> {
        self.told.take()
    }
}

#[test]
fn an_app_goes_to_the_engine_of_its_name_or_to_that_of_all_others() {
    let bench = Bench::new();
    for (program, app) in [(1, "shop"), (7, "files"), (3, "keys")] {
        bench.load(program, app, false).expect("loads");
    }
    assert_eq!(bench.told(), ["js loads 1", "files loads 7", "keys loads 3"]);
    for (program, name) in [(1, "js"), (7, "files"), (3, "keys"), (4, "js"), (u32::MAX, "js")] {
        let (engines, program) = (&bench.engines, Program(program));
        let query = HandlerId { program, service: 0, handler: 0 };
        engines.services(program);
        engines.sweeps(program);
        assert!(engines.drops(program, "s", "h"));
        engines.begun_again(program, "s", Bytes::new());
        engines.close(program);
        engines.reopen(program);
        assert!(engines.answer(query, b"", &mut NoHost).is_none());
        engines.unload(program);
        let asked = ["services", "sweeps", "drops", "begins again", "closes", "reopens", "answers", "unloads"];
        assert_eq!(bench.told(), asked.map(|what| format!("{name} {what} {}", program.0)));
    }
    // What comes too late for a program is not taken for another engine's.
    bench.start(0, 7, b"");
    assert_eq!(bench.told(), ["files starts 0"]);
}

#[test]
fn a_refused_program_belongs_to_nobody() {
    let bench = Bench::new();
    assert!(bench.load(2, "keys", true).is_err());
    bench.start(0, 2, b"");
    assert_eq!(bench.told(), ["keys loads 2", "js starts 0"]);
}

#[test]
fn an_activation_stays_with_its_engine_until_it_ends() {
    let bench = Bench::new();
    bench.load(1, "shop", false).expect("loads");
    bench.load(2, "keys", false).expect("loads");
    bench.told();
    assert!(matches!(bench.start(5, 2, b"wait"), TurnResult::Waiting));
    assert!(matches!(bench.start(4, 1, b"wait"), TurnResult::Waiting));
    assert!(matches!(bench.resume(5, true), TurnResult::Waiting));
    bench.resume(4, true);
    assert_eq!(bench.told(), ["keys starts 5", "js starts 4", "keys resumes 5", "js resumes 4"]);
    // It ends, and its number is another one's.
    bench.resume(5, false);
    bench.start(5, 1, b"wait");
    bench.resume(5, true);
    bench.engines.cancel(ActivationId(5));
    assert_eq!(bench.told(), ["keys resumes 5", "js starts 5", "js resumes 5", "js cancels 5"]);
    bench.start(5, 2, b"wait");
    bench.engines.cancel(ActivationId(5));
    bench.start(5, 1, b"wait");
    bench.resume(5, true);
    assert_eq!(bench.told(), ["keys starts 5", "keys cancels 5", "js starts 5", "js resumes 5"]);
}

#[test]
fn a_number_that_was_lost_in_the_middle_of_a_turn_is_taken_over() {
    let bench = Bench::new();
    bench.load(2, "keys", false).expect("loads");
    bench.start(3, 2, b"wait");
    // The shard broke and gave the number back without a word.
    bench.start(3, 1, b"wait");
    bench.resume(3, true);
    assert_eq!(bench.told()[2..], ["js starts 3", "js resumes 3"]);
}

#[test]
fn routes_belong_to_the_engine_of_their_program() {
    let id = RouteId { program: Program(9), service: 0, route: 0 };
    let request = crate::HttpRequest {
        method: "GET",
        path: "/",
        query: "",
        parameters: &[],
        headers: std::sync::Arc::new(NoHeaders),
        body: Bytes::new(),
    };
    assert_eq!(Start::Route { id, request }.program(), Program(9));
}

struct NoHeaders;

impl crate::HeaderSource for NoHeaders {
    fn get(&self, _: &str) -> Option<&str> {
        None
    }
    fn each(&self, _: &mut dyn FnMut(&str, &str)) {}
}
