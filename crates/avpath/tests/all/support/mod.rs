//! What the tests share: the reference's account, and JSON in and out.

use millrace_avpath::{Change, Parameters, Path, Predicate, UpdateError};
use millrace_avro::{JsonForm, Missing, Schema, canonicalise, from_json, to_json};
use serde_json::{Value, json};

pub const ACCOUNT: &str = r#"{"type":"record","name":"Account","fields":[
    {"name":"registerTime","type":"long","default":0},
    {"name":"lastLoginTime","type":"long","default":0},
    {"name":"id","type":"string","default":""},
    {"name":"chargeRecords","type":{"type":"array","items":{"type":"record","name":"ChargeRecord","fields":[
        {"name":"time","type":"long","default":0},{"name":"amount","type":"double","default":0}]}}},
    {"name":"devApps","type":{"type":"map","values":{"type":"record","name":"AppInfo","fields":[
        {"name":"appTimestamp","type":"long","default":0},{"name":"numBlackApps","type":"int","default":0},
        {"name":"numInstalledApps","type":"int","default":0}]}}}]}"#;

pub struct Record {
    pub schema: Schema,
    pub bytes: Vec<u8>,
}

pub fn encode(schema: &Schema, json: &Value) -> Vec<u8> {
    let mut bytes = Vec::new();
    from_json(schema, schema.root(), json.to_string().as_bytes(), JsonForm::Plain, Missing::Default, &mut bytes)
        .unwrap_or_else(|error| panic!("{error}: {json}"));
    bytes
}

pub fn decode(schema: &Schema, node: millrace_avro::NodeId, bytes: &[u8]) -> Value {
    let mut text = Vec::new();
    to_json(schema, node, bytes, JsonForm::Plain, &mut text).expect("a value");
    serde_json::from_slice(&text).expect("JSON")
}

impl Record {
    pub fn new(schema: &str, json: Value) -> Self {
        let schema = Schema::parse(schema, &[]).expect("a schema");
        let bytes = encode(&schema, &json);
        Self { schema, bytes }
    }

    pub fn account() -> Self {
        Self::new(
            ACCOUNT,
            json!({"registerTime": 10000, "lastLoginTime": 20000, "id": "abCd",
                "chargeRecords": [{"time": 1, "amount": 100.0}, {"time": 2, "amount": -50.0}],
                "devApps": {"a": {"numBlackApps": 1}, "b": {"numBlackApps": 2}, "c": {"numBlackApps": 3}}}),
        )
    }

    /// What a path selects, as a JSON array.
    pub fn select(&self, path: &str) -> Value {
        self.select_with(path, "")
    }

    pub fn select_with(&self, path: &str, parameters: &str) -> Value {
        let path = Path::parse(path).unwrap_or_else(|error| panic!("{path}: {error}"));
        let parameters = Parameters::parse(parameters).expect("parameters");
        let matches = path.select(&self.schema, &self.bytes, &parameters).expect("a result");
        matches.iter().map(|found| decode(&self.schema, found.node, &self.bytes[found.range.clone()])).collect()
    }

    pub fn holds(&self, predicate: &str) -> bool {
        self.holds_with(predicate, "")
    }

    pub fn holds_with(&self, predicate: &str, parameters: &str) -> bool {
        let read = Predicate::parse(predicate).unwrap_or_else(|error| panic!("{predicate}: {error}"));
        let parameters = Parameters::parse(parameters).expect("parameters");
        read.matches(&self.schema, &self.bytes, &parameters).expect("a result")
    }

    pub fn json(&self) -> Value {
        decode(&self.schema, self.schema.root(), &self.bytes)
    }

    /// Makes a change and returns how many places matched. The result must be canonical.
    pub fn change(&mut self, path: &str, change: Change<'_>) -> Result<usize, UpdateError> {
        let path = Path::parse(path).unwrap_or_else(|error| panic!("{path}: {error}"));
        let updated = path.update(&self.schema, &self.bytes, Parameters::NONE, change)?;
        let canonical = canonicalise(&self.schema, self.schema.root(), &updated.record);
        assert_eq!(canonical.as_ref(), Ok(&updated.record), "canonical");
        self.bytes = updated.record;
        Ok(updated.matched)
    }

    pub fn test(&self, path: &str, value: Option<&str>) -> bool {
        let path = Path::parse(path).expect("a path");
        path.test(&self.schema, &self.bytes, Parameters::NONE, value).expect("a result").holds
    }
}
