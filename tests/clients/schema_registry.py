"""The Schema Registry's URLs as its own client uses them, and records as another Avro library writes them.

    schema_registry.py BINARY        BINARY: the server to test, target/release/millrace

Starts the server on a free port over a temporary folder, with an API key that the client sends as the password of
`basic.auth.user.info`. Needs what requirements.txt lists, no Kafka. scripts/check-clients.sh installs and runs it.
"""

import datetime
import decimal
import io
import json
import pathlib
import re
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import urllib.error
import urllib.request
import uuid

import fastavro
from confluent_kafka.schema_registry import (
    ConfigCompatibilityLevel, Schema, SchemaReference, SchemaRegistryClient, ServerConfig,
)
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.error import SchemaRegistryError
from confluent_kafka.serialization import MessageField, SerializationContext

BINARY = "target/release/millrace"
NOTE = {"name": "note", "type": "string", "default": ""}
PRICE = {"name": "price", "type": "double"}


class Server:
    """A server of this test's own."""

    def __init__(self, *, has_keys=True):
        self.folder = tempfile.TemporaryDirectory(prefix="millrace-client-")
        folder = pathlib.Path(self.folder.name)
        keys, needs = str(folder / "keys.json"), []
        if has_keys:
            made = subprocess.run([BINARY, "keys", "--keys", keys, "add", "test", "--role", "admin"],
                                  check=True, capture_output=True, text=True)
            self.key, needs = made.stdout.strip(), ["--keys", keys]
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        self.log = open(folder / "log", "w+b")
        self.process = subprocess.Popen(
            [BINARY, "serve", "--http", f"127.0.0.1:{port}", "--data", str(folder / "data"), "--cores", "2", *needs],
            stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log)
        try:
            self.wait()
        except BaseException:
            self.stop()
            raise

    def wait(self):
        for _ in range(600):
            if self.process.poll() is not None:
                self.log.seek(0)
                raise RuntimeError(f"the server ended: {self.log.read().decode(errors='replace')}")
            try:
                urllib.request.urlopen(self.url + "/readyz", timeout=1).close()
                return
            except OSError:
                time.sleep(0.05)
        raise RuntimeError("the server is not ready after half a minute")

    def stop(self):
        self.process.terminate()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.log.close()
        self.folder.cleanup()

    def ask(self, method, path, body=None, **headers):
        """One request; its status, headers and body."""
        headers = {name.replace("_", "-"): value for name, value in headers.items()}
        request = urllib.request.Request(self.url + path, body, {"Authorization": f"Bearer {self.key}", **headers},
                                         method=method)
        try:
            with urllib.request.urlopen(request, timeout=30) as reply:
                return reply.status, reply.headers, reply.read()
        except urllib.error.HTTPError as refused:
            with refused:
                return refused.code, refused.headers, refused.read()


def setUpModule():
    global SERVER
    SERVER = Server()


def tearDownModule():
    SERVER.stop()


def client(**settings):
    """A client with nothing in its caches: it asks the server."""
    return SchemaRegistryClient({"url": SERVER.url, **(settings or {"basic.auth.user.info": f"anybody:{SERVER.key}"})})


def order(*more, name="Order"):
    fields = [{"name": "id", "type": "long"}, {"name": "item", "type": "string"}, *more]
    return Schema(json.dumps({"type": "record", "name": name, "namespace": "shop", "fields": fields}), "AVRO")


class Case(unittest.TestCase):
    def setUp(self):
        self.subject = f"{self.id().rsplit('.', 1)[-1]}-value"

    def assert_refused(self, status, code, action):
        """The client learns this HTTP status and this error code of the Registry."""
        with self.assertRaises(SchemaRegistryError) as caught:
            action()
        error = caught.exception
        self.assertEqual((error.http_status_code, error.error_code), (status, code), error.error_message)

    def assert_same(self, got, wanted):
        self.assertEqual(json.loads(got.schema_str), json.loads(wanted.schema_str))


