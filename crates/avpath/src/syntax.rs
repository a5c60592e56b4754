//! The syntax of a path, as the parser makes it, and its normal form as text.

use std::fmt;

use regex::Regex;

use crate::lexer::{begins_name, continues_name};

/// The steps of one path.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Steps {
    /// Whether it begins with the record (`^`) rather than with the current value.
    pub from_root: bool,
    pub steps: Box<[PathStep]>,
}

/// One step: from values to values.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum PathStep {
    /// `.`
    Itself,
    /// `.name`. In the slot an evaluation remembers the field's number.
    Name { name: Box<str>, slot: u32 },
    /// `.*`
    Members,
    /// `..`: the value and all within it.
    Descendants,
    /// `..name`
    Named(Box<str>),
    /// `..*`: all within the value.
    Within,
    /// `[*]`
    All,
    /// `[3]`, `[-1]`
    At(i64),
    /// `[1:3]`, half-open.
    Slice(Option<i64>, Option<i64>),
    /// `{…}`
    Filter(Box<Expression>),
    /// `("a"|~"b.*")`
    Keys(Box<[Key]>),
    /// `(.a|.b)`
    Either(Box<[Steps]>),
}

#[derive(Clone, Debug)]
pub(crate) enum Key {
    Text(Box<str>),
    /// As written, and compiled so that it matches whole keys.
    Pattern(Box<str>, Regex),
}

impl Key {
    pub(crate) fn matches(&self, key: &str) -> bool {
        match self {
            Self::Text(text) => **text == *key,
            Self::Pattern(_, regex) => regex.is_match(key),
        }
    }
}

impl Key {
    /// The cost of a match, in eighths of a step. A regular expression takes time by the key's length times its own
    /// size. Its text says little about that size if it repeats or names a class.
    pub(crate) fn cost(&self, key: &str) -> usize {
        match self {
            Self::Text(_) => 1,
            Self::Pattern(text, _) if text.contains(['{', '\\']) => 24 + 16 * key.len(),
            Self::Pattern(text, _) => 24 + key.len() * (1 + text.len() / 16),
        }
    }
}

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Text(a), Self::Text(b)) | (Self::Pattern(a, _), Self::Pattern(b, _)) => a == b,
            _ => false,
        }
    }
}

/// The text between `{` and `}`, and its parts.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Expression {
    Literal(Literal),
    /// `$name`, by its number in the path.
    Parameter(u32),
    Path(Steps),
    Not(Box<Expression>),
    Negate(Box<Expression>),
    /// `&&`
    And(Box<[Expression]>),
    /// `||`
    Or(Box<[Expression]>),
    /// Operators of one level, from left to right. It is flat, so that no tree grows with a text's length.
    Chain(Box<Expression>, Box<[(Operator, Expression)]>),
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Literal {
    Null,
    Boolean(bool),
    Integer(i64),
    Float(f64),
    Text(Box<str>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operator {
    Compare(Comparator),
    Calculate(Arithmetic),
}

/// How two values are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Comparator {
    /// `==`: equal. Strings compare without case, a number and a string by the number that the string is.
    Equal,
    /// `!=`: not `==`.
    NotEqual,
    /// `===`: equal and of the same kind.
    Same,
    /// `!==`: not `===`.
    NotSame,
    /// `<`
    Less,
    /// `<=`
    LessOrEqual,
    /// `>`
    Greater,
    /// `>=`
    GreaterOrEqual,
    /// `^=`: begins with, without case.
    StartsWith,
    /// `^==`: begins with.
    StartsWithExactly,
    /// `$=`: ends with, without case.
    EndsWith,
    /// `$==`: ends with.
    EndsWithExactly,
    /// `*=`: contains, without case.
    Contains,
    /// `*==`: contains.
    ContainsExactly,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arithmetic {
    Add,
    Subtract,
    Multiply,
    Divide,
    Remainder,
}

impl Comparator {
    /// As written.
    #[must_use]
    pub fn symbol(self) -> &'static str {
        match self {
            Self::Equal => "==",
            Self::NotEqual => "!=",
            Self::Same => "===",
            Self::NotSame => "!==",
            Self::Less => "<",
            Self::LessOrEqual => "<=",
            Self::Greater => ">",
            Self::GreaterOrEqual => ">=",
            Self::StartsWith => "^=",
            Self::StartsWithExactly => "^==",
            Self::EndsWith => "$=",
            Self::EndsWithExactly => "$==",
            Self::Contains => "*=",
            Self::ContainsExactly => "*==",
        }
    }

    /// The comparator that says the same if its sides are exchanged.
    pub(crate) fn mirrored(self) -> Option<Self> {
        match self {
            Self::Equal | Self::NotEqual | Self::Same | Self::NotSame => Some(self),
            Self::Less => Some(Self::Greater),
            Self::LessOrEqual => Some(Self::GreaterOrEqual),
            Self::Greater => Some(Self::Less),
            Self::GreaterOrEqual => Some(Self::LessOrEqual),
            _ => None,
        }
    }
}

/// Operators of one level are one chain; later levels bind closer.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Level {
    Equality,
    Relation,
    Sum,
    Product,
}

