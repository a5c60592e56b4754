//! Texts of policies with wildcards and variables.
//!
//! What a variable stands for is plain text: a star in it is no wildcard. So a user whose name is `*` gets nothing
//! more.

use super::{ConditionKey, Request, keys};
use crate::access::glob::{self, Piece};

/// A text with wildcards, variables, or neither.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern(Vec<Part>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Text(String),
    One,
    Any,
    /// The value of this key; if the request does not have it, the default.
    Variable(ConditionKey, Option<String>),
}

impl Pattern {
    /// Reads a text. `has_variables`: only policies of version 2012-10-17 have them. `has_wildcards`: in other texts
    /// `*` and `?` mean themselves.
    ///
    /// # Errors
    /// What is wrong with a variable.
    pub fn parse(text: &str, has_variables: bool, has_wildcards: bool) -> Result<Self, String> {
        let mut parts = Vec::new();
        let mut rest = text;
        while !rest.is_empty() {
            let plain = if has_variables { rest.find("${").unwrap_or(rest.len()) } else { rest.len() };
            let (own, behind) = rest.split_at(plain);
            push_text(&mut parts, own, has_wildcards);
            let Some(variable) = behind.strip_prefix("${") else { break };
            let Some((name, behind)) = variable.split_once('}') else {
                return Err(format!("a variable in \"{text}\" has no end"));
            };
            parts.push(variable_of(name)?);
            rest = behind;
        }
        Ok(Self(parts))
    }

    /// Whether a text matches.
    pub fn matches(&self, text: &str, request: &dyn Request) -> bool {
        self.with_pieces(request, |pieces| glob::matches(pieces, text)).unwrap_or(false)
    }

    /// The text it stands for in this request, where its wildcards mean themselves. `None`: a variable has no value.
    pub fn text(&self, request: &dyn Request) -> Option<String> {
        self.with_pieces(request, |pieces| {
            let text = |piece: &Piece<'_>| match piece {
                Piece::Text(text) => (*text).to_owned(),
                Piece::One => "?".to_owned(),
                Piece::Any => "*".to_owned(),
            };
            pieces.iter().map(text).collect()
        })
    }

    /// Whether it stands for one text, the same in every request.
    pub fn is_fixed(&self) -> bool {
        self.0.iter().all(|part| matches!(part, Part::Text(_)))
    }

    fn with_pieces<R>(&self, request: &dyn Request, run: impl FnOnce(&[Piece<'_>]) -> R) -> Option<R> {
        let mut values = Vec::new();
        for part in &self.0 {
            if let Part::Variable(key, default) = part {
                let value = request.values(key).filter(|values| values.len() == 1).and_then(|mut values| values.pop());
                values.push(value.map(String::from).or_else(|| default.clone())?);
            }
        }
        let mut values = values.iter();
        let pieces = self.0.iter().filter_map(|part| match part {
            Part::Text(text) => Some(Piece::Text(text.as_str())),
            Part::One => Some(Piece::One),
            Part::Any => Some(Piece::Any),
            Part::Variable(..) => values.next().map(|value: &String| Piece::Text(value.as_str())),
        });
        let pieces: Vec<Piece<'_>> = pieces.collect();
        Some(run(&pieces))
    }
}

fn push_text(parts: &mut Vec<Part>, text: &str, has_wildcards: bool) {
    if !has_wildcards {
        if !text.is_empty() {
            parts.push(Part::Text(text.to_owned()));
        }
        return;
    }
    for piece in glob::pieces(text) {
        parts.push(match piece {
            Piece::Text(text) => Part::Text(text.to_owned()),
            Piece::One => Part::One,
            // Two in a row match what one does, and take longer.
            Piece::Any if parts.last() == Some(&Part::Any) => continue,
            Piece::Any => Part::Any,
        });
    }
}

/// What stands between `${` and `}`: a key, or a key, a comma and a default in quotes, or a character that would mean
/// something else by itself.
fn variable_of(text: &str) -> Result<Part, String> {
    if let "*" | "?" | "$" = text {
        return Ok(Part::Text(text.to_owned()));
    }
    let (name, default) = match text.split_once(',') {
        None => (text, None),
        Some((name, default)) => {
            let quoted = default.trim().strip_prefix('\'').and_then(|default| default.strip_suffix('\''));
            let Some(default) = quoted else {
                return Err(format!("the default of the variable \"{text}\" needs single quotes"));
            };
            (name, Some(default.to_owned()))
        }
    };
    let key = keys::read(name.trim()).map_err(|wrong| format!("there is no variable \"{text}\": {wrong}"))?;
    Ok(Part::Variable(key, default))
}