class Registering(Case):
    def test_a_schema_has_one_id_however_often_and_wherever_it_is_registered(self):
        first = client().register_schema(self.subject, order())
        self.assertEqual(client().register_schema(self.subject, order()), first)
        self.assertEqual(client().register_schema(self.subject + "2", order()), first)
        spaced = Schema(json.dumps(json.loads(order().schema_str), indent=2), "AVRO")
        self.assertEqual(client().register_schema(self.subject, spaced), first)
        self.assertEqual(client().register_schema(self.subject, spaced, normalize_schemas=True), first)
        self.assertEqual(client().get_versions(self.subject), [1])
        second = client().register_schema_full_response(self.subject, order(NOTE)).schema_id
        self.assertNotEqual(second, first)
        self.assertEqual(client().get_versions(self.subject), [1, 2])

    def test_what_was_registered_is_read_by_id_version_and_content(self):
        first, second = (client().register_schema(self.subject, schema) for schema in (order(), order(NOTE)))
        self.assert_same(client().get_schema(first), order())
        self.assert_same(client().get_schema(second, subject_name=self.subject), order(NOTE))
        one = client().get_version(self.subject, 1)
        self.assertEqual((one.subject, one.version, one.schema_id), (self.subject, 1, first))
        latest = client().get_latest_version(self.subject)
        self.assertEqual((latest.version, latest.schema_id), (2, second))
        self.assertEqual(client().get_version(self.subject, "latest").version, 2)
        self.assertEqual(client().lookup_schema(self.subject, order()).version, 1)
        self.assertIn(self.subject, client().get_subjects_by_schema_id(first))
        places = [(place.subject, place.version) for place in client().get_schema_versions(second)]
        self.assertIn((self.subject, 2), places)
        self.assertEqual(client().get_schema_types(), ["AVRO"])

    def test_lists_come_in_pages(self):
        for schema in (order(), order(NOTE)):
            client().register_schema(self.subject, schema)
        self.assertEqual(client().get_versions(self.subject, offset=1, limit=1), [2])
        self.assertEqual(client().get_versions(self.subject, offset=2, limit=1), [])
        self.assertEqual(client().get_subjects(subject_prefix=self.subject), [self.subject])
        self.assertEqual(len(client().get_subjects(offset=0, limit=1)), 1)

    def test_any_text_can_be_a_subject_and_any_schema_be_kept(self):
        for name in ("a.b.C", "with space", "größe", "a/b", "100%", "x" * 200):
            with self.subTest(name):
                self.assertEqual(client().register_schema(name, order()), client().get_latest_version(name).schema_id)
                self.assertEqual(client().delete_subject(name), [1])
        client().register_schema(self.subject, Schema('"string"', "AVRO"))
        self.assertEqual(json.loads(client().get_latest_version(self.subject).schema.schema_str), "string")

    def test_many_clients_register_at_once(self):
        failures, ids = [], []

        def register(number):
            try:
                ids.append(client().register_schema(f"{self.subject}-{number}", order(name=f"Many{number}")))
            except SchemaRegistryError as error:
                failures.append(str(error))

        threads = [threading.Thread(target=register, args=(number,)) for number in range(24)]
        for step in (threading.Thread.start, threading.Thread.join):
            for thread in threads:
                step(thread)
        self.assertEqual(failures, [])
        self.assertEqual(len(set(ids)), 24, "ids are unique")


class Errors(Case):
    def test_what_is_not_there_has_its_own_number(self):
        client().register_schema(self.subject, order())
        for action in (lambda: client().get_versions("none"), lambda: client().get_latest_version("none"),
                       lambda: client().lookup_schema("none", order()), lambda: client().delete_subject("none")):
            self.assert_refused(404, 40401, action)
        self.assert_refused(404, 40402, lambda: client().get_version(self.subject, 9))
        self.assert_refused(404, 40402, lambda: client().delete_version(self.subject, 9))
        self.assert_refused(422, 42202, lambda: client().get_version(self.subject, "nine"))
        self.assert_refused(404, 40403, lambda: client().lookup_schema(self.subject, order(NOTE)))
        self.assert_refused(404, 40403, lambda: client().get_schema(2_000_000_000))

    def test_what_cannot_be_registered_changes_nothing(self):
        client().register_schema(self.subject, order())
        for bad in ('{"type":"recrod"}', "{", ""):
            self.assert_refused(422, 42201, lambda: client().register_schema(self.subject, Schema(bad, "AVRO")))
        other = Schema('syntax = "proto3"; message M {}', "PROTOBUF")
        self.assert_refused(422, 42201, lambda: client().register_schema(self.subject, other))
        self.assert_refused(409, 409, lambda: client().register_schema(self.subject, order(PRICE)))
        self.assertEqual(client().get_versions(self.subject), [1])

    def test_a_wrong_password_is_unauthorized_and_a_bearer_token_does_as_well(self):
        wrong = {"basic.auth.user.info": f"anybody:{SERVER.key[:-1]}"}
        self.assert_refused(401, 40101, lambda: client(**wrong).get_subjects())
        bearer = {"bearer.auth.credentials.source": "STATIC_TOKEN", "bearer.auth.token": SERVER.key,
                  "bearer.auth.logical.cluster": "none", "bearer.auth.identity.pool.id": "none"}
        self.assertIsInstance(client(**bearer).get_subjects(), list)


