"""A browser and the S3 listener: downloads by presigned URLs, uploads by a form, and requests of a page of another origin.

    s3_browser.py [--binary FILE]

A page of its own HTTP server asks, as a web application would. Chromium runs without a window, by chromedriver, which speaks
WebDriver. `make s3-browser` installs both. Against another server: --endpoint URL --users FILE.
"""

import argparse
import contextlib
import http.server
import json
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
import uuid

import s3_clients
import s3_endpoint
from s3_clients import check

WAIT_TIMEOUT_S = 60
ELEMENT = "element-6066-11e4-a52e-4f735466cecf"  # the key that WebDriver gives elements


class Browser:
    """As much of WebDriver as is used here."""

    def __init__(self, downloads):
        self.address = s3_endpoint.free_address()
        port = self.address.rsplit(":", 1)[1]
        self.driver = subprocess.Popen(["chromedriver", f"--port={port}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.session = ""
        wait_until(self.is_ready, "chromedriver starts")
        options = {
            "args": ["--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"],
            "prefs": {"download.default_directory": str(downloads), "download.prompt_for_download": False},
        }
        asked = {"capabilities": {"alwaysMatch": {"browserName": "chrome", "goog:chromeOptions": options}}}
        self.session = f"/session/{self.call('POST', '/session', asked)['sessionId']}"

    def is_ready(self):
        try:
            return self.call("GET", "/status")["ready"]
        except OSError:
            return False

    def call(self, method, path, body=None):
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"http://{self.address}{path}", data, {"content-type": "application/json"}, method=method)
        try:
            with urllib.request.urlopen(request, timeout=WAIT_TIMEOUT_S) as answer:
                return json.load(answer)["value"]
        except urllib.error.HTTPError as error:
            raise AssertionError(f"the browser: {json.load(error)['value']['message'][:300]}") from None

    def open(self, url):
        self.call("POST", f"{self.session}/url", {"url": url})

    def url(self):
        return self.call("GET", f"{self.session}/url")

    def find(self, selector):
        found = self.call("POST", f"{self.session}/element", {"using": "css selector", "value": selector})
        return f"{self.session}/element/{found[ELEMENT]}"

    def type(self, selector, text):
        self.call("POST", f"{self.find(selector)}/value", {"text": text})

    def click(self, selector):
        self.call("POST", f"{self.find(selector)}/click", {})

    def text(self):
        return self.call("GET", f"{self.find('body')}/text")

    def run(self, script, *arguments):
        """Runs the body of an async function in the page; returns its value, or what it threw as text."""
        wrapped = (f"const done = arguments[arguments.length - 1];"
                   f"(async (...args) => {{ {script} }})(...arguments).then(done, (error) => done('threw ' + error));")
        return self.call("POST", f"{self.session}/execute/async", {"script": wrapped, "args": list(arguments)})

    def close(self):
        with contextlib.suppress(Exception):
            self.call("DELETE", self.session)
        self.driver.terminate()
        self.driver.wait()


def wait_until(holds, what):
    deadline = time.monotonic() + WAIT_TIMEOUT_S
    while not holds():
        check(time.monotonic() < deadline, f"not within {WAIT_TIMEOUT_S} s: {what}")
        time.sleep(0.05)


@contextlib.contextmanager
def pages(texts):
    """An HTTP server with pages, which is another origin than the S3 listener. Gives the origin."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            body = texts.get(self.path.split("?")[0], "").encode()
            self.send_response(200)
            self.send_header("content-type", "text/html; charset=utf-8")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()


def presigned_downloads(browser, client, bucket, folder):
    """A presigned URL shows a text, saves a file, and shows an error once it is changed."""
    client.put_object(Bucket=bucket, Key="a b/ü.txt", Body="grüße".encode(), ContentType="text/plain; charset=utf-8")
    sign = lambda **more: client.generate_presigned_url("get_object", {"Bucket": bucket, **more}, ExpiresIn=300)  # noqa: E731
    url = sign(Key="a b/ü.txt")
    browser.open(url)
    check(browser.text() == "grüße", f"the browser shows {browser.text()!r}")
    browser.open(url.replace("X-Amz-Expires=300", "X-Amz-Expires=3000"))
    check("SignatureDoesNotMatch" in browser.text(), f"a changed URL shows {browser.text()[:200]!r}")
    body = random.Random(18).randbytes(3 << 20)
    client.put_object(Bucket=bucket, Key="binary", Body=body)
    browser.open(sign(Key="binary", ResponseContentDisposition='attachment; filename="saved.bin"'))
    saved = folder / "downloads/saved.bin"
    wait_until(saved.exists, "the browser saves the file")
    check(saved.read_bytes() == body, "the saved file is another")


def form(post):
    hidden = "".join(f'<input type="hidden" name="{name}" value="{value}">' for name, value in post["fields"].items())
    return (f'<form action="{post["url"]}" method="post" enctype="multipart/form-data">{hidden}'
            f'<input type="file" name="file"><input type="submit"></form>')


def form_upload(browser, client, bucket, folder, origin, texts):
    """A form sends a file and leads back to the page; one whose policy forbids the file's length shows an error."""
    sent = folder / "chosen file.bin"
    sent.write_bytes(random.Random(19).randbytes(1 << 20))
    for limit, is_taken in ((1 << 20, True), (1000, False)):
        fields = {"success_action_redirect": f"{origin}/done", "Content-Type": "application/octet-stream"}
        conditions = [{name: value} for name, value in fields.items()]
        conditions += [["content-length-range", 0, limit], ["starts-with", "$key", "form/"]]
        key = f"form/{limit}/${{filename}}"
        texts["/form"] = form(client.generate_presigned_post(bucket, key, fields, conditions))
        browser.open(f"{origin}/form")
        browser.type("input[type=file]", str(sent))
        browser.click("input[type=submit]")
        if is_taken:
            wait_until(lambda: browser.url().startswith(f"{origin}/done"), "the form leads back")
            check(f"bucket={bucket}" in browser.url(), browser.url())
            got = client.get_object(Bucket=bucket, Key=f"form/{limit}/chosen file.bin")["Body"].read()
            check(got == sent.read_bytes(), "the form's file is another")
        else:
            wait_until(lambda: "EntityTooLarge" in browser.text(), "the form is refused")
            found = client.list_objects_v2(Bucket=bucket, Prefix=f"form/{limit}/")
            check(found["KeyCount"] == 0, "a file was stored that the policy forbids")


def cross_origin(browser, client, bucket, origin):
    """A page of another origin reads and writes only what the bucket's CORS rules allow."""
    client.put_object(Bucket=bucket, Key="cors", Body=b"hello")
    get = client.generate_presigned_url("get_object", {"Bucket": bucket, "Key": "cors"}, ExpiresIn=300)
    put = client.generate_presigned_url("put_object", {"Bucket": bucket, "Key": "cors", "Metadata": {"kind": "page"}}, ExpiresIn=300)
    read = "const reply = await fetch(args[0]); return [await reply.text(), reply.headers.get('etag')];"
    write = ("const reply = await fetch(args[0], {method: 'PUT', body: 'from the page', headers: {'x-amz-meta-kind': 'page'}});"
             "return [reply.status, reply.headers.get('etag')];")
    browser.open(f"{origin}/page")
    failed = "threw TypeError: Failed to fetch"
    check(browser.run(read, get) == failed, "a page read without a rule")
    check(browser.run(write, put) == failed, "a page wrote without a rule")
    rule = {"AllowedOrigins": [origin], "AllowedMethods": ["GET", "PUT"], "AllowedHeaders": ["*"], "ExposeHeaders": ["ETag"]}
    client.put_bucket_cors(Bucket=bucket, CORSConfiguration={"CORSRules": [rule]})
    tag = client.head_object(Bucket=bucket, Key="cors")["ETag"]
    check(browser.run(read, get) == ["hello", tag], f"read: {browser.run(read, get)}")
    status, tag = browser.run(write, put)
    stored = client.get_object(Bucket=bucket, Key="cors")
    check(status == 200 and stored["Body"].read() == b"from the page", f"the page's write: {status}")
    check(stored["ETag"] == tag and stored["Metadata"] == {"kind": "page"}, f"the page sees the ETag {tag}")
    # The same page by another name of this machine is another origin.
    browser.open(f"{origin.replace('127.0.0.1', 'localhost')}/page")
    check(browser.run(read, get) == failed, "a page of an origin without a rule read")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    s3_endpoint.add_arguments(parser)
    arguments = parser.parse_args()
    for program in ("chromedriver", "chromium"):
        if not shutil.which(program):
            raise SystemExit(f"{program} is not installed")
    texts = {"/page": "<p>page</p>", "/done": "<p>done</p>"}
    with tempfile.TemporaryDirectory(prefix="millrace-browser-") as name, s3_endpoint.endpoint(arguments) as server, \
            pages(texts) as origin:
        folder = pathlib.Path(name)
        (folder / "downloads").mkdir()
        client, bucket = s3_clients.boto3_client(server), f"browser-{uuid.uuid4().hex[:12]}"
        client.create_bucket(Bucket=bucket)
        browser = Browser(folder / "downloads")
        try:
            version = browser.call("GET", "/status")["build"]["version"].split()[0]
            presigned_downloads(browser, client, bucket, folder)
            form_upload(browser, client, bucket, folder, origin, texts)
            cross_origin(browser, client, bucket, origin)
        finally:
            browser.close()
        for key in s3_clients.all_keys(client, bucket):
            client.delete_object(Bucket=bucket, Key=key)
        client.delete_bucket(Bucket=bucket)
    print(f"Chromium {version}: presigned downloads, a form's upload, requests of another origin: ok")
    return 0


if __name__ == "__main__":
    sys.exit(main())
