//! For fuzzing only: what requests ask for, with nobody there to answer.

use bytes::Bytes;
use millrace_api::RecordOperation;
use millrace_base::Error;

use crate::Operation;
use crate::classic;
use crate::local::Records;
use crate::read::{ListQuery, batch, page_of_changes};
use crate::request::Request;
use crate::write::AskedWrite;

impl Records {
    /// What a request about records would have done, as it is sent on; `None` if it is about something else.
    ///
    /// # Errors
    /// Those that are known before anybody is asked.
    #[doc(hidden)]
    pub fn asked(&self, operation: Operation, request: &Request<'_>) -> Result<Option<Bytes>, Error> {
        Ok(Some(match operation {
            _ if operation.is_read() => self.one(operation, request)?.operation().to_bytes(),
            _ if operation.is_write() => {
                RecordOperation::Write(AskedWrite::read(self, operation, request)?.write).to_bytes()
            }
            Operation::FindRecords => RecordOperation::Find(ListQuery::read(request.query)?.query(request)?).to_bytes(),
            Operation::GetRecords => {
                let (ids, form) = batch(request)?;
                RecordOperation::GetMany { ids: ids.iter().map(Vec::as_slice).collect(), form }.to_bytes()
            }
            Operation::RecordChanges => {
                let (cursor, limit) = page_of_changes(request)?;
                RecordOperation::Changes { cursor: &cursor, limit }.to_bytes()
            }
            Operation::ClassicSelect => classic::selection(request)?.to_bytes(),
            _ => return Ok(None),
        }))
    }
}
