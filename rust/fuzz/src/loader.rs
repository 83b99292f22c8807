//! The model loader, on files that are nearly sound and on files that are nothing at all.

use std::sync::Arc;

use sparsebayes::{Error, Predictor};

use crate::harness::Target;
use crate::memory::peak_of;
use crate::random::Random;
use crate::{bytes, json, seeds};

/// Memory that loading may take: so many bytes for each of the file, and some for its words.
const PER_BYTE: usize = 64;
const FLAT: usize = 1 << 18;

/// Writes files, given sound ones, whole and taken to pieces.
#[derive(Debug, Clone)]
pub(crate) struct Files {
    sound: Arc<Vec<Vec<u8>>>,
    pieces: Arc<Vec<json::Taken>>,
}

impl Files {
    pub(crate) fn new() -> Self {
        let sound = Arc::new(seeds::files());
        let pieces = Arc::new(sound.iter().filter_map(|file| json::take(file)).collect());
        Self { sound, pieces }
    }

    pub(crate) fn sound(&self, random: &mut Random) -> Vec<u8> {
        random.pick(&self.sound).clone()
    }

    pub(crate) fn make(&self, random: &mut Random) -> Vec<u8> {
        let kind = random.below(16);
        if kind == 8 {
            return (0..random.below(200)).map(|_| random.byte()).collect();
        }
        let mut file = if kind > 8 {
            let mut taken = random.pick(&self.pieces).clone();
            taken.change(random);
            taken.join()
        } else {
            self.sound(random)
        };
        if kind < 10 {
            bytes::change(&mut file, random, &self.sound);
        }
        file
    }
}

/// The loader of the core.
#[derive(Debug, Clone)]
pub(crate) struct Loader(Files);

impl Loader {
    pub(crate) fn new() -> Self {
        Self(Files::new())
    }
}

impl Target for Loader {
    type Input = Vec<u8>;

    fn make(&self, random: &mut Random) -> Vec<u8> {
        self.0.make(random)
    }

    fn run(&self, file: &Vec<u8>) -> Result<&'static str, String> {
        let (loaded, taken) = peak_of(|| Predictor::from_bytes(file));
        if taken > PER_BYTE * file.len() + FLAT {
            let len = file.len();
            return Err(format!(
                "a file of {len} bytes took {taken} bytes of memory"
            ));
        }
        match loaded {
            Ok(model) => ask(&model),
            Err(Error::Format { .. }) => Ok("refused"),
            Err(other) => Err(format!("refused as something else: {other}")),
        }
    }

    fn to_bytes(&self, input: &Vec<u8>) -> Vec<u8> {
        input.clone()
    }

    fn read(&self, bytes: &[u8]) -> Option<Vec<u8>> {
        Some(bytes.to_vec())
    }
}

/// A model that loaded answers every question with numbers or an error, and is the same model after a round through a file.
fn ask(model: &Predictor) -> Result<&'static str, String> {
    let d = model.n_features();
    // Nobody has rows like that.
    if d > 1 << 16 {
        return Ok("loaded, too wide to ask");
    }
    let mut answered = true;
    for rows in [1, 9] {
        let x: Vec<f64> = (0..rows * d).map(|i| 0.25 * (i % 5) as f64).collect();
        let room = |width: usize| vec![f64::NAN; rows * width];
        let mut out = room(model.n_predicted());
        answered &= model.predict_into(&x, &mut out).is_ok();
        answered &= model
            .decision_into(&x, &mut room(model.n_decisions()))
            .is_ok();
        if model.is_classifier() {
            let mut classes = vec![usize::MAX; rows];
            if model.classify_into(&x, &mut classes).is_ok()
                && classes.iter().any(|&c| c >= model.n_classes())
            {
                return Err("there is no class of that number".into());
            }
            let _ = model.predict_proba_into(&x, &mut out);
        } else {
            let (mut mean, mut std) = (room(model.n_outputs()), room(model.n_outputs()));
            let _ = model.predict_std_into(&x, &mut mean, &mut std);
        }
    }
    let again = model
        .to_bytes()
        .and_then(|bytes| Predictor::from_bytes(&bytes));
    match again {
        Ok(again) if same(&again, model) => Ok(if answered {
            "loaded"
        } else {
            "loaded, refused rows"
        }),
        Ok(_) => Err("another model comes back from a file".into()),
        Err(error) => Err(format!("it does not come back from a file: {error}")),
    }
}

/// Headers as they are written, tables to the bit.
fn same(a: &Predictor, b: &Predictor) -> bool {
    let bytes = |model: &Predictor| model.to_bytes().ok();
    bytes(a).is_some() && bytes(a) == bytes(b)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file with this header, of a kilobyte with what follows.
    fn file(header: &str) -> Vec<u8> {
        let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
        bytes.extend(header.as_bytes());
        bytes.resize(1024.max(bytes.len()), 0);
        bytes
    }

    #[test]
    fn a_kilobyte_cannot_ask_for_a_gigabyte() {
        let own = |d: &str| {
            format!(
                r#"{{\"format_version\":1,\"library_version\":\"0\",\"estimator\":\"E\",\"n_features\":{d},\"feature_names\":null,\"classes\":null,\"flat\":true,\"blocks\":[{{\"centres\":\"linear\"}}],\"outputs\":[null],\"link\":\"identity\",\"uncertainty\":\"none\",\"n_quadrature\":null}}"#
            )
        };
        let claims = [
            // A table of a gigabyte, whose bytes are not there, or whose shape does not say what it has.
            r#""t":{"dtype":"F64","shape":[134217728],"data_offsets":[0,1073741824]}"#,
            r#""t":{"dtype":"F64","shape":[134217728],"data_offsets":[0,16]}"#,
            r#""points.0":{"dtype":"F64","shape":[0,4611686018427387904],"data_offsets":[0,0]}"#,
            r#""points.0":{"dtype":"F64","shape":[4294967296,4294967296],"data_offsets":[0,0]}"#,
        ];
        for d in ["2", "1000000000", "18446744073709551615"] {
            for claim in claims {
                let own = own(d);
                let header = format!(r#"{{"__metadata__":{{"sparsebayes":"{own}"}},{claim}}}"#);
                let (loaded, taken) = peak_of(|| Predictor::from_bytes(&file(&header)));
                assert!(matches!(loaded, Err(Error::Format { .. })));
                assert!(taken < 100_000, "{taken}");
            }
        }
        // The length of a header alone.
        for length in [1_u64 << 30, 1 << 62, u64::MAX] {
            let mut bytes = file("{}");
            bytes[..8].copy_from_slice(&length.to_le_bytes());
            let (loaded, taken) = peak_of(|| Predictor::from_bytes(&bytes));
            assert!(loaded.is_err() && taken < 100_000, "{taken}");
        }
    }
}
