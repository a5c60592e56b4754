//! The grammar, one function a rule. `docs/guide/record-paths.md` gives it to users.
//!
//! ```text
//! Path := '^'? Part*, not empty         Part := '.' [Name|String|'*'] | '..' [Name|String|'*']
//!                                             | '[' Pos ']' | '{' Or '}' | '(' Keys ')' | '(' Path ('|' Path)* ')'
//! Pos  := '*' | Int | Int? ':' Int?     Keys := Key ('|' Key)*     Key := ['~'] String
//! Or   := And ('||' And)*               And  := Eq ('&&' Eq)*
//! Eq   := Rel (('=='|'!='|'==='|'!=='|'^='|'^=='|'$='|'$=='|'*='|'*==') Rel)*
//! Rel  := Add (('<'|'>'|'<='|'>=') Add)*
//! Add  := Mul (('+'|'-') Mul)*          Mul := Unary (('*'|'/'|'%') Unary)*
//! Unary := ('!'|'-') Unary | Prim       Prim := literal | '*' | $name | Path | '(' Or ')'
//! ```

use millrace_base::limits;
use regex::{Regex, RegexBuilder};

use crate::PathError;
use crate::lexer::{Lexer, Token};
use crate::syntax::{Arithmetic, Comparator, Expression, Key, Literal, Operator, PathStep, Steps};

/// The parsed syntax, with the names in it.
pub(crate) struct Parsed<T> {
    pub syntax: T,
    /// How many names have a slot.
    pub slots: u32,
    /// Names of parameters, in the order of their numbers.
    pub parameters: Box<[Box<str>]>,
}

pub(crate) fn path(text: &str) -> Result<Parsed<Steps>, PathError> {
    whole(text, |parser| parser.path("a path, which begins with `.`, `..`, `^` or `(`"))
}

pub(crate) fn predicate(text: &str) -> Result<Parsed<Expression>, PathError> {
    whole(text, |parser| parser.or())
}

fn whole<T>(text: &str, rule: impl FnOnce(&mut Parser<'_>) -> Result<T, PathError>) -> Result<Parsed<T>, PathError> {
    if text.len() > limits::PATH_BYTES {
        let position = text.char_indices().take_while(|(at, _)| *at < limits::PATH_BYTES).count() + 1;
        return Err(PathError { position, message: format!("longer than {} bytes", limits::PATH_BYTES) });
    }
    let mut lexer = Lexer::new(text);
    let (at, token) = lexer.next()?;
    let mut parser = Parser { lexer, token, at, end: 0, depth: 0, slots: 0, patterns: 0, parameters: Vec::new() };
    let syntax = rule(&mut parser)?;
    match parser.token {
        Token::End => Ok(Parsed { syntax, slots: parser.slots, parameters: parser.parameters.into() }),
        _ => Err(parser.expected("an operator, a further step or the end")),
    }
}

const EQUALITY: [(&str, Operator); 10] = [
    ("==", Operator::Compare(Comparator::Equal)),
    ("!=", Operator::Compare(Comparator::NotEqual)),
    ("===", Operator::Compare(Comparator::Same)),
    ("!==", Operator::Compare(Comparator::NotSame)),
    ("^=", Operator::Compare(Comparator::StartsWith)),
    ("^==", Operator::Compare(Comparator::StartsWithExactly)),
    ("$=", Operator::Compare(Comparator::EndsWith)),
    ("$==", Operator::Compare(Comparator::EndsWithExactly)),
    ("*=", Operator::Compare(Comparator::Contains)),
    ("*==", Operator::Compare(Comparator::ContainsExactly)),
];

const RELATION: [(&str, Operator); 4] = [
    ("<", Operator::Compare(Comparator::Less)),
    (">", Operator::Compare(Comparator::Greater)),
    ("<=", Operator::Compare(Comparator::LessOrEqual)),
    (">=", Operator::Compare(Comparator::GreaterOrEqual)),
];

const SUM: [(&str, Operator); 2] =
    [("+", Operator::Calculate(Arithmetic::Add)), ("-", Operator::Calculate(Arithmetic::Subtract))];

const PRODUCT: [(&str, Operator); 3] = [
    ("*", Operator::Calculate(Arithmetic::Multiply)),
    ("/", Operator::Calculate(Arithmetic::Divide)),
    ("%", Operator::Calculate(Arithmetic::Remainder)),
];

struct Parser<'t> {
    lexer: Lexer<'t>,
    /// The token that comes next.
    token: Token<'t>,
    /// Where it begins, in bytes.
    at: usize,
    /// Where the token before it ended.
    end: usize,
    depth: usize,
    slots: u32,
    patterns: usize,
    parameters: Vec<Box<str>>,
}

