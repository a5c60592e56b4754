//! JSON objects that strangers send. A derived reader of a struct takes an array as well, its members by position,
//! which nobody means: a mistake would take effect.

use std::fmt;
use std::marker::PhantomData;

use serde::de::value::MapAccessDeserializer;
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

/// What is read from an object, and from nothing else.
pub struct Object<T>(pub T);

struct OnlyObjects<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for OnlyObjects<T> {
    type Value = T;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<T, A::Error> {
        T::deserialize(MapAccessDeserializer::new(map))
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(OnlyObjects(PhantomData)).map(Object)
    }
}

/// A list of [`Object`]s, for `#[serde(deserialize_with = "…")]`.
///
/// # Errors
/// The deserializer's, also for what is no object.
pub fn objects<'de, D: Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<Vec<T>, D::Error> {
    let all: Vec<Object<T>> = Vec::deserialize(deserializer)?;
    Ok(all.into_iter().map(|one| one.0).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq, Deserialize)]
    struct Point<'a> {
        x: i64,
        #[serde(borrow, default)]
        name: Option<&'a str>,
    }

    #[derive(Deserialize)]
    struct Line<'a> {
        #[serde(borrow, deserialize_with = "objects")]
        points: Vec<Point<'a>>,
    }

    fn read(text: &str) -> Result<Vec<Point<'_>>, serde_json::Error> {
        serde_json::from_str::<Object<Line<'_>>>(text).map(|line| line.0.points)
    }

    #[test]
    fn an_array_is_no_object_wherever_it_stands() {
        let points = [Point { x: 1, name: Some("a") }, Point { x: 2, name: None }];
        assert_eq!(read(r#"{"points":[{"x":1,"name":"a"},{"name":null,"x":2}]}"#).expect("objects"), points);
        for array in [r#"[[{"x":1}]]"#, r#"{"points":[[1,"a"]]}"#] {
            let message = read(array).expect_err(array).to_string();
            assert!(message.contains("invalid type: sequence, expected an object"), "{message}");
        }
    }
}