class Rules(Case):
    def test_a_schema_is_tested_against_the_level_before_it_is_registered(self):
        client().register_schema(self.subject, order())
        self.assertTrue(client().test_compatibility(self.subject, order(NOTE)))
        self.assertFalse(client().test_compatibility(self.subject, order(PRICE)))
        self.assertFalse(client().test_compatibility(self.subject, order(PRICE), version=1, verbose=True))
        self.assertTrue(client().test_compatibility_all_versions(self.subject, order(NOTE)))
        self.assert_refused(404, 40402, lambda: client().test_compatibility(self.subject, order(), version=9))

    def test_a_level_is_set_heeded_and_taken_away(self):
        client().register_schema(self.subject, order())
        self.assert_refused(404, 40408, lambda: client().get_config(self.subject))
        self.assertEqual(client().set_compatibility(self.subject, "FORWARD")["compatibility"], "FORWARD")
        self.assertEqual(client().get_compatibility(self.subject), "FORWARD")
        self.assertTrue(client().test_compatibility(self.subject, order(PRICE)))
        client().set_config(self.subject, ServerConfig(compatibility=ConfigCompatibilityLevel.NONE))
        client().register_schema(self.subject, Schema('{"type":"record","name":"Other","fields":[]}', "AVRO"))
        client().delete_config(self.subject)
        self.assert_refused(404, 40408, lambda: client().get_config(self.subject))
        self.assert_refused(422, 42203, lambda: client().set_compatibility(self.subject, "sideways"))

    def test_the_level_for_all_holds_where_none_was_set(self):
        client().register_schema(self.subject, order(NOTE))
        self.assertEqual(client().get_compatibility(), "BACKWARD")
        client().set_compatibility(level="FULL")
        self.addCleanup(lambda: client().set_compatibility(level="BACKWARD"))
        self.assertFalse(client().test_compatibility(self.subject, order(PRICE, NOTE)))

    def test_a_mode_is_set_heeded_and_taken_away(self):
        client().register_schema(self.subject, order())
        self.assertEqual(client().get_global_mode(), "READWRITE")
        self.assertEqual(client().update_mode(self.subject, "READONLY"), "READONLY")
        self.assert_refused(422, 42205, lambda: client().register_schema(self.subject, order(NOTE)))
        client().register_schema(self.subject + "2", order())
        client().delete_mode(self.subject)
        self.assert_refused(404, 40409, lambda: client().get_mode(self.subject))
        client().register_schema(self.subject, order(NOTE))
        self.assert_refused(422, 42204, lambda: client().update_mode(self.subject, "SIDEWAYS"))