type Parse<T> = Result<T, PathError>;

impl<'t> Parser<'t> {
    fn expected(&self, what: &str) -> PathError {
        let found = match &self.token {
            Token::Name(name) => format!("`{name}`"),
            Token::Text(_) => "a string".to_owned(),
            Token::Pattern(_) => "a regular expression".to_owned(),
            Token::Integer(number) | Token::Float(number) => format!("`{number}`"),
            Token::Parameter(name) => format!("`${name}`"),
            Token::Symbol(symbol) => format!("`{symbol}`"),
            Token::End => "the end".to_owned(),
        };
        self.lexer.error(self.at, format!("expected {what}, found {found}"))
    }

    fn advance(&mut self) -> Parse<Token<'t>> {
        self.end = self.lexer.position();
        let (at, token) = self.lexer.next()?;
        self.at = at;
        Ok(std::mem::replace(&mut self.token, token))
    }

    fn is(&self, symbol: &str) -> bool {
        matches!(self.token, Token::Symbol(here) if here == symbol)
    }

    /// Takes the symbol if it is there.
    fn takes(&mut self, symbol: &str) -> Parse<bool> {
        let there = self.is(symbol);
        if there {
            self.advance()?;
        }
        Ok(there)
    }

    fn expect(&mut self, symbol: &str) -> Parse<()> {
        if self.takes(symbol)? { Ok(()) } else { Err(self.expected(&format!("`{symbol}`"))) }
    }

    /// Recursion happens only in here, so the stack needed is bounded.
    fn deeper<T>(&mut self, rule: impl FnOnce(&mut Self) -> Parse<T>) -> Parse<T> {
        if self.depth == limits::PATH_DEPTH {
            return Err(self.lexer.error(self.at, format!("nested deeper than {}", limits::PATH_DEPTH)));
        }
        self.depth += 1;
        let read = rule(self)?;
        self.depth -= 1;
        Ok(read)
    }

    fn path(&mut self, expected: &str) -> Parse<Steps> {
        let from_root = self.takes("^")?;
        if !from_root && ![".", "..", "("].iter().any(|symbol| self.is(symbol)) {
            return Err(self.expected(expected));
        }
        self.parts(from_root, Vec::new())
    }

    /// The parts that follow those already read.
    fn parts(&mut self, from_root: bool, mut steps: Vec<PathStep>) -> Parse<Steps> {
        loop {
            let step = match self.token {
                Token::Symbol(".") => self.child()?,
                Token::Symbol("..") => self.descendant()?,
                Token::Symbol("[") => self.position()?,
                Token::Symbol("{") => self.filter()?,
                Token::Symbol("(") => self.deeper(Self::keys_or_paths)?,
                _ => return Ok(Steps { from_root, steps: steps.into() }),
            };
            // `.` before another dot means nothing. If it is dropped, there is one way to write a path.
            let dotted = matches!(step, PathStep::Itself | PathStep::Name { .. } | PathStep::Members)
                || matches!(step, PathStep::Descendants | PathStep::Named(_) | PathStep::Within);
            if dotted && steps.last() == Some(&PathStep::Itself) {
                steps.pop();
            }
            steps.push(step);
        }
    }

    fn child(&mut self) -> Parse<PathStep> {
        self.advance()?;
        Ok(match self.name_or_star()? {
            Some(NameOrStar::Name(name)) => {
                self.slots += 1;
                PathStep::Name { name, slot: self.slots - 1 }
            }
            Some(NameOrStar::Star) => PathStep::Members,
            None => PathStep::Itself,
        })
    }

    fn descendant(&mut self) -> Parse<PathStep> {
        self.advance()?;
        Ok(match self.name_or_star()? {
            Some(NameOrStar::Name(name)) => PathStep::Named(name),
            Some(NameOrStar::Star) => PathStep::Within,
            None => PathStep::Descendants,
        })
    }

    fn name_or_star(&mut self) -> Parse<Option<NameOrStar>> {
        // With a space between, `. * 2` is a product.
        let adjacent = self.at == self.end;
        match &self.token {
            Token::Name(_) | Token::Text(_) => match self.advance()? {
                Token::Name(name) => Ok(Some(NameOrStar::Name(name.into()))),
                Token::Text(name) => Ok(Some(NameOrStar::Name(name.into()))),
                _ => Ok(None),
            },
            Token::Symbol("*") if adjacent => {
                self.advance()?;
                Ok(Some(NameOrStar::Star))
            }
            _ => Ok(None),
        }
    }

    fn position(&mut self) -> Parse<PathStep> {
        self.advance()?;
        let step = if self.takes("*")? {
            PathStep::All
        } else if self.takes(":")? {
            PathStep::Slice(None, Some(self.index("an index after `:`")?))
        } else {
            let from = self.index("`*`, an index such as `0` or `-1`, or a slice such as `1:3`")?;
            match self.takes(":")? {
                true if self.is("]") => PathStep::Slice(Some(from), None),
                true => PathStep::Slice(Some(from), Some(self.index("an index or `]`")?)),
                false => PathStep::At(from),
            }
        };
        self.expect("]")?;
        Ok(step)
    }

    fn index(&mut self, expected: &str) -> Parse<i64> {
        let sign = if self.takes("-")? { "-" } else { "" };
        match self.token {
            Token::Integer(digits) => self.integer(sign, digits),
            _ => Err(self.expected(expected)),
        }
    }

    fn integer(&mut self, sign: &str, digits: &str) -> Parse<i64> {
        let number = format!("{sign}{digits}").parse();
        let number = number.map_err(|_| self.lexer.error(self.at, "this number has more than 64 bits"))?;
        self.advance()?;
        Ok(number)
    }

    fn filter(&mut self) -> Parse<PathStep> {
        self.advance()?;
        let expression = self.deeper(Self::or)?;
        self.expect("}")?;
        Ok(PathStep::Filter(Box::new(expression)))
    }

    fn keys_or_paths(&mut self) -> Parse<PathStep> {
        self.advance()?;
        if matches!(self.token, Token::Text(_) | Token::Pattern(_)) {
            return self.keys(Vec::new());
        }
        let first = self.path("a path or a quoted key after `(`")?;
        self.paths(first)
    }

    /// Further keys, up to the closing parenthesis.
    fn keys(&mut self, mut keys: Vec<Key>) -> Parse<PathStep> {
        while keys.is_empty() || self.takes("|")? {
            keys.push(self.key()?);
        }
        self.expect(")")?;
        Ok(PathStep::Keys(keys.into()))
    }

    fn key(&mut self) -> Parse<Key> {
        let at = self.at;
        match self.advance()? {
            Token::Text(text) => Ok(Key::Text(text.into())),
            Token::Pattern(text) => {
                self.patterns += 1;
                if self.patterns > limits::PATH_PATTERNS {
                    let message = format!("more than {} regular expressions", limits::PATH_PATTERNS);
                    return Err(self.lexer.error(at, message));
                }
                let regex = whole_key(&text).map_err(|message| self.lexer.error(at, message))?;
                Ok(Key::Pattern(text.into(), regex))
            }
            _ => Err(self.lexer.error(at, "expected a quoted key")),
        }
    }

    /// Further paths, up to the closing parenthesis.
    fn paths(&mut self, first: Steps) -> Parse<PathStep> {
        let mut paths = vec![first];
        while self.takes("|")? {
            paths.push(self.path("a path after `|`")?);
        }
        self.expect(")")?;
        Ok(PathStep::Either(paths.into()))
    }

    fn or(&mut self) -> Parse<Expression> {
        self.sequence("||", Self::and, Expression::Or)
    }

    fn and(&mut self) -> Parse<Expression> {
        self.sequence("&&", Self::equality, Expression::And)
    }

    fn sequence(
        &mut self,
        symbol: &str,
        rule: fn(&mut Self) -> Parse<Expression>,
        join: fn(Box<[Expression]>) -> Expression,
    ) -> Parse<Expression> {
        let first = rule(self)?;
        if !self.is(symbol) {
            return Ok(first);
        }
        let mut operands = vec![first];
        while self.takes(symbol)? {
            operands.push(rule(self)?);
        }
        Ok(join(operands.into()))
    }

    fn equality(&mut self) -> Parse<Expression> {
        self.chain(&EQUALITY, Self::relation)
    }

    fn relation(&mut self) -> Parse<Expression> {
        self.chain(&RELATION, Self::sum)
    }

    fn sum(&mut self) -> Parse<Expression> {
        self.chain(&SUM, Self::product)
    }

    fn product(&mut self) -> Parse<Expression> {
        self.chain(&PRODUCT, Self::unary)
    }

    fn chain(&mut self, operators: &[(&str, Operator)], rule: fn(&mut Self) -> Parse<Expression>) -> Parse<Expression> {
        let first = rule(self)?;
        let mut rest = Vec::new();
        while let Some((_, operator)) = operators.iter().find(|(symbol, _)| self.is(symbol)) {
            self.advance()?;
            rest.push((*operator, rule(self)?));
        }
        Ok(if rest.is_empty() { first } else { Expression::Chain(Box::new(first), rest.into()) })
    }

    fn unary(&mut self) -> Parse<Expression> {
        if self.takes("!")? {
            return Ok(Expression::Not(Box::new(self.deeper(Self::unary)?)));
        }
        if self.takes("-")? {
            return match self.token {
                Token::Integer(_) | Token::Float(_) => self.number("-"),
                _ => Ok(Expression::Negate(Box::new(self.deeper(Self::unary)?))),
            };
        }
        self.primary()
    }

    fn number(&mut self, sign: &str) -> Parse<Expression> {
        let literal = match self.token {
            Token::Integer(digits) => Literal::Integer(self.integer(sign, digits)?),
            Token::Float(digits) => {
                let number = format!("{sign}{digits}").parse::<f64>().ok().filter(|number| number.is_finite());
                let number = number.ok_or_else(|| self.lexer.error(self.at, "this number is too large"))?;
                self.advance()?;
                Literal::Float(number)
            }
            _ => return Err(self.expected("a number")),
        };
        Ok(Expression::Literal(literal))
    }

    fn primary(&mut self) -> Parse<Expression> {
        match self.token {
            Token::Integer(_) | Token::Float(_) => self.number(""),
            Token::Text(_) | Token::Name("true" | "false" | "null") => self.word(),
            Token::Parameter(name) => {
                self.advance()?;
                Ok(Expression::Parameter(self.parameter(name)))
            }
            Token::Symbol("*") => {
                self.advance()?;
                Ok(Expression::Path(Steps { from_root: false, steps: [PathStep::Members].into() }))
            }
            Token::Symbol("(") => self.deeper(Self::group),
            Token::Name(name) => {
                let expected = format!("a value (a field begins with a dot: `.{name}`, a string with a quote)");
                Err(self.expected(&expected))
            }
            _ => Ok(Expression::Path(self.path("a value: a literal, `$name`, a path or `(`")?)),
        }
    }

    fn word(&mut self) -> Parse<Expression> {
        Ok(Expression::Literal(match self.advance()? {
            Token::Text(text) => Literal::Text(text.into()),
            Token::Name("true") => Literal::Boolean(true),
            Token::Name("false") => Literal::Boolean(false),
            _ => Literal::Null,
        }))
    }

    fn parameter(&mut self, name: &str) -> u32 {
        let known = self.parameters.iter().position(|known| **known == *name);
        let number = known.unwrap_or_else(|| {
            self.parameters.push(name.into());
            self.parameters.len() - 1
        });
        u32::try_from(number).expect("a path has fewer bytes than that")
    }

    /// `( Or )`, unless it turns out to begin a path: `(.a|.b)`, `("a"|"b")`, `(.a).b`.
    fn group(&mut self) -> Parse<Expression> {
        self.advance()?;
        if matches!(self.token, Token::Pattern(_)) {
            let keys = self.keys(Vec::new())?;
            return Ok(Expression::Path(self.parts(false, vec![keys])?));
        }
        let inner = self.or()?;
        let step = match inner {
            Expression::Path(first) if self.is("|") => self.paths(first)?,
            Expression::Literal(Literal::Text(first)) if self.is("|") => self.keys(vec![Key::Text(first)])?,
            Expression::Path(path) => {
                self.expect(")")?;
                return Ok(Expression::Path(self.parts(path.from_root, path.steps.into_vec())?));
            }
            _ => {
                self.expect(")")?;
                return Ok(inner);
            }
        };
        Ok(Expression::Path(self.parts(false, vec![step])?))
    }
}

enum NameOrStar {
    Name(Box<str>),
    Star,
}

/// A regular expression that matches whole keys. Its matching takes time linear in the key.
fn whole_key(text: &str) -> Result<Regex, String> {
    let compile = |pattern: &str| {
        let mut builder = RegexBuilder::new(pattern);
        builder.size_limit(limits::PATH_REGEX_BYTES).dfa_size_limit(limits::PATH_REGEX_BYTES).build()
    };
    // It is compiled alone first: the text put around it must not make a wrong expression right.
    compile(text).and_then(|_| compile(&format!(r"\A(?:{text})\z"))).map_err(|error| match error {
        regex::Error::CompiledTooBig(_) => {
            format!("this regular expression takes more than {} bytes", limits::PATH_REGEX_BYTES)
        }
        error => format!("this regular expression cannot be read: {}", last_line(&error.to_string())),
    })
}

/// The library's errors show the pattern over several lines. The last line says what is wrong.
fn last_line(message: &str) -> &str {
    message.lines().last().unwrap_or(message).trim_start_matches("error: ")
}
