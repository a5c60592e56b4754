//! The plans of a resolution, and how two schemas lead to them.

use crate::logical;
use crate::parse::branch_name;
use crate::path::{push_field, push_key};
use crate::resolve::Incompatibility;
use crate::schema::{Field, FullName, Kind, Logical, Node, NodeId, Schema};
use millrace_base::limits;
use std::collections::{BTreeMap, VecDeque};

/// Pairs of types that are compared. Two types that are recursive over different numbers of types meet in as many pairs
/// as the product of those numbers.
const PAIRS: usize = 4 * limits::SCHEMA_NODES;

/// Incompatibilities that are reported.
const FAILURES: usize = 100;

/// How often the plans are searched for those that only copy.
const COPY_ROUNDS: usize = 100;

/// A plan of one resolution. The first is the root's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PlanId(pub(crate) usize);

/// What to do with a value.
#[derive(Clone, Debug)]
pub(crate) enum Plan {
    /// Take its bytes; the node is the writer's.
    Copy(NodeId),
    LongToFloat,
    LongToDouble,
    FloatToDouble,
    BytesToString,
    /// Take the number, if it fits.
    ToDecimal {
        size: Option<usize>,
        precision: u32,
    },
    /// For each of the writer's symbols, the reader's.
    Enum(Box<[Option<u32>]>),
    Array(PlanId),
    Map(PlanId),
    /// In the order of both.
    Record(Box<[FieldStep]>),
    /// With all of the writer's fields.
    Reordered {
        fields: Box<[NodeId]>,
        steps: Box<[FieldStep]>,
    },
    /// For each of the writer's branches.
    FromUnion(Box<[PlanId]>),
    /// Write this branch before it.
    ToUnion(u32, PlanId),
    /// It cannot be read.
    Fail(Box<str>),
    /// Not computed yet.
    Open,
}

/// What to do for a field.
#[derive(Clone, Debug)]
pub(crate) enum FieldStep {
    /// The reader has no such field.
    Skip(NodeId),
    /// The next value becomes the field of this name.
    Apply(Box<str>, PlanId),
    /// The writer has no such field.
    Default(Box<[u8]>),
    /// Go to the writer's field of this number.
    Jump(usize),
}

/// Where a pair was met first.
enum PairOrigin {
    Root,
    Field(PlanId, Box<str>),
    Item(PlanId),
    Entry(PlanId),
    Branch(PlanId),
}

pub(crate) struct Built {
    pub(crate) plans: Vec<Plan>,
    pub(crate) failures: Vec<Incompatibility>,
    failed: BTreeMap<usize, usize>,
}

pub(crate) fn build(writer: &Schema, reader: &Schema) -> Built {
    let mut builder = Builder {
        writer,
        reader,
        plans: Vec::new(),
        places: Vec::new(),
        by_pair: BTreeMap::new(),
        queue: VecDeque::new(),
        failures: Vec::new(),
        failed: BTreeMap::new(),
    };
    builder.pair(writer.root(), reader.root(), PairOrigin::Root);
    while let Some((plan, old, new)) = builder.queue.pop_front() {
        builder.plans[plan.0] = builder.compare(plan, old, new);
    }
    builder.find_copies();
    Built { plans: builder.plans, failures: builder.failures, failed: builder.failed }
}

impl Built {
    /// The failure that every value meets: at the root, or in records of which it consists.
    pub(crate) fn failure_of_all(&self) -> Option<Incompatibility> {
        let mut rest = vec![PlanId(0)];
        let mut seen = vec![false; self.plans.len()];
        while let Some(id) = rest.pop() {
            if std::mem::replace(&mut seen[id.0], true) {
                continue;
            }
            match &self.plans[id.0] {
                Plan::Record(steps) | Plan::Reordered { steps, .. } => rest.extend(
                    steps
                        .iter()
                        .filter_map(|step| if let FieldStep::Apply(_, plan) = step { Some(*plan) } else { None }),
                ),
                Plan::ToUnion(_, plan) => rest.push(*plan),
                Plan::Fail(message) => {
                    let told = self.failed.get(&id.0).and_then(|index| self.failures.get(*index)).cloned();
                    let untold = || Incompatibility { path: ".".to_owned(), message: message.to_string() };
                    return Some(told.unwrap_or_else(untold));
                }
                _ => (),
            }
        }
        None
    }
}

struct Builder<'s> {
    writer: &'s Schema,
    reader: &'s Schema,
    plans: Vec<Plan>,
    places: Vec<PairOrigin>,
    by_pair: BTreeMap<(NodeId, NodeId), PlanId>,
    queue: VecDeque<(PlanId, NodeId, NodeId)>,
    failures: Vec<Incompatibility>,
    failed: BTreeMap<usize, usize>,
}

