//! Bodies that are almost right: a good one, bent in a few places, so that a reader gets deep before it refuses.
//!
//! Shared by the tests of everything that is said over the link and to people, in whichever crate reads it. The choices
//! follow a seed; `EVENKEEL_FUZZ_SEED` says another, `EVENKEEL_FUZZ_SECONDS` how long, which `scripts/fuzz-link` does.

use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};

use crate::dice::Dice;

/// Cases of each body in a run of the tests.
const CASES: u32 = 200;

/// The longest body that is made.
const BYTES_MAX: usize = 2 << 20;

/// Bends bodies.
pub struct BodyBender(Dice);

impl BodyBender {
    /// One that follows the environment's seed.
    pub fn seeded() -> Self {
        let seed = std::env::var("EVENKEEL_FUZZ_SEED").ok().and_then(|text| text.parse().ok());
        Self(Dice::new(seed.unwrap_or(1)))
    }

    /// Whether there is time for another case.
    pub fn goes_on(case: u32, began: Instant) -> bool {
        let seconds = std::env::var("EVENKEEL_FUZZ_SECONDS").ok();
        match seconds.and_then(|text| text.parse().ok()) {
            Some(seconds) => began.elapsed() < Duration::from_secs(seconds),
            None => case < CASES,
        }
    }

    /// A number below a bound.
    pub fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.0.any() % (bound.max(1) as u64)).unwrap_or(0)
    }

    /// A good body, bent.
    pub fn bend(&mut self, good: &Value) -> Vec<u8> {
        let mut bent = good.clone();
        for _ in 0..=self.below(3) {
            self.bend_value(&mut bent);
        }
        let mut bytes = serde_json::to_vec(&bent).unwrap_or_default();
        if self.below(3) == 0 {
            self.bend_bytes(&mut bytes);
        }
        bytes.truncate(BYTES_MAX);
        bytes
    }

    /// Somewhere in it something is another thing.
    fn bend_value(&mut self, value: &mut Value) {
        let here = self.below(4) == 0;
        match value {
            Value::Object(fields) if !fields.is_empty() && !here => {
                let names: Vec<String> = fields.keys().cloned().collect();
                let name = &names[self.below(names.len())];
                match self.below(6) {
                    0 => {
                        fields.remove(name);
                    }
                    1 => {
                        let moved = fields.remove(name).unwrap_or_default();
                        fields.insert(format!("{name}x"), moved);
                    }
                    _ => {
                        if let Some(inner) = fields.get_mut(name) {
                            self.bend_value(inner);
                        }
                    }
                }
            }
            Value::Array(items) if !items.is_empty() && !here => {
                let at = self.below(items.len());
                match self.below(5) {
                    0 => {
                        items.remove(at);
                    }
                    1 => {
                        let same = items[at].clone();
                        items.extend(std::iter::repeat_n(same, self.below(40)));
                    }
                    _ => self.bend_value(&mut items[at]),
                }
            }
            Value::String(text) if self.below(2) == 0 => self.bend_text(text),
            Value::Null
            | Value::Bool(_)
            | Value::Number(_)
            | Value::String(_)
            | Value::Array(_)
            | Value::Object(_) => *value = self.strange(),
        }
    }

    fn bend_text(&mut self, text: &mut String) {
        let places: Vec<usize> = text.char_indices().map(|(at, _)| at).collect();
        let at = places.get(self.below(places.len())).copied().unwrap_or(0);
        match self.below(5) {
            0 => text.truncate(at),
            1 => text.insert(at, '\0'),
            2 => text.insert_str(at, "ü\u{202e}\n"),
            3 => *text = text.repeat(1 + self.below(50)),
            _ => text.insert_str(at, "../"),
        }
    }

    fn strange(&mut self) -> Value {
        match self.below(16) {
            0 => Value::Null,
            1 => json!(true),
            2 => json!(-1),
            3 => json!(0),
            4 => json!(u64::MAX),
            5 => json!(i64::MIN),
            6 => json!(1.5e308),
            7 => json!(""),
            8 => json!("evke_0000"),
            9 => json!("*"),
            10 => json!("18446744073709551616"),
            11 => json!([]),
            12 => json!({}),
            13 => json!("a".repeat(self.below(70_000))),
            14 => {
                let many = (0..self.below(300)).map(|number| (format!("k{number}"), json!(number)));
                Value::Object(many.collect::<Map<String, Value>>())
            }
            _ => (0..self.below(200)).fold(json!(1), |inner, _| json!([inner])),
        }
    }

    fn bend_bytes(&mut self, bytes: &mut Vec<u8>) {
        let at = self.below(bytes.len());
        match self.below(6) {
            0 => bytes.truncate(at),
            1 => bytes.insert(at, 0xff),
            2 => bytes.splice(at..at, b"{\"payload\":".iter().copied()).for_each(drop),
            3 => {
                if let Some(byte) = bytes.get_mut(at) {
                    *byte ^= 1 << (self.0.any() % 8);
                }
            }
            4 => bytes.splice(0..0, vec![b'['; 5_000]).for_each(drop),
            _ => {
                // A name that stands there twice.
                let twice = bytes.clone();
                bytes.extend(twice);
            }
        }
    }
}
