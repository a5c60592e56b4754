//! `{ retry: { attempts, firstMs, longestMs } }`, as `ctx.call` and `ctx.step` of workflows take it.

use millrace_base::{Error, ErrorCode, limits};
use millrace_func::{Attempts, RetryOptions, Unlimited};

use crate::isolate::Isolate;
use crate::js::{Atom, Kind, Raw, Thrown, is_nullish, kind};

impl Isolate {
    /// Tells the host how the next call or step is tried again, if the options of `of` say so.
    pub(crate) fn retry_next(&self, options: Raw, of: &str) -> Result<(), Thrown> {
        let atoms = &self.atoms;
        if !self.check_options(options, &[(atoms.retry, "retry")], of)? {
            return Ok(());
        }
        let retry = self.context.get(options, atoms.retry)?;
        let known = [(atoms.attempts, "attempts"), (atoms.first_ms, "firstMs"), (atoms.longest_ms, "longestMs")];
        if !self.check_options(retry.raw(), &known, "retry")? {
            return Ok(());
        }
        let whole = |atom: Atom, name: &str, least: u64, most: u64| -> Result<Option<u64>, Thrown> {
            let value = self.context.get(retry.raw(), atom)?;
            match kind(value.raw()) {
                _ if is_nullish(value.raw()) => Ok(None),
                Kind::Int(number) if u64::try_from(number).is_ok_and(|number| (least..=most).contains(&number)) => {
                    Ok(Some(number as u64))
                }
                _ => {
                    Err(self.context.throw_type(&format!("retry.{name} must be a whole number from {least} to {most}")))
                }
            }
        };
        let attempts = self.context.get(retry.raw(), atoms.attempts)?;
        let attempts = match kind(attempts.raw()) {
            Kind::Float(number) if number.is_infinite() && number > 0.0 => {
                Some(Attempts::Unlimited(Unlimited::Unlimited))
            }
            _ => whole(atoms.attempts, "attempts", 1, i32::MAX as u64)?.map(|count| Attempts::Count(count as u32)),
        };
        let (least, most) = (*limits::RETRY_PAUSE_MS.start(), *limits::RETRY_PAUSE_MS.end());
        let first_ms = whole(atoms.first_ms, "firstMs", least, most)?;
        let longest_ms = whole(atoms.longest_ms, "longestMs", least, most)?;
        let refused = || Error::new(ErrorCode::FunctionFailed, "only a workflow says how its calls are tried again");
        self.with_host(|host| {
            host.flow().ok_or_else(refused)?.retry_next(RetryOptions { attempts, first_ms, longest_ms });
            Ok(())
        })
    }
}