/// How well a writer's type suits a reader's.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Match {
    Promoted,
    SameShortName,
    Alias,
    Same,
}

impl Builder<'_> {
    fn pair(&mut self, writer: NodeId, reader: NodeId, place: PairOrigin) -> PlanId {
        if let Some(plan) = self.by_pair.get(&(writer, reader)) {
            return *plan;
        }
        let plan = PlanId(self.plans.len());
        self.plans.push(Plan::Open);
        self.places.push(place);
        self.by_pair.insert((writer, reader), plan);
        if plan.0 < PAIRS {
            self.queue.push_back((plan, writer, reader));
        } else {
            self.plans[plan.0] = self.fail(plan, "the schemas are too large to be compared".to_owned());
        }
        plan
    }

    /// A plan of its own for a branch that the reader does not have.
    fn failing(&mut self, place: PairOrigin, message: String) -> PlanId {
        let plan = PlanId(self.plans.len());
        self.plans.push(Plan::Open);
        self.places.push(place);
        self.plans[plan.0] = self.fail(plan, message);
        plan
    }

    fn fail(&mut self, plan: PlanId, message: String) -> Plan {
        if self.failures.len() < FAILURES {
            self.failed.insert(plan.0, self.failures.len());
            self.failures.push(Incompatibility { path: self.path(plan), message: message.clone() });
        }
        Plan::Fail(message.into())
    }

    fn path(&self, plan: PlanId) -> String {
        let mut steps = Vec::new();
        let mut at = plan;
        loop {
            let place = &self.places[at.0];
            at = match place {
                PairOrigin::Root => break,
                PairOrigin::Field(above, _)
                | PairOrigin::Item(above)
                | PairOrigin::Entry(above)
                | PairOrigin::Branch(above) => *above,
            };
            steps.push(place);
        }
        let mut path = String::new();
        for step in steps.iter().rev() {
            match step {
                PairOrigin::Field(_, name) => push_field(&mut path, name),
                PairOrigin::Item(_) => path.push_str("[*]"),
                PairOrigin::Entry(_) => push_key(&mut path, "*"),
                PairOrigin::Branch(_) | PairOrigin::Root => (),
            }
        }
        if path.is_empty() { ".".to_owned() } else { path }
    }

    fn compare(&mut self, plan: PlanId, old: NodeId, new: NodeId) -> Plan {
        let (writer, reader) = (self.writer, self.reader);
        match (writer.kind(old), reader.kind(new)) {
            (Kind::Union(branches), _) => {
                let plans = branches.iter().map(|branch| match reader.kind(new) {
                    Kind::Union(_) => match self.best_branch(*branch, new) {
                        // A pair of its own stands for the branch in the reader's union.
                        Some(_) => self.pair(*branch, new, PairOrigin::Branch(plan)),
                        None => self.failing(PairOrigin::Branch(plan), self.no_branch(*branch)),
                    },
                    _ => self.pair(*branch, new, PairOrigin::Branch(plan)),
                });
                Plan::FromUnion(plans.collect())
            }
            (_, Kind::Union(branches)) => match self.best_branch(old, new) {
                Some(index) => {
                    let below = self.pair(old, branches[index], PairOrigin::Branch(plan));
                    Plan::ToUnion(u32::try_from(index).unwrap_or(u32::MAX), below)
                }
                None => self.fail(plan, self.no_branch(old)),
            },
            _ => match self.matches(old, new) {
                Some(_) if !logical::keeps_meaning(writer.node(old), reader.node(new)) => {
                    let message = format!(
                        "the writer's {} cannot be read as {}: its values would mean something else",
                        full_name(writer.node(old)),
                        full_name(reader.node(new)),
                    );
                    self.fail(plan, message)
                }
                Some(_) => self.compare_matching(plan, old, new),
                None => self.fail(plan, self.mismatch(old, new)),
            },
        }
    }

    fn no_branch(&self, old: NodeId) -> String {
        format!("the reader's union has no branch for the writer's {}", branch_name(self.writer.kind(old)))
    }

    fn mismatch(&self, old: NodeId, new: NodeId) -> String {
        let (old, new) = (self.writer.kind(old), self.reader.kind(new));
        match (old, new) {
            (Kind::Fixed { size: old, .. }, Kind::Fixed { size: new, .. }) if old != new => {
                format!("the writer's fixed has {old} bytes, the reader's {new}")
            }
            _ => format!("the writer's {} cannot be read as {}", branch_name(old), branch_name(new)),
        }
    }

    fn best_branch(&self, old: NodeId, union: NodeId) -> Option<usize> {
        let Kind::Union(branches) = self.reader.kind(union) else { return None };
        let matching = branches.iter().enumerate().filter_map(|(index, new)| Some((self.matches(old, *new)?, index)));
        // The first of the best.
        matching.reduce(|best, next| if next.0 > best.0 { next } else { best }).map(|(_, index)| index)
    }

    fn names_match(&self, writer: &FullName, reader: &FullName, new: NodeId) -> Option<Match> {
        if writer == reader {
            return Some(Match::Same);
        }
        if self.reader.node(new).aliases.contains(writer) {
            return Some(Match::Alias);
        }
        (writer.short() == reader.short()).then_some(Match::SameShortName)
    }

    /// Whether a reader's type can stand for a writer's, as far as their outsides tell. Neither is a union.
    fn matches(&self, old: NodeId, new: NodeId) -> Option<Match> {
        match (self.writer.kind(old), self.reader.kind(new)) {
            (Kind::Record { name: old, .. }, Kind::Record { name, .. })
            | (Kind::Enum { name: old, .. }, Kind::Enum { name, .. }) => self.names_match(old, name, new),
            (Kind::Fixed { name: old, size: old_size }, Kind::Fixed { name, size }) if old_size == size => {
                self.names_match(old, name, new)
            }
            (Kind::Null, Kind::Null)
            | (Kind::Boolean, Kind::Boolean)
            | (Kind::Int, Kind::Int)
            | (Kind::Long, Kind::Long)
            | (Kind::Float, Kind::Float)
            | (Kind::Double, Kind::Double)
            | (Kind::Bytes, Kind::Bytes)
            | (Kind::String, Kind::String)
            | (Kind::Array(_), Kind::Array(_))
            | (Kind::Map(_), Kind::Map(_)) => Some(Match::Same),
            (Kind::Int, Kind::Long | Kind::Float | Kind::Double)
            | (Kind::Long, Kind::Float | Kind::Double)
            | (Kind::Float, Kind::Double)
            | (Kind::String, Kind::Bytes)
            | (Kind::Bytes, Kind::String) => Some(Match::Promoted),
            _ => None,
        }
    }

    fn compare_matching(&mut self, plan: PlanId, old: NodeId, new: NodeId) -> Plan {
        let (writer, reader) = (self.writer, self.reader);
        match (writer.kind(old), reader.kind(new)) {
            (Kind::Int | Kind::Long, Kind::Float) => Plan::LongToFloat,
            (Kind::Int | Kind::Long, Kind::Double) => Plan::LongToDouble,
            (Kind::Float, Kind::Double) => Plan::FloatToDouble,
            (Kind::Bytes, Kind::String) => Plan::BytesToString,
            (_, Kind::Bytes | Kind::Fixed { .. }) => self.compare_bytes(plan, old, new),
            (Kind::Enum { symbols: old_symbols, .. }, Kind::Enum { symbols, default, .. }) => {
                let default = default.filter(|default| (*default as usize) < symbols.len());
                let find = |symbol: &str| reader.find(new, symbol).and_then(|index| u32::try_from(index).ok());
                let mapped: Box<[_]> = old_symbols.iter().map(|symbol| find(symbol).or(default)).collect();
                let mut missing = old_symbols.iter().zip(&mapped).filter(|(_, index)| index.is_none());
                if let Some((symbol, _)) = missing.next() {
                    let more = match missing.count() {
                        0 => String::new(),
                        more => format!(" and {more} more"),
                    };
                    let message = format!("the reader's enum has no symbol {symbol:?}{more}, and no default");
                    drop(self.fail(plan, message));
                }
                // Values of other symbols can still be read.
                Plan::Enum(mapped)
            }
            (Kind::Array(old), Kind::Array(new)) => Plan::Array(self.pair(*old, *new, PairOrigin::Item(plan))),
            (Kind::Map(old), Kind::Map(new)) => Plan::Map(self.pair(*old, *new, PairOrigin::Entry(plan))),
            (Kind::Record { fields: old_fields, .. }, Kind::Record { fields, .. }) => {
                self.compare_records(plan, (old, old_fields), (new, fields))
            }
            _ => Plan::Copy(old),
        }
    }

    /// Values that become `bytes` or `fixed`, perhaps a decimal.
    fn compare_bytes(&mut self, plan: PlanId, old: NodeId, new: NodeId) -> Plan {
        let decimal = |schema: &Schema, node| match schema.node(node).logical {
            Some(Logical::Decimal { precision, scale }) => Some((precision, scale)),
            _ => None,
        };
        let size = if let Kind::Fixed { size, .. } = self.reader.kind(new) { Some(*size) } else { None };
        match (decimal(self.writer, old), decimal(self.reader, new)) {
            (Some((_, old)), Some((_, new))) if old != new => {
                self.fail(plan, format!("the writer's decimal has {old} digits behind the point, the reader's {new}"))
            }
            (Some((old, _)), Some((new, _))) if old > new => {
                drop(self.fail(plan, format!("the writer's decimal has {old} digits, the reader's {new}")));
                Plan::ToDecimal { size, precision: new }
            }
            (None, Some((precision, _))) => Plan::ToDecimal { size, precision },
            _ => Plan::Copy(old),
        }
    }

    fn compare_records(
        &mut self,
        plan: PlanId,
        (old, old_fields): (NodeId, &[Field]),
        (_, fields): (NodeId, &[Field]),
    ) -> Plan {
        let mut taken = vec![false; old_fields.len()];
        let mut sources = Vec::with_capacity(fields.len());
        for field in fields {
            let names = std::iter::once(&field.name).chain(&field.aliases);
            let source = names.filter_map(|name| self.writer.find(old, name)).find(|index| !taken[*index]);
            if let Some(index) = source {
                taken[index] = true;
            }
            sources.push(source);
        }
        let mut failure = None;
        let mut steps = Vec::with_capacity(fields.len());
        let is_ordered = sources.iter().flatten().is_sorted();
        let mut next = 0;
        for (field, source) in fields.iter().zip(&sources) {
            match (source, &field.default) {
                (Some(index), _) => {
                    if is_ordered {
                        steps.extend(old_fields[next..*index].iter().map(|field| FieldStep::Skip(field.node)));
                        next = index + 1;
                    } else {
                        steps.push(FieldStep::Jump(*index));
                    }
                    let place = PairOrigin::Field(plan, field.name.clone());
                    steps.push(FieldStep::Apply(
                        field.name.clone(),
                        self.pair(old_fields[*index].node, field.node, place),
                    ));
                }
                (None, Some(default)) => steps.push(FieldStep::Default(default.clone())),
                (None, None) => {
                    let message = "the writer has no such field, and the reader no default for it".to_owned();
                    let missing = self.failing(PairOrigin::Field(plan, field.name.clone()), message.clone());
                    failure = failure.or(Some((missing, message)));
                }
            }
        }
        if let Some((missing, message)) = failure {
            if let Some(told) = self.failed.get(&missing.0).copied() {
                self.failed.insert(plan.0, told);
            }
            return Plan::Fail(message.into());
        }
        if !is_ordered {
            let fields = old_fields.iter().map(|field| field.node).collect();
            return Plan::Reordered { fields, steps: steps.into() };
        }
        steps.extend(old_fields[next..].iter().map(|field| FieldStep::Skip(field.node)));
        Plan::Record(steps.into())
    }

    /// A plan whose parts all copy copies, too. Plans count as copies until something shows otherwise.
    fn find_copies(&mut self) {
        let nodes: BTreeMap<usize, NodeId> = self.by_pair.iter().map(|((old, _), plan)| (plan.0, *old)).collect();
        let mut copies: Vec<bool> = self.plans.iter().map(is_copy_itself).collect();
        for round in 0.. {
            if round == COPY_ROUNDS {
                return;
            }
            let mut is_changed = false;
            for index in (0..self.plans.len()).rev() {
                if copies[index] && !self.parts_copy(index, &copies) {
                    copies[index] = false;
                    is_changed = true;
                }
            }
            if !is_changed {
                break;
            }
        }
        for (index, plan) in self.plans.iter_mut().enumerate() {
            if copies[index]
                && let Some(node) = nodes.get(&index)
            {
                *plan = Plan::Copy(*node);
            }
        }
    }

    fn parts_copy(&self, index: usize, copies: &[bool]) -> bool {
        match &self.plans[index] {
            Plan::Array(part) | Plan::Map(part) => copies[part.0],
            Plan::Record(steps) => steps.iter().all(|step| matches!(step, FieldStep::Apply(_, part) if copies[part.0])),
            Plan::FromUnion(branches) => branches.iter().enumerate().all(|(index, branch)| {
                // The branch keeps its number, and its value.
                matches!(self.plans[branch.0], Plan::ToUnion(to, part) if to as usize == index && copies[part.0])
            }),
            Plan::Enum(symbols) => {
                symbols.iter().enumerate().all(|(index, symbol)| symbol.is_some_and(|symbol| symbol as usize == index))
            }
            _ => true,
        }
    }
}

/// `long`, or `long (timestamp-millis)`. A type that is only `fixed` has a name of its own here, which says less.
fn full_name(node: &Node) -> String {
    let kind = match &node.kind {
        Kind::Fixed { .. } => "fixed",
        kind => branch_name(kind),
    };
    match node.logical {
        Some(logical) => format!("{kind} ({})", logical.name()),
        None => kind.to_owned(),
    }
}

fn is_copy_itself(plan: &Plan) -> bool {
    matches!(plan, Plan::Copy(_) | Plan::Array(_) | Plan::Map(_) | Plan::Record(_) | Plan::FromUnion(_) | Plan::Enum(_))
}
