//! Ids and cursors that the server has returned, so that hostile requests reach existing rows.

use std::sync::{Mutex, PoisonError};

use serde_json::Value;

use crate::random::Random;

/// The number of ids, and of cursors, that are kept.
const KEPT: usize = 200;

/// Shared by all workers of a round.
#[derive(Debug, Default)]
pub struct Harvest {
    ids: Mutex<Vec<String>>,
    cursors: Mutex<Vec<String>>,
}

impl Harvest {
    /// Takes ids and cursors from a response.
    pub fn learn(&self, answer: &Value, random: &mut Random) {
        match answer {
            Value::Object(fields) => {
                for (name, value) in fields {
                    match (name.as_str(), value) {
                        ("id" | "event_id", Value::String(id)) => keep(&self.ids, id.clone(), random),
                        ("id", Value::Number(id)) => keep(&self.ids, id.to_string(), random),
                        ("next", Value::String(cursor)) => keep(&self.cursors, cursor.clone(), random),
                        (_, nested) => self.learn(nested, random),
                    }
                }
            }
            Value::Array(items) => items.iter().take(10).for_each(|item| self.learn(item, random)),
            _ => {}
        }
    }

    pub fn id(&self, random: &mut Random) -> Option<String> {
        random.pick(&self.ids.lock().unwrap_or_else(PoisonError::into_inner)).cloned()
    }

    pub fn cursor(&self, random: &mut Random) -> Option<String> {
        random.pick(&self.cursors.lock().unwrap_or_else(PoisonError::into_inner)).cloned()
    }
}

fn keep(kept: &Mutex<Vec<String>>, text: String, random: &mut Random) {
    let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
    if kept.len() < KEPT {
        kept.push(text);
    } else if let Some(place) =
        usize::try_from(random.below(KEPT as u64)).ok().and_then(|at| kept.get_mut(at))
    {
        *place = text;
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn ids_and_cursors_of_an_answer_are_used_again() {
        let (harvest, mut random) = (Harvest::default(), Random::new(1, "harvest"));
        assert_eq!((harvest.id(&mut random), harvest.cursor(&mut random)), (None, None));
        harvest.learn(&json!({ "items": [{ "id": 7, "title": "x" }], "next": "c" }), &mut random);
        assert_eq!(harvest.id(&mut random).as_deref(), Some("7"));
        assert_eq!(harvest.cursor(&mut random).as_deref(), Some("c"));
        for id in 0..1_000 {
            harvest.learn(&json!({ "id": id }), &mut random);
        }
        assert_eq!(harvest.ids.lock().unwrap().len(), KEPT);
    }
}