class References(Case):
    def test_a_schema_uses_types_of_another_subject_which_then_stays(self):
        base, user = "address-value", "person-value"
        used = client().register_schema(base, Schema(json.dumps(
            {"type": "record", "name": "shop.Address", "fields": [{"name": "city", "type": "string"}]}), "AVRO"))
        person = Schema(json.dumps({"type": "record", "name": "Person", "fields": [
            {"name": "name", "type": "string"}, {"name": "home", "type": "shop.Address"}]}), "AVRO",
            [SchemaReference("shop.Address", base, 1)])
        using = client().register_schema(user, person)
        self.assertNotEqual(using, used)
        got = client().get_schema(using).references
        self.assertEqual([(to.name, to.subject, to.version) for to in got], [("shop.Address", base, 1)])
        self.assertEqual(client().get_referenced_by(base, 1), [using])
        self.assert_refused(422, 42206, lambda: client().delete_version(base, 1))
        self.assert_refused(422, 42206, lambda: client().delete_subject(base))
        dangling = Schema(person.schema_str, "AVRO", [SchemaReference("shop.Address", "nowhere", 1)])
        self.assert_refused(422, 42201, lambda: client().register_schema("dangling", dangling))
        context = SerializationContext("person", MessageField.VALUE)
        value = {"name": "Ada", "home": {"city": "London"}}
        message = AvroSerializer(client(), person, conf={"auto.register.schemas": False})(value, context)
        self.assertEqual(AvroDeserializer(client())(message, context), value)
        client().delete_subject(user)
        self.assertEqual(client().delete_subject(base), [1])


class Deleting(Case):
    def test_a_version_is_hidden_first_and_then_removed(self):
        first, _ = (client().register_schema(self.subject, schema) for schema in (order(), order(NOTE)))
        self.assert_refused(404, 40407, lambda: client().delete_version(self.subject, 1, permanent=True))
        self.assertEqual(client().delete_version(self.subject, 1), 1)
        self.assertEqual(client().get_versions(self.subject), [2])
        self.assert_refused(404, 40402, lambda: client().get_version(self.subject, 1))
        self.assert_refused(404, 40406, lambda: client().delete_version(self.subject, 1))
        self.assertEqual(client().get_versions(self.subject, deleted=True), [1, 2])
        self.assertEqual(client().get_version(self.subject, 1, deleted=True).schema_id, first)
        self.assert_same(client().get_schema(first), order())
        self.assert_refused(404, 40403, lambda: client().lookup_schema(self.subject, order()))
        self.assertEqual(client().lookup_schema(self.subject, order(), deleted=True).version, 1)
        self.assertEqual(client().delete_version(self.subject, 1, permanent=True), 1)
        self.assertEqual(client().get_versions(self.subject, deleted=True), [2])

    def test_a_subject_is_hidden_first_and_then_removed(self):
        only = client().register_schema(self.subject, order(name="Deleted"))
        self.assert_refused(404, 40405, lambda: client().delete_subject(self.subject, permanent=True))
        client().delete_subject(self.subject)
        self.assertNotIn(self.subject, client().get_subjects())
        self.assertIn(self.subject, client().get_subjects(deleted=True))
        self.assert_refused(404, 40404, lambda: client().delete_subject(self.subject))
        self.assertEqual(client().register_schema(self.subject, order(name="Deleted")), only, "the old id again")
        self.assertEqual(client().get_versions(self.subject), [2], "but not the old version")
        client().delete_subject(self.subject)
        self.assertEqual(client().delete_subject(self.subject, permanent=True), [1, 2])
        self.assertNotIn(self.subject, client().get_subjects(deleted=True))
        self.assert_refused(404, 40403, lambda: client().get_schema(only))
        self.assertGreater(client().register_schema(self.subject, order(name="Deleted")), only, "no id is given twice")


class Messages(Case):
    def test_a_message_names_its_schema_and_is_read_with_earlier_and_later_ones(self):
        context = SerializationContext("orders", MessageField.VALUE)
        value = {"id": 7, "item": "bolt"}
        message = AvroSerializer(client(), order())(value, context)
        known = client().get_latest_version("orders-value")
        self.assertEqual((message[0], int.from_bytes(message[1:5], "big")), (0, known.schema_id))
        self.assertEqual(AvroDeserializer(client())(message, context), value)
        self.assertEqual(AvroDeserializer(client(), order(NOTE))(message, context), {**value, "note": ""})
        newer = AvroSerializer(client(), order(NOTE))({**value, "note": "soon"}, context)
        self.assertEqual(AvroDeserializer(client(), order())(newer, context), value)
        latest = AvroSerializer(client(), None, conf={"auto.register.schemas": False, "use.latest.version": True})
        self.assertEqual(AvroDeserializer(client())(latest({**value, "note": "now"}, context), context)["note"], "now")
        unfit = AvroSerializer(client(), order(PRICE))
        self.assert_refused(409, 409, lambda: unfit({**value, "price": 1.5}, context))


