//! Functions that use objects of buckets, in their transactions.

use std::path::Path;

use millrace_tests::{Server, ServerOptions, assert_problem, has_programs};
use serde_json::{Value, json};

use crate::s3_objects::{S3, add_ann, cli, lines};

const CODE: &str = r#"
import { service, query, workflow, Abort } from "millrace";

const seen = (object) => object && { text: object.text(), sizeBytes: object.sizeBytes, type: object.contentType, metadata: object.metadata };

export default service({
  // Writes beside each other: the entity and the object.
  async save(ctx, { key, text, fail, options }) {
    ctx.set("saved", (ctx.get("saved") ?? 0) + 1);
    const written = await ctx.object("photos", key).put(text, options);
    if (fail) throw new Abort("no");
    const own = await ctx.object("photos", key).get();
    const { objects } = await ctx.objects("photos").list({ prefix: key });
    return { etag: written.etag, own: own.text(), listed: objects.length };
  },
  saved: query((ctx) => ctx.get("saved") ?? 0),
  read: query(async (ctx, { bucket, key }) => seen(await ctx.object(bucket, key).get())),
  size: query(async (ctx, key) => {
    const object = await ctx.object("photos", key).get();
    const bytes = object.bytes();
    return [object.sizeBytes, bytes.length, bytes[0], bytes[bytes.length - 1]];
  }),
  head: query(async (ctx, key) => (await ctx.object("photos", key).head())?.sizeBytes ?? null),
  list: query((ctx, options) => ctx.objects("photos").list(options)),
  remove: (ctx, key) => ctx.object("photos", key).delete(),
  async reason(ctx, { bucket, key, options }) {
    try {
      await ctx.object(bucket, key).put("x", options);
      return null;
    } catch (error) {
      return [error.code, error.reason ?? null];
    }
  },
  large: (ctx, bytes) => ctx.object("photos", "large").put(new Uint8Array(bytes)),
  forbidden: query((ctx) => ctx.object("photos", "k").put("x")),
  copy: workflow(async (ctx, { from, to }) => {
    const object = await ctx.object("photos", from).get();
    await ctx.object("photos", to).put(object.bytes());
    return object.sizeBytes;
  }),
});"#;

fn app(folder: &Path) -> String {
    let app = folder.join("gallery");
    std::fs::create_dir_all(&app).expect("a folder");
    std::fs::write(app.join("page.ts"), CODE).expect("written");
    app.to_str().expect("text").to_owned()
}

fn started(folder: &Path) -> (Server, S3) {
    let app = app(folder);
    let (options, s3) = S3::listen(ServerOptions::examples(&["counter"]).with(&["--app", &app]));
    let server = Server::start(options);
    add_ann(&server);
    for bucket in ["/photos", "/other"] {
        assert_eq!(s3.ask("PUT", bucket).0, 200);
    }
    assert_eq!(cli(&server, &["bucket", "app", "photos", "gallery"]).code, Some(0));
    (server, s3)
}

fn call(server: &Server, handler: &str, input: &Value) -> Value {
    server.value(&format!("page/p/{handler}"), &input.to_string())
}

