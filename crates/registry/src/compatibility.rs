//! Whether a schema fits the ones before it.

use millrace_avro::{Schema, check_readable};

use crate::level::Level;

/// Points that one check reports. More would not help a reader.
const POINTS: usize = 100;

/// Where `new` breaks the level, for each of the given earlier versions. They are all versions that the level concerns.
pub(crate) fn breaches<'a>(
    level: Level,
    new: &Schema,
    earlier: impl Iterator<Item = (u32, &'a Schema)>,
) -> Vec<String> {
    let mut points = Vec::new();
    for (version, old) in earlier {
        if level.is_backward() {
            add(&mut points, old, new, &format!("the new schema cannot read version {version}"));
        }
        if level.is_forward() {
            add(&mut points, new, old, &format!("version {version} cannot read the new schema"));
        }
        if points.len() >= POINTS {
            break;
        }
    }
    points
}

fn add(points: &mut Vec<String>, writer: &Schema, reader: &Schema, what: &str) {
    if let Err(places) = check_readable(writer, reader) {
        let room = POINTS.saturating_sub(points.len());
        points.extend(places.into_iter().take(room).map(|place| {
            let at = if place.path.is_empty() { "." } else { &place.path };
            format!("{what}: {at}: {}", place.message)
        }));
    }
}