EVENT = {"type": "record", "name": "Event", "namespace": "shop", "fields": [
    {"name": "name", "type": "string"},
    {"name": "raw", "type": "bytes"},
    {"name": "hash", "type": {"type": "fixed", "name": "Hash", "size": 4}},
    {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["NEW", "OLD"]}},
    {"name": "ratio", "type": "float"},
    {"name": "exact", "type": "double"},
    {"name": "big", "type": "long"},
    {"name": "tags", "type": {"type": "map", "values": {"type": "array", "items": ["null", "int", "string"]}}},
    {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 3}},
    {"name": "small", "type": {"type": "fixed", "name": "Small", "size": 6, "logicalType": "decimal",
                               "precision": 10, "scale": 2}},
    {"name": "key", "type": {"type": "string", "logicalType": "uuid"}},
    {"name": "day", "type": {"type": "int", "logicalType": "date"}},
    {"name": "clock", "type": {"type": "int", "logicalType": "time-millis"}},
    {"name": "fine", "type": {"type": "long", "logicalType": "time-micros"}},
    {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    {"name": "exactly", "type": {"type": "long", "logicalType": "timestamp-micros"}},
    {"name": "local", "type": {"type": "long", "logicalType": "local-timestamp-millis"}},
    {"name": "next", "type": ["null", "Event"], "default": None},
]}
UTC = datetime.timezone.utc


def event(**more):
    return {
        "name": "größe \N{SNOWMAN}\x00", "raw": bytes(range(256)), "hash": b"\x00\xff\x7f\x80", "kind": "OLD",
        "ratio": 0.5, "exact": -1.1e300, "big": -(2**63), "tags": {"a": [None, -1, "x"], "": []},
        "price": decimal.Decimal("-12345.678"), "small": decimal.Decimal("99999999.99"), "key": uuid.UUID(int=2**127 + 7),
        "day": datetime.date(1969, 12, 31), "clock": datetime.time(23, 59, 59, 999000),
        "fine": datetime.time(0, 0, 0, 1), "at": datetime.datetime(2038, 1, 19, 3, 14, 8, 1000, UTC),
        "exactly": datetime.datetime(1960, 2, 29, 1, 2, 3, 456789, UTC),
        "local": datetime.datetime(2024, 3, 31, 2, 30), "next": None, **more,
    }