#[test]
fn functions_use_objects_in_their_transaction() {
    if !has_programs(&["curl"]) {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let (mut server, s3) = started(folder.path());
    let apps: Vec<Value> = lines(&server, &["bucket", "list"]).iter().map(|bucket| bucket["app"].clone()).collect();
    assert_eq!(apps, [Value::Null, "gallery".into()], "by name: other, photos");
    assert_eq!(lines(&server, &["bucket", "app", "photos"])[0], json!({ "name": "photos", "app": "gallery" }));

    let options = json!({ "contentType": "text/plain", "metadata": { "Color": "red" } });
    let saved = call(&server, "save", &json!({ "key": "a", "text": "hello", "options": options }));
    assert_eq!(saved, json!({ "etag": "5d41402abc4b2a76b9719d911017c592", "own": "hello", "listed": 1 }));
    assert_eq!(s3.ask("GET", "/photos/a"), (200, "hello".to_owned()));
    let (_, headers) = s3.curl(&["-I"], "/photos/a").expect("a reply");
    let headers = headers.to_lowercase();
    assert!(headers.contains("content-type: text/plain") && headers.contains("x-amz-meta-color: red"), "{headers}");

    // Neither the object nor the field is there after an abort.
    let refused = server.call("page/p/save", r#"{"key":"a","text":"bye","fail":true}"#);
    assert_problem(&refused, 409, "aborted");
    assert_eq!((call(&server, "saved", &Value::Null), s3.ask("GET", "/photos/a").1), (json!(1), "hello".to_owned()));

    // What users put is read, also what lies in a body of its own, and what was put in parts.
    let body = format!("<{}>", "x".repeat((3 << 20) - 2));
    let file = folder.path().join("body");
    std::fs::write(&file, &body).expect("written");
    let data = format!("@{}", file.display());
    let put = |path: &str| s3.curl(&["-X", "PUT", "--data-binary", &data, "-H", "content-type:"], path);
    assert_eq!(put("/photos/users").expect("a reply").0, 200);
    let size = body.len();
    assert_eq!(call(&server, "size", &json!("users")), json!([size, size, b'<', b'>']));
    assert_eq!(call(&server, "head", &json!("users")), json!(size));
    assert_eq!(call(&server, "head", &json!("none")), Value::Null);

    // After a crash it is there.
    server.kill();
    server.restart();
    let read = call(&server, "read", &json!({ "bucket": "photos", "key": "a" }));
    assert_eq!(read, json!({ "text": "hello", "sizeBytes": 5, "type": "text/plain", "metadata": { "color": "red" } }));
    assert_eq!(call(&server, "read", &json!({ "bucket": "photos", "key": "none" })), Value::Null);
    let id = server.send("page/p/copy", r#"{"from":"a","to":"dir/b"}"#);
    assert_eq!(server.ended(&id)["output"], json!(5));
    let page = call(&server, "list", &json!({ "delimiter": "/", "limit": 2 }));
    assert_eq!(
        (&page["objects"][0]["key"], &page["prefixes"], &page["next"]),
        (&json!("a"), &json!(["dir/"]), &json!("dir/"))
    );
    let page = call(&server, "list", &json!({ "delimiter": "/", "after": "dir/" }));
    assert_eq!((&page["objects"][0]["key"], &page["next"]), (&json!("users"), &Value::Null));
    call(&server, "remove", &json!("a"));
    assert_eq!(s3.ask("GET", "/photos/a").0, 404);
}

#[test]
fn functions_use_buckets_of_their_app_and_those_that_a_policy_opens() {
    if !has_programs(&["curl"]) {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let (server, s3) = started(folder.path());
    let reason = |bucket: &str, options: Value| {
        call(&server, "reason", &json!({ "bucket": bucket, "key": "k", "options": options }))
    };
    assert_eq!(reason("other", json!({})), json!(["object-refused", "AccessDenied"]));
    assert_eq!(reason("none", json!({})), json!(["object-refused", "NoSuchBucket"]));
    assert_eq!(reason("photos", json!({ "ifNoneMatch": "*" })), Value::Null);
    assert_eq!(reason("photos", json!({ "ifNoneMatch": "*" })), json!(["object-refused", "PreconditionFailed"]));
    assert_eq!(reason("photos", json!({ "ifMatch": "0" })), json!(["object-refused", "PreconditionFailed"]));
    let policy = r#"{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Principal":{"App":"gallery"},"Action":"s3:PutObject","Resource":"arn:aws:s3:::other/*"}]}"#;
    assert_eq!(s3.put("/other?policy=", policy).0, 204);
    assert_eq!(reason("other", json!({})), Value::Null);
    let refused = server.call("page/p/read", r#"{"bucket":"other","key":"k"}"#);
    assert_problem(&refused, 409, "object-refused");
    // A query reads only, and what a function writes has a bound.
    assert!(server.call("page/p/forbidden", "null").status >= 400);
    assert_eq!(server.call("page/p/large", &(1 << 20).to_string()).status, 200);
    assert_problem(&server.call("page/p/large", &((1 << 20) + 1).to_string()), 500, "size-limit");
    // The bucket is taken away.
    assert_eq!(cli(&server, &["bucket", "app", "photos", "none"]).code, Some(0));
    assert_eq!(reason("photos", json!({})), json!(["object-refused", "AccessDenied"]));
    let output = cli(&server, &["bucket", "app", "photos", "no app"]);
    assert_eq!(output.code, Some(1), "{}", output.err);
}