impl Operator {
    fn level(self) -> Level {
        use Comparator::{Greater, GreaterOrEqual, Less, LessOrEqual};
        match self {
            Self::Compare(Less | LessOrEqual | Greater | GreaterOrEqual) => Level::Relation,
            Self::Compare(_) => Level::Equality,
            Self::Calculate(Arithmetic::Add | Arithmetic::Subtract) => Level::Sum,
            Self::Calculate(_) => Level::Product,
        }
    }

    pub(crate) fn symbol(self) -> &'static str {
        match self {
            Self::Compare(comparator) => comparator.symbol(),
            Self::Calculate(Arithmetic::Add) => "+",
            Self::Calculate(Arithmetic::Subtract) => "-",
            Self::Calculate(Arithmetic::Multiply) => "*",
            Self::Calculate(Arithmetic::Divide) => "/",
            Self::Calculate(Arithmetic::Remainder) => "%",
        }
    }
}

impl Steps {
    /// Names and `[*]` only, at least one name.
    pub(crate) fn is_simple(&self) -> bool {
        matches!(self.steps.first(), Some(PathStep::Name { .. }))
            && self.steps.iter().all(|step| matches!(step, PathStep::Name { .. } | PathStep::All))
    }
}

/// Writes syntax back as text. Reading that text gives the same syntax again.
pub(crate) struct Writer<'a> {
    /// Names of `$name`, by number.
    pub parameters: &'a [Box<str>],
}

