//! Whether a licence expression (SPDX 2.3, annex D) can be met with licences from a list.

/// Whether choosing freely at every `OR` can satisfy `expression` with `allowed` licences only.
/// `A WITH B` needs `A`, since an exception only gives more rights. The old `A/B` reads as `OR`.
///
/// Returns `None` when the text is not an expression.
pub fn is_allowed(expression: &str, allowed: &[String]) -> Option<bool> {
    let spaced = expression.replace('(', " ( ").replace(')', " ) ").replace('/', " OR ");
    let tokens: Vec<&str> = spaced.split_whitespace().collect();
    let mut parser = Parser { tokens: &tokens, allowed };
    let result = parser.any()?;
    parser.tokens.is_empty().then_some(result)
}

struct Parser<'a> {
    tokens: &'a [&'a str],
    allowed: &'a [String],
}

impl<'a> Parser<'a> {
    fn eat(&mut self, token: &str) -> bool {
        let is_next = self.tokens.first().is_some_and(|next| *next == token);
        if is_next {
            self.tokens = &self.tokens[1..];
        }
        is_next
    }

    fn any(&mut self) -> Option<bool> {
        let mut result = self.all()?;
        while self.eat("OR") {
            result |= self.all()?;
        }
        Some(result)
    }

    fn all(&mut self) -> Option<bool> {
        let mut result = self.one()?;
        while self.eat("AND") {
            result &= self.one()?;
        }
        Some(result)
    }

    fn one(&mut self) -> Option<bool> {
        if self.eat("(") {
            let result = self.any()?;
            return self.eat(")").then_some(result);
        }
        let licence = self.name()?;
        if self.eat("WITH") {
            self.name()?;
        }
        Some(self.allowed.iter().any(|allowed| allowed == licence))
    }

    fn name(&mut self) -> Option<&'a str> {
        let (name, rest) = self.tokens.split_first()?;
        self.tokens = rest;
        (!matches!(*name, "(" | ")" | "AND" | "OR" | "WITH")).then_some(*name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_are_evaluated_with_their_precedence() {
        let allowed = ["MIT".to_owned(), "Apache-2.0".to_owned(), "ISC".to_owned()];
        let cases = [
            ("MIT", Some(true)),
            ("GPL-3.0-only", Some(false)),
            ("GPL-3.0-only OR MIT", Some(true)),
            ("MIT AND GPL-3.0-only", Some(false)),
            ("Apache-2.0 AND ISC", Some(true)),
            ("GPL-3.0-only AND MIT OR ISC", Some(true)),
            ("GPL-3.0-only AND (MIT OR ISC)", Some(false)),
            ("(MIT OR GPL-2.0-only) AND ISC", Some(true)),
            ("Apache-2.0 WITH LLVM-exception", Some(true)),
            ("GPL-2.0-only WITH Classpath-exception-2.0", Some(false)),
            ("MIT/GPL-3.0-only", Some(true)),
            ("Unlicense / MIT", Some(true)),
            ("", None),
            ("MIT AND", None),
            ("(MIT", None),
            ("MIT ISC", None),
            ("OR MIT", None),
            ("MIT WITH", None),
        ];
        for (expression, result) in cases {
            assert_eq!(is_allowed(expression, &allowed), result, "{expression}");
        }
    }
}
