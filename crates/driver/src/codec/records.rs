//! Records that have bytes of their own in `millrace-format`: those bytes, behind their length.

use millrace_format::{DeadLetterRecord, DecodeError, FailureRecord, InvocationResult, JournalRow, WorkflowRecord};

use super::wire::{Item, Reader, Wire, put_bytes};

macro_rules! wire_record {
    ($($record:ident),*) => {$(
        impl Wire for $record {
            fn put(&self, out: &mut Vec<u8>) {
                put_bytes(out, &self.encode());
            }

            fn get(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
                $record::decode(reader.bytes()?)
            }
        }
    )*};
}

wire_record!(InvocationResult, WorkflowRecord, JournalRow, FailureRecord);

impl Item for JournalRow {}
impl Item for FailureRecord {}

/// A letter of an earlier version has no error and is the message alone.
impl Wire for DeadLetterRecord {
    fn put(&self, out: &mut Vec<u8>) {
        let bytes = match &self.error {
            Some(error) => DeadLetterRecord::encode(error, &self.message),
            None => self.message.encode(),
        };
        put_bytes(out, &bytes);
    }

    fn get(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        DeadLetterRecord::decode(reader.bytes()?)
    }
}