class Records(Case):
    """What fastavro writes is a record here, and what a record is here fastavro reads."""

    @classmethod
    def setUpClass(cls):
        status, _, body = SERVER.ask("PUT", "/schemas/event", json.dumps({"schema": EVENT}).encode())
        assert status == 201, body

    def written(self, schema, value):
        out = io.BytesIO()
        fastavro.schemaless_writer(out, schema, value)
        return out.getvalue()

    def put(self, path, body, kind="avro/binary"):
        status, headers, answer = SERVER.ask("PUT", path, body, Content_Type=kind)
        self.assertIn(status, (200, 201), answer)
        return headers

    def test_a_value_goes_to_the_server_and_back_whole(self):
        schema, value = fastavro.parse_schema(EVENT), event(next=event(kind="NEW", tags={"b": ["x"] * 1000}))
        sent = self.written(schema, value)
        self.put("/records/event/1", sent)
        status, headers, got = SERVER.ask("GET", "/records/event/1", Accept="avro/binary")
        self.assertEqual((status, headers["Content-Type"]), (200, "avro/binary"))
        self.assertEqual(fastavro.schemaless_reader(io.BytesIO(got), schema, schema), value)
        self.assertEqual(got, sent, "one value has one encoding")
        known = client().get_schema(int(headers["Millrace-Schema-Id"]))
        self.assertEqual(json.loads(known.schema_str), EVENT)
        # Behind the header that Confluent's messages have, it is such a message.
        message = b"\0" + int(headers["Millrace-Schema-Id"]).to_bytes(4, "big") + got
        context = SerializationContext("event", MessageField.VALUE)
        self.assertEqual(AvroDeserializer(client())(message, context), value)

    def test_logical_types_are_readable_in_json_and_come_back_from_it(self):
        schema = fastavro.parse_schema(EVENT)
        self.put("/records/event/2", self.written(schema, event()))
        _, _, text = SERVER.ask("GET", "/records/event/2")
        shown = json.loads(text)
        self.assertEqual((shown["price"], shown["small"]), ("-12345.678", "99999999.99"))
        self.assertEqual((shown["key"], shown["day"]), (str(uuid.UUID(int=2**127 + 7)), "1969-12-31"))
        self.assertEqual(datetime.datetime.fromisoformat(shown["exactly"].replace("Z", "+00:00")), event()["exactly"])
        self.put("/records/event/3", text, "application/json")
        _, _, got = SERVER.ask("GET", "/records/event/3", Accept="avro/binary")
        self.assertEqual(fastavro.schemaless_reader(io.BytesIO(got), schema, schema), event())

    def test_avro_json_is_that_of_the_specification(self):
        schema = fastavro.parse_schema(EVENT)
        self.put("/records/event/4", self.written(schema, event()))
        _, headers, text = SERVER.ask("GET", "/records/event/4", Accept="application/avro+json")
        self.assertEqual(headers["Content-Type"], "application/avro+json")
        self.assertEqual(list(fastavro.json_reader(io.StringIO(text.decode()), schema)), [event()])
        out = io.StringIO()
        fastavro.json_writer(out, schema, [event(name="again")])
        self.put("/records/event/5", out.getvalue().encode(), "application/avro+json")
        _, _, got = SERVER.ask("GET", "/records/event/5", Accept="avro/binary")
        self.assertEqual(fastavro.schemaless_reader(io.BytesIO(got), schema, schema), event(name="again"))

    def test_what_is_cut_short_or_too_long_is_refused(self):
        sent = self.written(fastavro.parse_schema(EVENT), event())
        for body in (b"", sent[:-1], sent[: len(sent) // 2], sent + b"\0", b"\xff" * 100):
            status, _, answer = SERVER.ask("PUT", "/records/event/6", body, Content_Type="avro/binary")
            self.assertEqual((status, json.loads(answer)["code"]), (422, "wrong-type"))
        self.assertEqual(SERVER.ask("GET", "/records/event/6")[0], 404)

    def test_a_later_schema_reads_what_an_earlier_one_wrote(self):
        one = {"type": "record", "name": "Grown", "fields": [{"name": "n", "type": "int"}]}
        two = {"type": "record", "name": "Grown", "fields": [
            {"name": "s", "type": "string", "default": "new"}, {"name": "n", "type": "double"}]}
        self.assertEqual(SERVER.ask("PUT", "/schemas/grown", json.dumps(one).encode())[0], 201)
        self.put("/records/grown/1", self.written(one, {"n": 7}))
        client().register_schema("grown", Schema(json.dumps(two), "AVRO"))
        _, headers, got = SERVER.ask("GET", "/records/grown/1", Accept="avro/binary")
        writer = json.loads(client().get_schema(int(headers["Millrace-Schema-Id"])).schema_str)
        wanted = {"s": "new", "n": 7.0}
        self.assertEqual(fastavro.schemaless_reader(io.BytesIO(got), writer, two), wanted)
        self.assertEqual(json.loads(SERVER.ask("GET", "/records/grown/1")[2]), wanted)


class Guide(Case):
    """The guide's Python, as it is written there."""

    def test_what_the_guide_shows_works(self):
        guide = (pathlib.Path(__file__).parents[2] / "docs/guide/records.md").read_text()
        first, settings = re.findall(r"^```python\n(.*?)^```$", guide, re.DOTALL | re.MULTILINE)
        open_to_all = Server(has_keys=False)
        self.addCleanup(open_to_all.stop)
        shown = {}
        exec(first.replace("http://127.0.0.1:8080", open_to_all.url), shown)
        self.assertEqual(shown["client"].get_subjects(), ["orders-value"])
        ways = eval(f"[{settings.replace('}', '},')}]", {"KEY": SERVER.key})
        self.assertEqual(len(ways), 2)
        for way in ways:
            self.assertIsInstance(client(**{**way, "url": SERVER.url}).get_subjects(), list)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        BINARY = sys.argv.pop(1)
    # The client leaves its connections to the garbage collector, which Python would warn of.
    unittest.main(warnings="ignore")
