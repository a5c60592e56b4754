"""A small S3 client that never tries again, so that a proof knows which requests were acknowledged.

Requests are signed by botocore. Keys are plain ASCII: letters, digits, `-`, `.` and `/`.
"""

import base64
import hashlib
import http.client
import urllib.parse
import xml.etree.ElementTree as xml

import botocore.auth
import botocore.awsrequest
import botocore.credentials

import node

REQUEST_TIMEOUT_S = 60


class Unknown(Exception):
    """A request without an answer, or with one of the server's own failures: it may have taken effect or not."""


class _Signer(botocore.auth.S3SigV4Auth):
    """Signs without the hash of the content: it is hashed by the proofs themselves."""

    def payload(self, _request):
        return "UNSIGNED-PAYLOAD"


_SIGNER = _Signer(botocore.credentials.Credentials(node.ACCESS_KEY, node.SECRET_KEY), "s3", "us-east-1")


def signed_headers(method, host, path, headers):
    """The headers of a request with its signature."""
    request = botocore.awsrequest.AWSRequest(method, f"http://{host}{path}", headers)
    _SIGNER.add_auth(request)
    return {"host": host, **dict(request.headers.items())}


class Reply:
    """An answer that came whole."""

    def __init__(self, status, headers, body):
        self.status, self.headers, self.body = status, headers, body

    def text_of(self, tag):
        """The text of the first element of that name."""
        for element in xml.fromstring(self.body).iter():
            if element.tag.rsplit("}", 1)[-1] == tag:
                return element.text
        return None

    def texts_of(self, tag):
        return [one.text for one in xml.fromstring(self.body).iter() if one.tag.rsplit("}", 1)[-1] == tag]


class Client:
    """One connection, which is made again after a failure."""

    def __init__(self, server, bucket="proofs"):
        self.host, self.bucket = server.s3, bucket
        self.connection = None

    def close(self):
        if self.connection:
            self.connection.close()
        self.connection = None

    def begin(self, method, key="", query="", headers=None, body=b""):
        """Sends a request, and gives the answer whose body is still to be read."""
        path = f"/{self.bucket}/{urllib.parse.quote(key)}" + (f"?{query}" if query else "")
        signed = signed_headers(method, self.host, path, headers or {})
        try:
            if self.connection is None:
                name, port = self.host.split(":")
                self.connection = http.client.HTTPConnection(name, int(port), timeout=REQUEST_TIMEOUT_S)
            self.connection.request(method, path, body, signed)
            return self.connection.getresponse()
        except (OSError, http.client.HTTPException) as error:
            self.close()
            raise Unknown(f"{method} {path}: {error!r}") from error

    def ask(self, method, key="", query="", headers=None, body=b""):
        """Sends a request, and gives the whole answer. A status from 500 on is as good as none."""
        reply = self.begin(method, key, query, headers, body)
        try:
            answer = Reply(reply.status, reply.headers, reply.read())
        except (OSError, http.client.HTTPException) as error:
            self.close()
            raise Unknown(f"{method} {key}: {error!r}") from error
        if answer.status >= 500:
            raise Unknown(f"{method} {key}?{query}: {answer.status} {answer.body[:300]!r}")
        return answer

    def done(self, *arguments, **named):
        """As `ask`, for a request that must succeed."""
        answer = self.ask(*arguments, **named)
        node.require(answer.status in (200, 204), f"{arguments[:3]}: {answer.status} {answer.body[:300]!r}")
        return answer

    def delete_all(self, keys):
        """Deletes several objects with one request."""
        objects = "".join(f"<Object><Key>{key}</Key></Object>" for key in keys)
        body = f"<Delete>{objects}</Delete>".encode()
        headers = {"content-md5": base64.b64encode(hashlib.md5(body).digest()).decode()}
        answer = self.done("POST", "", "delete=", headers, body)
        node.require(b"<Error>" not in answer.body, f"deleting {keys}: {answer.body[:300]!r}")

    def begin_upload(self, key, headers=None):
        return self.done("POST", key, "uploads=", headers).text_of("UploadId")

    def put_part(self, key, upload, number, body):
        return self.done("PUT", key, f"partNumber={number}&uploadId={upload}", body=body).headers["etag"]

    def complete(self, key, upload, etags):
        parts = "".join(
            f"<Part><PartNumber>{number}</PartNumber><ETag>{etag}</ETag></Part>" for number, etag in enumerate(etags, 1)
        )
        body = f"<CompleteMultipartUpload>{parts}</CompleteMultipartUpload>".encode()
        answer = self.done("POST", key, f"uploadId={upload}", body=body)
        # S3 may begin with 200 and tell a failure in the document.
        if b"<Error>" in answer.body:
            raise Unknown(f"completing {key}: {answer.body[:300]!r}")
        return answer
