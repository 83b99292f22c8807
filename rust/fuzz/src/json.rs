//! Changes of model files that keep their form: other values in the header, other numbers in the tables.

use serde_json::{Map, Value, json};

use crate::random::Random;

/// The header of a safetensors file, our own header in it, and the numbers.
#[derive(Debug, Clone)]
pub(crate) struct Taken {
    outer: Map<String, Value>,
    own: Value,
    numbers: Vec<u8>,
}

/// Takes a sound file to pieces.
pub(crate) fn take(bytes: &[u8]) -> Option<Taken> {
    let length = usize::try_from(u64::from_le_bytes(*bytes.first_chunk::<8>()?)).ok()?;
    let end = length.checked_add(8).filter(|&end| end <= bytes.len())?;
    let outer: Map<String, Value> = serde_json::from_slice(&bytes[8..end]).ok()?;
    let own =
        serde_json::from_str(outer.get("__metadata__")?.get("sparsebayes")?.as_str()?).ok()?;
    Some(Taken {
        outer,
        own,
        numbers: bytes[end..].to_vec(),
    })
}

impl Taken {
    /// The file of what is there now.
    pub(crate) fn join(mut self) -> Vec<u8> {
        self.outer.insert(
            "__metadata__".into(),
            json!({ "sparsebayes": self.own.to_string() }),
        );
        let mut text = Value::Object(self.outer).to_string().into_bytes();
        text.resize(text.len().next_multiple_of(8), b' ');
        let mut bytes = (text.len() as u64).to_le_bytes().to_vec();
        bytes.extend(text);
        bytes.extend(self.numbers);
        bytes
    }

    pub(crate) fn change(&mut self, random: &mut Random) {
        for _ in 0..=random.below(3) {
            match random.below(8) {
                0..=2 => change(&mut self.own, random),
                3 => self.change_tensors(random),
                4 => self.deepen(random),
                _ => self.change_numbers(random),
            }
        }
    }

    /// Other names, shapes, types or places of tables.
    fn change_tensors(&mut self, random: &mut Random) {
        let names: Vec<String> = self
            .outer
            .keys()
            .filter(|k| *k != "__metadata__")
            .cloned()
            .collect();
        if names.is_empty() {
            return;
        }
        let name = random.pick(&names);
        match random.below(4) {
            0 => drop(self.outer.remove(name)),
            1 => {
                let other = random.pick(&names).clone();
                let value = self.outer[name].clone();
                self.outer.insert(other, value);
            }
            _ => {
                if let Some(value) = self.outer.get_mut(name) {
                    change(value, random);
                }
            }
        }
    }

    /// Kernels inside kernels, or lists inside lists.
    fn deepen(&mut self, random: &mut Random) {
        let depth = 1 << if random.one_in(8) { 8 } else { random.below(5) };
        let mut kernel = json!("linear");
        for _ in 0..depth {
            let mut more = Map::new();
            // `json!` would copy what is inside, at each depth once more.
            match random.below(3) {
                0 => drop(more.insert("sum".into(), Value::Array(vec![kernel]))),
                1 => drop(more.insert(
                    "product".into(),
                    Value::Array(vec![kernel, "linear".into()]),
                )),
                _ => {
                    let mut inner = Map::new();
                    inner.insert("columns".into(), Value::Array(vec![0.into()]));
                    inner.insert("kernel".into(), kernel);
                    more.insert("on_columns".into(), Value::Object(inner));
                }
            }
            kernel = Value::Object(more);
        }
        let blocks = self.own.get_mut("blocks").and_then(Value::as_array_mut);
        if let Some(block) = blocks.and_then(|blocks| blocks.last_mut()) {
            *block = Value::Object([("centres".to_owned(), kernel)].into_iter().collect());
        }
    }

    /// Some numbers that break code.
    fn change_numbers(&mut self, random: &mut Random) {
        let (numbers, _) = self.numbers.as_chunks_mut::<8>();
        if numbers.is_empty() {
            return;
        }
        for _ in 0..=random.below(4) {
            let at = random.below(numbers.len());
            numbers[at] = random.wild_and_finite().to_le_bytes();
        }
        if random.one_in(8) {
            let value = random.wild_and_finite().to_le_bytes();
            numbers.fill(value);
        }
        if random.one_in(16) {
            let at = random.below(numbers.len());
            numbers[at] = random.wild().to_le_bytes();
        }
    }
}

/// Something else in the place of a value somewhere inside.
fn change(value: &mut Value, random: &mut Random) {
    let deeper = !random.one_in(4);
    match value {
        Value::Object(map) if deeper && !map.is_empty() => {
            let keys: Vec<String> = map.keys().cloned().collect();
            let key = random.pick(&keys);
            match random.below(12) {
                0 => drop(map.remove(key)),
                1 => drop(map.insert("more".into(), Value::Null)),
                _ => {
                    if let Some(inside) = map.get_mut(key) {
                        change(inside, random);
                    }
                }
            }
        }
        Value::Array(list) if deeper && !list.is_empty() => {
            let at = random.below(list.len());
            match random.below(6) {
                0 => drop(list.remove(at)),
                1 => list.insert(at, list[at].clone()),
                _ => change(&mut list[at], random),
            }
        }
        other => *other = leaf(random),
    }
}

fn leaf(random: &mut Random) -> Value {
    match random.below(8) {
        0 => Value::Null,
        1 => json!(random.below(5)),
        2 => json!(random.next()),
        3 => json!(random.wild_and_finite()),
        4 => json!(["constant", { "columns": [random.below(3)] }]),
        5 => json!(*random.pick(&[
            "identity",
            "log",
            "logistic",
            "softmax",
            "probit",
            "none",
            "shared",
            "each",
            "joint",
            "directions",
            "constant",
            "linear",
            "linear_spline",
            "F64",
            "F32",
            "<i8",
            "O",
            ""
        ])),
        6 => {
            let kernels = [
                json!({ "gaussian": { "inverse_square_widths": [random.wild_and_finite()] } }),
                json!({ "laplacian": { "gamma": random.wild_and_finite() } }),
                json!({ "polynomial": { "degree": u32::MAX, "gamma": random.wild_and_finite(), "coef0": 1.0 } }),
                json!({ "sigmoid": { "gamma": random.wild_and_finite(), "coef0": random.wild_and_finite() } }),
                json!({ "on_columns": { "columns": [random.below(3)], "kernel": "linear_spline" } }),
            ];
            json!({ "centres": random.pick(&kernels) })
        }
        _ => json!([random.below(7), random.below(7)]),
    }
}
