//! Who may invoke the worker.

use bytes::Bytes;
use millrace_workers::{Signed, Signer};
use serde_json::json;

use crate::Case;
use crate::bench::{Bench, Envelope, now_s};
use crate::scene::{Run, Scene, same};

pub(super) const CASES: &[Case] = &[
    Case {
        name: "signature/fitting",
        expected: "a signed request: status 200",
        run: |bench| status(bench, 200, |_, _| {}),
    },
    Case {
        name: "signature/missing",
        expected: "no signature: status 401",
        run: |bench| status(bench, 401, |envelope, _| envelope.signature = None),
    },
    Case {
        name: "signature/empty",
        expected: "an empty signature: status 401",
        run: |bench| status(bench, 401, |envelope, _| envelope.signature = Some(String::new())),
    },
    Case {
        name: "signature/other-scheme",
        expected: "a fitting signature behind `v2=`: status 401",
        run: |bench| {
            status(bench, 401, |envelope, _| {
                let digits = |text: String| text.split_once('=').map(|(_, digits)| format!("v2={digits}"));
                envelope.signature = envelope.signature.take().and_then(digits);
            })
        },
    },
    Case {
        name: "signature/other-kind",
        expected: "signed with what the worker knows, but in the other way: status 401",
        run: |bench| signed(bench, &of_other_kind(bench), |_| {}),
    },
    Case {
        name: "signature/cut-off",
        expected: "a signature without its last digit: status 401",
        run: |bench| {
            status(bench, 401, |envelope, _| {
                let _ = envelope.signature.as_mut().and_then(String::pop);
            })
        },
    },
    Case {
        name: "signature/other-secret",
        expected: "signed with another secret or key: status 401",
        run: |bench| {
            let another = match bench.signer() {
                Some(Signer::Key(_)) => Signer::from_seed(&[1; 32]),
                _ => Signer::Secret("another secret".to_owned()),
            };
            signed(bench, &another, |_| {})
        },
    },
    Case {
        name: "signature/changed",
        expected: "a signature of which one digit is another: status 401",
        run: |bench| {
            status(bench, 401, |envelope, _| {
                let last = envelope.signature.as_mut().and_then(String::pop);
                let other = if last == Some('0') { '1' } else { '0' };
                envelope.signature.iter_mut().for_each(|text| text.push(other));
            })
        },
    },
    Case {
        name: "signature/no-digits",
        expected: "a signature that is no hex digits: status 401",
        run: |bench| {
            status(bench, 401, |envelope, _| {
                let blank = |text: &String| {
                    text.split_once('=').map(|(kind, rest)| format!("{kind}={}", "x".repeat(rest.len())))
                };
                envelope.signature = envelope.signature.as_ref().and_then(blank);
            })
        },
    },
    Case {
        name: "signature/other-body",
        expected: "signed for another body: status 401",
        run: |bench| own(bench, |signed| signed.body = b"another body"),
    },
    Case {
        name: "signature/other-path",
        expected: "signed for another path: status 401",
        run: |bench| own(bench, |signed| signed.path = "/discovery"),
    },
    Case {
        name: "signature/other-method",
        expected: "signed for another method: status 401",
        run: |bench| own(bench, |signed| signed.method = "GET"),
    },
    Case {
        name: "signature/other-attempt",
        expected: "signed for another attempt: status 401",
        run: |bench| own(bench, |signed| signed.attempt = [7; 16]),
    },
    Case {
        name: "signature/other-expiry",
        expected: "an expiry that is not the signed one: status 401",
        run: |bench| own(bench, |signed| signed.expires += 1),
    },
    Case {
        name: "signature/expired",
        expected: "a signature that has expired: status 401",
        run: |bench| expired(bench, now_s().saturating_sub(5)),
    },
    Case {
        name: "signature/expired-long-ago",
        expected: "expired in 1970: status 401",
        run: |bench| expired(bench, 1),
    },
    Case {
        name: "signature/expiry-missing",
        expected: "no expiry: status 401",
        run: |bench| status(bench, 401, |envelope, _| envelope.expires = None),
    },
    Case {
        name: "signature/expiry-no-number",
        expected: "an expiry that is no number: status 401",
        run: |bench| status(bench, 401, |envelope, _| envelope.expires = Some("soon".to_owned())),
    },
    Case {
        name: "signature/discovery",
        expected: "GET /discovery without a signature: status 401",
        run: |bench| {
            let mut envelope = bench.envelope("GET", "/discovery", [0; 16], b"");
            envelope.signature = None;
            same("the status", &bench.ask("GET", "/discovery", envelope, Bytes::new())?.status, &401)
        },
    },
];

/// The status of an invocation whose envelope a case has changed.
fn status(bench: &Bench<'_>, expected: u16, change: impl FnOnce(&mut Envelope, &[u8])) -> Result<(), String> {
    let mut run = Run::new(Scene::new(bench, "echo", &json!(1)))?;
    let body = run.request();
    let mut envelope = bench.envelope("POST", "/invoke", run.scene.start.attempt, &body);
    change(&mut envelope, &body);
    same("the status", &bench.ask("POST", "/invoke", envelope, body.into())?.status, &expected)
}

/// An invocation that is signed, by `signer`, for something else.
fn signed(bench: &Bench<'_>, signer: &Signer, change: impl FnOnce(&mut Signed<'_>)) -> Result<(), String> {
    let mut run = Run::new(Scene::new(bench, "echo", &json!(1)))?;
    let (body, attempt) = (run.request(), run.scene.start.attempt);
    let mut envelope = bench.envelope("POST", "/invoke", attempt, &body);
    let expires = envelope.expires.as_ref().and_then(|text| text.parse().ok()).unwrap_or_default();
    let path = bench.path("/invoke");
    let mut signed = Signed { method: "POST", path: &path, expires, attempt, body: &body };
    change(&mut signed);
    envelope.signature = Some(signer.sign(&signed));
    same("the status", &bench.ask("POST", "/invoke", envelope, Bytes::from(body.clone()))?.status, &401)
}

fn own(bench: &Bench<'_>, change: impl FnOnce(&mut Signed<'_>)) -> Result<(), String> {
    signed(bench, own_signer(bench)?, change)
}

/// What the worker verifies with. Without it, these cases are left out.
fn own_signer<'b>(bench: &'b Bench<'_>) -> Result<&'b Signer, String> {
    bench.signer().ok_or_else(|| "nothing is signed".to_owned())
}

/// Signs with what the worker knows, taken for what it is not. The public key is no secret.
fn of_other_kind(bench: &Bench<'_>) -> Signer {
    match bench.signer() {
        Some(key @ Signer::Key(_)) => Signer::Secret(key.public_key().unwrap_or_default()),
        Some(Signer::Secret(_)) | None => Signer::from_seed(&[2; 32]),
    }
}

/// An invocation whose signature fits and says that it ended then.
fn expired(bench: &Bench<'_>, expires: u64) -> Result<(), String> {
    let signer = own_signer(bench)?;
    let path = bench.path("/invoke");
    let mut run = Run::new(Scene::new(bench, "echo", &json!(1)))?;
    let (body, attempt) = (run.request(), run.scene.start.attempt);
    let mut envelope = bench.envelope("POST", "/invoke", attempt, &body);
    let signed = Signed { method: "POST", path: &path, expires, attempt, body: &body };
    envelope.signature = Some(signer.sign(&signed));
    envelope.expires = Some(expires.to_string());
    same("the status", &bench.ask("POST", "/invoke", envelope, Bytes::from(body.clone()))?.status, &401)
}
