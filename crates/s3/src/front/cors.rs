//! Web pages of other origins: what browsers ask before, and the headers that let a page read a reply.

use http::{HeaderMap, Method, StatusCode};
use millrace_api::objects::{ObjectOperation, ObjectReply, Objects};

use super::respond::{self, set};
use super::{Front, Reply, system};
use crate::error::{Code, S3Error};
use crate::operation::Head;
use crate::route::Target;
use crate::users::Users;

/// Headers that one preflight may ask for. A browser asks for those that a page sets.
const ASKED_HEADERS: usize = 100;

impl<B: Objects, U: Users> Front<B, U> {
    /// Answers `OPTIONS`.
    pub(crate) async fn preflight(&self, target: &Target, head: &Head<'_>) -> Result<Reply<B>, S3Error> {
        let Some(origin) = head.header("origin")? else {
            return Err(S3Error::new(Code::BadRequest, "Insufficient information. Origin request header needed."));
        };
        let Some(method) = head.header("access-control-request-method")? else {
            return Err(S3Error::new(Code::BadRequest, "Invalid Access-Control-Request-Method: null"));
        };
        let wanted = head.header("access-control-request-headers")?.unwrap_or_default().split(',');
        let headers: Vec<String> =
            wanted.map(|name| name.trim().to_ascii_lowercase()).filter(|name| !name.is_empty()).collect();
        if headers.len() > ASKED_HEADERS {
            return Err(S3Error::new(Code::InvalidRequest, "The preflight asks for too many headers."));
        }
        match self.cors(target, origin, method, headers).await? {
            Some(allowed) => {
                let mut reply = respond::empty(StatusCode::OK);
                for (name, value) in &allowed {
                    set(reply.headers_mut(), name, value);
                }
                Ok(reply)
            }
            None => Err(S3Error::new(
                Code::AccessForbidden,
                "CORSResponse: This CORS request is not allowed. This is usually because the evalution of Origin, request \
                 method / Access-Control-Request-Method or Access-Control-Request-Headers are not whitelisted by the \
                 resource's CORS spec.",
            )),
        }
    }

    /// Lets the page of a request read its reply, if the bucket's rules say so.
    pub(crate) async fn allow_origin(
        &self,
        target: &Target,
        head: &Head<'_>,
        method: &Method,
        headers: &mut HeaderMap,
    ) {
        let Ok(Some(origin)) = head.header("origin") else { return };
        // A client that is no browser may send with the request itself what a browser asks before it.
        let asked = head.header("access-control-request-method").ok().flatten();
        let method = asked.unwrap_or(method.as_str());
        if let Ok(Some(allowed)) = self.cors(target, origin, method, Vec::new()).await {
            for (name, value) in &allowed {
                set(headers, name, value);
            }
        }
    }

    async fn cors(
        &self,
        target: &Target,
        origin: &str,
        method: &str,
        headers: Vec<String>,
    ) -> Result<Option<Vec<(String, String)>>, S3Error> {
        let operation = ObjectOperation::GetCors { origin: origin.to_owned(), method: method.to_owned(), headers };
        match self.ask(system(), &target.bucket, "", operation).await? {
            ObjectReply::Cors(allowed) => Ok(allowed),
            _ => Err(Code::InternalError.into()),
        }
    }
}
