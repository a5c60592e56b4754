//! What scripts of workflows do beside calling and sending: see `script.rs`.

use std::collections::BTreeMap;

use bytes::Bytes;
use millrace_func::{Attempts, Error, ErrorCode, FetchRequest, Host, OperationId, RetryOptions, StepStart, Unlimited};
use serde_json::Value as Json;

use crate::engine::{Awaits, Running, number, text, thrown};

fn milliseconds(operation: &[Json], index: usize) -> Result<u64, Error> {
    Ok(u64::try_from(number(operation, index)?).unwrap_or(0))
}

impl Running {
    /// Operations of workflows. Says whether it was one.
    pub(crate) fn on_flow(&mut self, name: &str, operation: &[Json], host: &mut dyn Host) -> Result<bool, Error> {
        match name {
            "sleep" | "wait" | "try_wait" | "result" | "try_result" | "fetch" | "try_fetch" => {
                let begun = self.begin(operation, host)?;
                self.await_one(begun, name.starts_with("try"), false);
            }
            "beside" => {
                let one =
                    operation.get(1).and_then(Json::as_array).ok_or_else(|| thrown("an operation is no array"))?;
                let begun = self.begin(one, host)?;
                self.started.insert(begun, operation.get(2).filter(|callee| !callee.is_null()).cloned());
                self.last = Json::Null;
            }
            "race" | "both" => {
                let mut open = BTreeMap::new();
                for (index, one) in operation.get(1).and_then(Json::as_array).into_iter().flatten().enumerate() {
                    let one = one.as_array().ok_or_else(|| thrown("an operation is no array"))?;
                    open.insert(self.begin(one, host)?, index);
                }
                let results = vec![Json::Null; open.len()];
                self.awaits = if name == "race" {
                    Awaits::Any { open }
                } else {
                    Awaits::Several { open, results, catches: true }
                };
            }
            "step" | "fail_step" | "abort_step" | "flaky_step" | "program" | "call_in_step" => {
                self.on_step(name, operation, host)?
            }
            "program_here" => self.last = Json::from(self.handler.program.0),
            "retry" => {
                let attempts = match operation.get(1).and_then(Json::as_u64) {
                    Some(count) => Attempts::Count(u32::try_from(count).unwrap_or(u32::MAX)),
                    None => Attempts::Unlimited(Unlimited::Unlimited),
                };
                let pause_ms = Some(milliseconds(operation, 2)?);
                let options = RetryOptions { attempts: Some(attempts), first_ms: pause_ms, longest_ms: pause_ms };
                host.in_workflow("retry")?.retry_next(options);
            }
            "compensate" => host.in_workflow("compensate")?.compensate(self.callee(operation.get(1))?)?,
            "signal" => {
                let id = operation.get(1).filter(|id| !id.is_null()).unwrap_or(&self.started_workflow);
                let payload = operation.get(3).cloned().unwrap_or(Json::Null).to_string();
                host.signal(id.as_str().unwrap_or_default(), text(operation, 2)?, payload.into())?;
            }
            "id" => self.last = host.flow().map_or(Json::Null, |flow| Json::String(flow.invocation())),
            // Goes on with other operations if the last one gave this.
            "when" => {
                if operation.get(1) == Some(&self.last) {
                    let more = operation.get(2).and_then(Json::as_array).cloned().unwrap_or_default();
                    self.script.splice(self.at..self.at, more);
                }
            }
            // The rest of the script depends on what cannot be known in advance.
            "unless_again" => {
                let text = text(operation, 1)?;
                if !self.marks.borrow_mut().insert(text.to_owned()) {
                    let more = operation.get(2).and_then(Json::as_array).cloned().unwrap_or_default();
                    self.script.splice(self.at.., more);
                }
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn on_step(&mut self, name: &str, operation: &[Json], host: &mut dyn Host) -> Result<(), Error> {
        match name {
            "step" | "fail_step" | "abort_step" | "flaky_step" => {
                let value = operation.get(2).cloned().unwrap_or(Json::Null);
                match host.in_workflow("step")?.begin_step(text(operation, 1)?)? {
                    StepStart::Run(step) => {
                        let fails_now = || self.marks.borrow_mut().insert(value.to_string());
                        let result = match name {
                            "fail_step" => Err(thrown("planned")),
                            "abort_step" => Err(Error::new(ErrorCode::Aborted, "planned")),
                            "flaky_step" if fails_now() => Err(thrown("not yet")),
                            _ => Ok(Bytes::from(value.to_string())),
                        };
                        host.in_workflow("step")?.end_step(step, result)?;
                        self.await_one(step, false, false);
                    }
                    StepStart::Known(step) => self.await_one(step, false, false),
                }
            }
            "program" => match host.in_workflow("step")?.begin_step("program")? {
                StepStart::Run(step) => {
                    host.in_workflow("step")?.end_step(step, Ok(self.handler.program.0.to_string().into()))?;
                    self.await_one(step, false, false);
                }
                StepStart::Known(step) => self.await_one(step, false, false),
            },
            _ => match host.in_workflow("step")?.begin_step(text(operation, 1)?)? {
                StepStart::Run(step) => {
                    host.in_workflow("step")?.within_step(Some(step));
                    let inner = host.call(self.callee(operation.get(2))?)?;
                    host.in_workflow("step")?.within_step(None);
                    self.awaits = Awaits::Inner { operation: inner, step };
                }
                StepStart::Known(step) => self.await_one(step, false, false),
            },
        }
        Ok(())
    }

    fn pause(&mut self, begun: Result<OperationId, Error>) -> Result<OperationId, Error> {
        begun.inspect(|operation| {
            self.pauses.insert(*operation);
        })
    }

    fn begin(&mut self, operation: &[Json], host: &mut dyn Host) -> Result<OperationId, Error> {
        match text(operation, 0)? {
            "call" | "try" => host.call(self.callee(operation.get(1))?),
            "sleep" => self.pause(host.in_workflow("sleep")?.sleep(milliseconds(operation, 1)?)),
            "wait" | "try_wait" => {
                let timeout_ms = operation.get(2).and_then(Json::as_u64);
                self.pause(host.in_workflow("wait")?.wait(text(operation, 1)?, timeout_ms))
            }
            "result" | "try_result" => {
                let of = operation.get(1).and_then(Json::as_str).map(str::to_owned);
                let of = of.or_else(|| self.started_workflow.as_str().map(str::to_owned)).unwrap_or_default();
                let timeout_ms = operation.get(2).and_then(Json::as_u64);
                self.pause(host.in_workflow("result")?.result(&of, timeout_ms))
            }
            "fetch" | "try_fetch" => host.fetch(FetchRequest {
                method: "POST".into(),
                url: format!("https://outside.example/{}", text(operation, 1)?),
                headers: Vec::new(),
                body: self.last.to_string().into(),
                timeout_ms: 1_000,
                response_bytes: 1_000,
                retries: 2,
            }),
            _ => Err(thrown("an operation cannot be awaited beside others")),
        }
    }
}
