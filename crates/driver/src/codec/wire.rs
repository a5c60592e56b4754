//! How pieces of frames are laid out, and macros for structures and choices of them.

use bytes::Bytes;
use millrace_base::{EntityKey, Error, ErrorCode, IdempotencyKey, Lsn, ShardId, TransactionId, UnixMillis, Value};
use millrace_format::DecodeError;

/// Takes pieces off the front of a frame.
pub(crate) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    pub(crate) fn take(&mut self, length: usize) -> Result<&'a [u8], DecodeError> {
        let (taken, rest) = self.rest.split_at_checked(length).ok_or(DecodeError::Length)?;
        self.rest = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        self.take(N)?.try_into().map_err(|_| DecodeError::Length)
    }

    /// The next byte, which stays.
    pub(crate) fn peek(&self) -> Result<u8, DecodeError> {
        self.rest.first().copied().ok_or(DecodeError::Length)
    }

    /// Bytes behind their length.
    pub(crate) fn bytes(&mut self) -> Result<&'a [u8], DecodeError> {
        let length = u32::get(self)? as usize;
        self.take(length)
    }

    fn text(&mut self) -> Result<&'a str, DecodeError> {
        std::str::from_utf8(self.bytes()?).map_err(|_| DecodeError::Length)
    }

    /// Refuses bytes that go on after the frame's end.
    pub(crate) fn end(&self) -> Result<(), DecodeError> {
        if self.rest.is_empty() { Ok(()) } else { Err(DecodeError::Length) }
    }
}

/// Appends bytes behind their length.
pub(crate) fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    let length = u32::try_from(bytes.len()).expect("limits keep fields below 4 GiB");
    out.extend_from_slice(&length.to_le_bytes());
    out.extend_from_slice(bytes);
}

/// A piece of a frame. Each takes at least one byte.
pub(crate) trait Wire: Sized {
    fn put(&self, out: &mut Vec<u8>);
    fn get(reader: &mut Reader<'_>) -> Result<Self, DecodeError>;
}

macro_rules! wire_integer {
    ($($integer:ty),*) => {$(
        impl Wire for $integer {
            fn put(&self, out: &mut Vec<u8>) {
                out.extend_from_slice(&self.to_le_bytes());
            }

            fn get(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
                reader.array().map(Self::from_le_bytes)
            }
        }
    )*};
}

wire_integer!(u8, u16, u32, u64);

/// Counts, as eight bytes.
impl Wire for usize {
    fn put(&self, out: &mut Vec<u8>) {
        (*self as u64).put(out);
    }

    fn get(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        usize::try_from(u64::get(reader)?).map_err(|_| DecodeError::Length)
    }
}

impl Wire for bool {
    fn put(&self, out: &mut Vec<u8>) {
        out.push(u8::from(*self));
    }

    fn get(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        match u8::get(reader)? {
            0 => Ok(false),
            1 => Ok(true),
            other => Err(DecodeError::Kind(other)),
        }
    }
}

macro_rules! wire_bytes {
    ($($bytes:ty => $read:ident),*) => {$(
        impl Wire for $bytes {
            fn put(&self, out: &mut Vec<u8>) {
                put_bytes(out, self.as_ref());
            }

            fn get(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
                Ok(reader.$read()?.to_owned().into())
            }
        }
    )*};
}

wire_bytes!(Box<[u8]> => bytes, Vec<u8> => bytes, Bytes => bytes);

macro_rules! wire_text {
    ($($text:ty),*) => {$(
        impl Wire for $text {
            fn put(&self, out: &mut Vec<u8>) {
                put_bytes(out, self.as_bytes());
            }

            fn get(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
                Ok(reader.text()?.into())
            }
        }
    )*};
}

wire_text!(Box<str>, String);

impl<T: Wire> Wire for Option<T> {
    fn put(&self, out: &mut Vec<u8>) {
        self.is_some().put(out);
        if let Some(value) = self {
            value.put(out);
        }
    }

    fn get(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(if bool::get(reader)? { Some(T::get(reader)?) } else { None })
    }
}

impl<T: Wire> Wire for Result<T, Error> {
    fn put(&self, out: &mut Vec<u8>) {
        self.is_err().put(out);
        match self {
            Ok(value) => value.put(out),
            Err(error) => error.put(out),
        }
    }

    fn get(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(if bool::get(reader)? { Err(Error::get(reader)?) } else { Ok(T::get(reader)?) })
    }
}

/// Lists of anything but bytes, which have a layout of their own.
pub(crate) trait Item: Wire {}

impl Item for u64 {}

impl<T: Item> Wire for Vec<T> {
    fn put(&self, out: &mut Vec<u8>) {
        u32::try_from(self.len()).expect("limits keep lists short").put(out);
        self.iter().for_each(|item| item.put(out));
    }

