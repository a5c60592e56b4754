//! The helpers that `glue.js` builds the globals from: time, chance, logging, text, bytes, hashes.

use millrace_func::{self as func, Base64Alphabet, LogLevel, Offload};

use crate::isolate::Isolate;
use crate::js::{Kind, Raw, Thrown, Value, boolean, is_undefined, kind};
use crate::json::Written;
use crate::native::{Call, Entry, NativeOwner};
use crate::request_object::{parse_query, undefined};

pub(crate) const ENTRIES: &[Entry] = &[
    (NativeOwner::Helpers, "now", 0, now),
    (NativeOwner::Helpers, "random", 0, random),
    (NativeOwner::Helpers, "uuid", 0, uuid),
    (NativeOwner::Helpers, "fillRandom", 1, fill_random),
    (NativeOwner::Helpers, "log", 2, log),
    (NativeOwner::Helpers, "isPrinting", 0, is_printing),
    (NativeOwner::Helpers, "parseJson", 1, parse_json),
    (NativeOwner::Helpers, "stringifyJson", 1, stringify_json),
    (NativeOwner::Helpers, "encodeUtf8", 1, encode_utf8),
    (NativeOwner::Helpers, "decodeUtf8", 2, decode_utf8),
    (NativeOwner::Helpers, "encodeBase64", 1, encode_base64),
    (NativeOwner::Helpers, "decodeBase64", 1, decode_base64),
    (NativeOwner::Helpers, "sha1", 1, sha1),
    (NativeOwner::Helpers, "sha256", 1, sha256),
    (NativeOwner::Helpers, "hmacSha256", 2, hmac_sha256),
    (NativeOwner::Helpers, "equal", 2, equal),
    (NativeOwner::Helpers, "argon2idHash", 1, argon2id_hash),
    (NativeOwner::Helpers, "argon2idVerify", 2, argon2id_verify),
    (NativeOwner::Helpers, "parseQuery", 1, parse_query),
];

fn now(call: &Call<'_>) -> Result<Value, Thrown> {
    call.isolate.now_value()
}

fn random(call: &Call<'_>) -> Result<Value, Thrown> {
    call.isolate.random_value()
}

fn uuid(call: &Call<'_>) -> Result<Value, Thrown> {
    call.isolate.uuid_value()
}

/// `crypto.getRandomValues` fills at most 64 KiB, as on the Web.
const RANDOM_BYTES: usize = 65_536;

fn fill_random(call: &Call<'_>) -> Result<Value, Thrown> {
    let array = call.argument(0);
    let Some(bytes) = call.context.bytes_of(array)? else {
        return Err(call.context.throw_type("getRandomValues takes a typed array"));
    };
    if bytes.len() > RANDOM_BYTES {
        return Err(call.context.throw_type("getRandomValues fills at most 65536 bytes"));
    }
    let mut random = Vec::with_capacity(bytes.len() + 8);
    while random.len() < bytes.len() {
        random.extend_from_slice(&call.isolate.random_bits()?.to_le_bytes());
    }
    call.context.fill_bytes(array, |target| target.copy_from_slice(&random[..target.len()]))?;
    Ok(undefined(call))
}

fn is_printing(call: &Call<'_>) -> Result<Value, Thrown> {
    Ok(call.context.own(boolean(call.isolate.is_printing.get())))
}

fn parse_json(call: &Call<'_>) -> Result<Value, Thrown> {
    let text = call.context.text(call.argument(0))?;
    match std::str::from_utf8(text.bytes()) {
        Ok(text) => call.isolate.parse_json(text.as_bytes()),
        Err(_) => Err(call.context.throw_syntax("it has half of a surrogate pair, for a text of its length")),
    }
}

fn stringify_json(call: &Call<'_>) -> Result<Value, Thrown> {
    let mut text = call.isolate.take_scratch();
    let printed = call.isolate.print_for_code(call.argument(0), &mut text);
    let value = printed.and_then(|written| match written {
        Written::Json => call.context.string(&text),
        Written::Nothing => Ok(undefined(call)),
    });
    call.isolate.give_scratch(text);
    value
}

fn log(call: &Call<'_>) -> Result<Value, Thrown> {
    let level = match kind(call.argument(0)) {
        Kind::Int(0) => LogLevel::Debug,
        Kind::Int(2) => LogLevel::Warn,
        Kind::Int(3) => LogLevel::Error,
        _ => LogLevel::Info,
    };
    call.isolate.log_line(level, call.argument(1))
}

/// The bytes of a string (as UTF-8) or of binary data.
fn data(call: &Call<'_>, index: usize) -> Result<Vec<u8>, Thrown> {
    let raw = call.argument(index);
    if kind(raw) == Kind::String {
        return Ok(utf8(call.isolate, raw)?.into_bytes());
    }
    let bytes = call.context.bytes_of(raw)?;
    bytes.ok_or_else(|| call.context.throw_type("give a string, a typed array or an ArrayBuffer"))
}