impl Writer<'_> {
    pub(crate) fn steps(&self, out: &mut String, path: &Steps) {
        if path.from_root {
            out.push('^');
        }
        for step in &path.steps {
            self.step(out, step);
        }
    }

    fn step(&self, out: &mut String, step: &PathStep) {
        match step {
            PathStep::Itself => out.push('.'),
            PathStep::Name { name, .. } => write_name(out, ".", name),
            PathStep::Members => out.push_str(".*"),
            PathStep::Descendants => out.push_str(".."),
            PathStep::Named(name) => write_name(out, "..", name),
            PathStep::Within => out.push_str("..*"),
            PathStep::All => out.push_str("[*]"),
            PathStep::At(index) => write(out, format_args!("[{index}]")),
            PathStep::Slice(from, to) => {
                let bound = |bound: &Option<i64>| bound.map(|bound| bound.to_string()).unwrap_or_default();
                write(out, format_args!("[{}:{}]", bound(from), bound(to)));
            }
            PathStep::Filter(expression) => {
                out.push('{');
                self.expression(out, expression);
                out.push('}');
            }
            PathStep::Keys(keys) => join(out, keys, |out, key| match key {
                Key::Text(text) => write_text(out, text),
                Key::Pattern(text, _) => {
                    out.push_str("~\"");
                    write_pattern(out, text);
                    out.push('"');
                }
            }),
            PathStep::Either(paths) => join(out, paths, |out, path| self.steps(out, path)),
        }
    }

    pub(crate) fn expression(&self, out: &mut String, expression: &Expression) {
        match expression {
            Expression::Literal(literal) => write_literal(out, literal),
            Expression::Parameter(number) => {
                write(out, format_args!("${}", self.parameters.get(*number as usize).map_or("", |name| name)));
            }
            Expression::Path(path) => self.steps(out, path),
            Expression::Not(operand) => {
                out.push('!');
                self.operand(out, operand);
            }
            Expression::Negate(operand) => {
                out.push('-');
                self.operand(out, operand);
            }
            Expression::And(operands) => self.between(out, " && ", operands),
            Expression::Or(operands) => self.between(out, " || ", operands),
            Expression::Chain(first, rest) => {
                let level = rest.first().map_or(Level::Equality, |(operator, _)| operator.level());
                self.side(out, level, first);
                for (operator, operand) in rest {
                    write(out, format_args!(" {} ", operator.symbol()));
                    self.side(out, level, operand);
                }
            }
        }
    }

    fn between(&self, out: &mut String, operator: &str, operands: &[Expression]) {
        for (index, operand) in operands.iter().enumerate() {
            if index > 0 {
                out.push_str(operator);
            }
            // Comparisons bind closer, so they need no parentheses.
            if matches!(operand, Expression::Chain(..)) {
                self.expression(out, operand)
            } else {
                self.operand(out, operand)
            }
        }
    }

    /// One side of operators of a level. Operators that bind closer need no parentheses.
    fn side(&self, out: &mut String, level: Level, operand: &Expression) {
        match operand {
            Expression::Chain(_, rest) if rest.first().is_some_and(|(operator, _)| operator.level() > level) => {
                self.expression(out, operand);
            }
            _ => self.operand(out, operand),
        }
    }

    /// Writes parentheses unless it is one thing.
    fn operand(&self, out: &mut String, operand: &Expression) {
        let compound = matches!(operand, Expression::And(_) | Expression::Or(_) | Expression::Chain(..));
        // A number that is negated is not a negative number: `-(5)`.
        let number = matches!(operand, Expression::Literal(Literal::Integer(_) | Literal::Float(_)));
        if compound || (number && out.ends_with('-')) {
            out.push('(');
            self.expression(out, operand);
            out.push(')');
        } else {
            self.expression(out, operand);
        }
    }
}

fn join<T>(out: &mut String, items: &[T], write_one: impl Fn(&mut String, &T)) {
    out.push('(');
    for (index, item) in items.iter().enumerate() {
        if index > 0 {
            out.push('|');
        }
        write_one(out, item);
    }
    out.push(')');
}

fn write(out: &mut String, arguments: fmt::Arguments<'_>) {
    fmt::Write::write_fmt(out, arguments).expect("writing to a string cannot fail");
}

fn write_name(out: &mut String, dots: &str, name: &str) {
    out.push_str(dots);
    if name.starts_with(begins_name) && name.chars().all(continues_name) {
        out.push_str(name);
    } else {
        write_text(out, name);
    }
}

fn write_literal(out: &mut String, literal: &Literal) {
    match literal {
        Literal::Null => out.push_str("null"),
        Literal::Boolean(value) => write(out, format_args!("{value}")),
        Literal::Integer(value) => write(out, format_args!("{value}")),
        // Debug keeps the fraction or exponent that makes it a float, and is exact.
        Literal::Float(value) => write(out, format_args!("{value:?}")),
        Literal::Text(text) => write_text(out, text),
    }
}

/// A JSON string.
fn write_text(out: &mut String, text: &str) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{0}'..='\u{1f}' => write(out, format_args!("\\u{:04x}", u32::from(c))),
            _ => out.push(c),
        }
    }
    out.push('"');
}

/// Escapes only quotes without a backslash before them; see the lexer.
fn write_pattern(out: &mut String, text: &str) {
    let mut characters = text.chars();
    while let Some(c) = characters.next() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => {
                out.push(c);
                out.extend(characters.next());
            }
            _ => out.push(c),
        }
    }
}