    fn get(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let count = u32::get(reader)?;
        // No room is made beforehand: the bytes may hold fewer.
        (0..count).map(|_| T::get(reader)).collect::<Result<_, _>>()
    }
}

impl<A: Wire, B: Wire> Wire for (A, B) {
    fn put(&self, out: &mut Vec<u8>) {
        self.0.put(out);
        self.1.put(out);
    }

    fn get(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok((A::get(reader)?, B::get(reader)?))
    }
}

impl<A: Wire, B: Wire> Item for (A, B) {}

macro_rules! wire_newtype {
    ($($name:ident($inner:ty)),*) => {$(
        impl $crate::codec::wire::Wire for $name {
            fn put(&self, out: &mut Vec<u8>) {
                self.0.put(out);
            }

            fn get(
                reader: &mut $crate::codec::wire::Reader<'_>,
            ) -> Result<Self, millrace_format::DecodeError> {
                <$inner>::get(reader).map($name)
            }
        }
    )*};
}

/// A structure is its fields in the order given.
macro_rules! wire_struct {
    ($name:ident { $($field:ident),* $(,)? }) => {
        impl $crate::codec::wire::Wire for $name {
            fn put(&self, out: &mut Vec<u8>) {
                let $name { $($field),* } = self;
                $($crate::codec::wire::Wire::put($field, out);)*
            }

            fn get(
                reader: &mut $crate::codec::wire::Reader<'_>,
            ) -> Result<Self, millrace_format::DecodeError> {
                $(let $field = $crate::codec::wire::Wire::get(reader)?;)*
                Ok($name { $($field),* })
            }
        }
    };
}

/// A choice is a byte that says which, and the choice's fields in the order given. Behind a semicolon: bytes that only earlier
/// programs write, and what reads on from there.
macro_rules! wire_enum {
    ($name:ident {
        $($tag:literal => $kind:ident $(($($place:ident),*))? $({ $($field:ident),* })?),* $(,)?
        $(; $($retired:literal => $read:path),*)?
    }) => {
        impl $crate::codec::wire::Wire for $name {
            fn put(&self, out: &mut Vec<u8>) {
                match self {
                    $($name::$kind $(($($place),*))? $({ $($field),* })? => {
                        out.push($tag);
                        $($($crate::codec::wire::Wire::put($place, out);)*)?
                        $($($crate::codec::wire::Wire::put($field, out);)*)?
                    })*
                }
            }

            fn get(
                reader: &mut $crate::codec::wire::Reader<'_>,
            ) -> Result<Self, millrace_format::DecodeError> {
                Ok(match <u8 as $crate::codec::wire::Wire>::get(reader)? {
                    $($tag => {
                        $($(let $place = $crate::codec::wire::Wire::get(reader)?;)*)?
                        $($(let $field = $crate::codec::wire::Wire::get(reader)?;)*)?
                        $name::$kind $(($($place),*))? $({ $($field),* })?
                    })*
                    $($($retired => return $read(reader),)*)?
                    other => return Err(millrace_format::DecodeError::Kind(other)),
                })
            }
        }
    };
}

pub(crate) use {wire_enum, wire_newtype, wire_struct};

wire_newtype!(ShardId(u16), Lsn(u64), UnixMillis(u64));

/// As everywhere: coordinator, incarnation and number, each big-endian.
impl Wire for TransactionId {
    fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.to_bytes());
    }

    fn get(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Self::from_bytes(reader.take(Self::BYTES)?).ok_or(DecodeError::Length)
    }
}

impl Wire for EntityKey {
    fn put(&self, out: &mut Vec<u8>) {
        put_bytes(out, self.as_bytes());
    }

    fn get(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        match EntityKey::split_from(reader.bytes()?) {
            Some((entity, [])) => Ok(entity),
            _ => Err(DecodeError::Length),
        }
    }
}

impl Wire for IdempotencyKey {
    fn put(&self, out: &mut Vec<u8>) {
        put_bytes(out, self.as_str().as_bytes());
    }

    fn get(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        IdempotencyKey::new(reader.bytes()?).map(IdempotencyKey::kept).map_err(|_| DecodeError::Length)
    }
}

impl Wire for Value {
    fn put(&self, out: &mut Vec<u8>) {
        put_bytes(out, self.encoded());
    }

    fn get(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Value::from_encoded(reader.bytes()?).ok_or(DecodeError::Length)
    }
}

/// A code of a later version reads as `internal`.
impl Wire for Error {
    fn put(&self, out: &mut Vec<u8>) {
        put_bytes(out, self.code.as_str().as_bytes());
        self.message.put(out);
        self.detail.put(out);
    }

    fn get(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let code = ErrorCode::parse(reader.text()?).unwrap_or(ErrorCode::Internal);
        Ok(Error { code, message: Wire::get(reader)?, detail: Wire::get(reader)? })
    }
}