/// A string as UTF-8; half of a surrogate pair becomes U+FFFD.
pub(crate) fn utf8(isolate: &Isolate, raw: Raw) -> Result<String, Thrown> {
    let text = isolate.context.text(raw)?;
    if let Ok(text) = std::str::from_utf8(text.bytes()) {
        return Ok(text.to_owned());
    }
    // The three bytes of a lone surrogate are one character, not three.
    let mut rest = text.bytes();
    let mut clean = String::with_capacity(rest.len());
    while let Err(error) = std::str::from_utf8(rest) {
        let (valid, invalid) = rest.split_at(error.valid_up_to());
        clean.push_str(&String::from_utf8_lossy(valid));
        clean.push('\u{fffd}');
        rest = &invalid[invalid.len().min(3)..];
    }
    clean.push_str(&String::from_utf8_lossy(rest));
    Ok(clean)
}

fn encode_utf8(call: &Call<'_>) -> Result<Value, Thrown> {
    let text = utf8(call.isolate, call.argument(0))?;
    call.context.uint8_array(text.as_bytes())
}

fn decode_utf8(call: &Call<'_>) -> Result<Value, Thrown> {
    let Some(bytes) = call.context.bytes_of(call.argument(0))? else {
        return Err(call.context.throw_type("decode takes a typed array or an ArrayBuffer"));
    };
    let is_fatal = kind(call.argument(1)) == Kind::Bool(true);
    if is_fatal && std::str::from_utf8(&bytes).is_err() {
        return Err(call.context.throw_type("the bytes are not UTF-8"));
    }
    call.context.string_lossy(&bytes)
}

/// Reads "base64" or "base64url".
fn alphabet(call: &Call<'_>, raw: Raw) -> Result<Base64Alphabet, Thrown> {
    if is_undefined(raw) {
        return Ok(Base64Alphabet::Standard);
    }
    match call.context.text(raw)?.bytes() {
        b"base64" => Ok(Base64Alphabet::Standard),
        b"base64url" => Ok(Base64Alphabet::Url),
        _ => Err(call.context.throw_type("the alphabet is \"base64\" or \"base64url\"")),
    }
}

fn encode_base64(call: &Call<'_>) -> Result<Value, Thrown> {
    let bytes = data(call, 0)?;
    let text = func::base64_encode(&bytes, alphabet(call, call.argument(1))?);
    call.context.string(text.as_bytes())
}

fn decode_base64(call: &Call<'_>) -> Result<Value, Thrown> {
    let raw = call.argument(0);
    if kind(raw) != Kind::String {
        return Err(call.context.throw_type("base64.decode takes a string"));
    }
    let text = call.context.text(raw)?;
    match func::base64_decode(text.bytes()) {
        Some(bytes) => call.context.uint8_array(&bytes),
        None => Err(call.context.throw_type("the text is not base64")),
    }
}

/// A digest as bytes, or as text when an encoding is given.
fn digest(call: &Call<'_>, digest: &[u8], encoding: usize) -> Result<Value, Thrown> {
    let encoding = call.argument(encoding);
    if is_undefined(encoding) {
        return call.context.uint8_array(digest);
    }
    let encoding = call.context.text(encoding)?;
    let text = match encoding.bytes() {
        b"hex" => millrace_base::hex(digest),
        b"base64" => func::base64_encode(digest, Base64Alphabet::Standard),
        b"base64url" => func::base64_encode(digest, Base64Alphabet::Url),
        _ => return Err(call.context.throw_type("the encoding is \"hex\", \"base64\" or \"base64url\"")),
    };
    call.context.string(text.as_bytes())
}

fn sha1(call: &Call<'_>) -> Result<Value, Thrown> {
    digest(call, &func::sha1(&data(call, 0)?), 1)
}

fn sha256(call: &Call<'_>) -> Result<Value, Thrown> {
    digest(call, &func::sha256(&data(call, 0)?), 1)
}

fn hmac_sha256(call: &Call<'_>) -> Result<Value, Thrown> {
    digest(call, &func::hmac_sha256(&data(call, 0)?, &data(call, 1)?), 2)
}

fn equal(call: &Call<'_>) -> Result<Value, Thrown> {
    let is_equal = func::equal_in_constant_time(&data(call, 0)?, &data(call, 1)?);
    Ok(call.context.own(boolean(is_equal)))
}

fn argon2id_hash(call: &Call<'_>) -> Result<Value, Thrown> {
    let password = data(call, 0)?;
    call.isolate.check_operations()?;
    let mut salt = [0; 16];
    salt[..8].copy_from_slice(&call.isolate.random_bits()?.to_le_bytes());
    salt[8..].copy_from_slice(&call.isolate.random_bits()?.to_le_bytes());
    offload(call, Offload::Argon2idHash { password, salt })
}

fn argon2id_verify(call: &Call<'_>) -> Result<Value, Thrown> {
    let password = data(call, 0)?;
    let hash = call.argument(1);
    if kind(hash) != Kind::String {
        return Err(call.context.throw_type("the hash must be a string made by crypto.argon2id.hash"));
    }
    let hash = utf8(call.isolate, hash)?;
    offload(call, Offload::Argon2idVerify { password, hash })
}

fn offload(call: &Call<'_>, work: Offload) -> Result<Value, Thrown> {
    let isolate = call.isolate;
    isolate.check_operations()?;
    isolate.await_operation(|| isolate.with_host(|host| host.offload(work)))
}
