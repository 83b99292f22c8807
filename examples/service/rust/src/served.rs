//! The model, and what the service makes of it: JSON in, JSON out.

use std::error::Error;
use std::fs;

use serde::Deserialize;
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};
use sparsebayes::Predictor;

/// Of a request. While a batch is computed, its thread answers nobody else.
const MOST_ROWS: usize = 10_000;

/// What is wrong with a request, and where.
pub(crate) struct Problem {
    pub(crate) place: String,
    pub(crate) what: String,
}

impl Problem {
    pub(crate) fn of(place: impl Into<String>, what: impl Into<String>) -> Self {
        Self {
            place: place.into(),
            what: what.into(),
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Request {
    rows: Vec<Value>,
}

/// A model, and which file it came from.
pub(crate) struct Served {
    model: Predictor,
    version: String,
}

impl Served {
    pub(crate) fn new(model: Predictor, version: String) -> Self {
        Self { model, version }
    }

    /// Reads a model file; its version is the beginning of the file's SHA-256.
    pub(crate) fn load(path: &str) -> Result<Self, Box<dyn Error>> {
        let wrong = |error: &dyn Error| format!("{path}: {error}");
        let content = fs::read(path).map_err(|error| wrong(&error))?;
        let model = Predictor::from_bytes(&content).map_err(|error| wrong(&error))?;
        let digest = Sha256::digest(&content);
        let version = digest[..6]
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        Ok(Self::new(model, version))
    }

    /// In every answer, so that logs can tell one upgrade from the next.
    pub(crate) fn version(&self) -> &str {
        &self.version
    }

    /// What a client may want to know.
    pub(crate) fn info(&self) -> Value {
        let header = self.model.header();
        json!({
            "model": self.version,
            "estimator": header.estimator,
            "n_features": self.model.n_features(),
            "feature_names": header.feature_names,
            "n_functions": self.model.n_functions(),
            "classes": header.classes.as_ref().map(|classes| &classes.values),
            "most_rows": MOST_ROWS,
        })
    }

    /// Means and standard deviations, or labels and probabilities.
    pub(crate) fn answer(&self, body: &[u8]) -> Result<Value, Problem> {
        let (x, n) = self.read(body)?;
        let failed = |error: sparsebayes::Error| Problem::of("rows", error.to_string());
        let Some(classes) = &self.model.header().classes else {
            let width = self.model.n_outputs();
            let (mut mean, mut std) = (vec![0.0; n * width], vec![0.0; n * width]);
            self.model
                .predict_std_into(&x, &mut mean, &mut std)
                .map_err(failed)?;
            let (mean, std) = (self.shaped(&mean, width), self.shaped(&std, width));
            return Ok(json!({"model": self.version, "mean": mean, "std": std}));
        };
        let width = self.model.n_classes();
        let (mut probabilities, mut best) = (vec![0.0; n * width], vec![0; n]);
        self.model
            .predict_proba_into(&x, &mut probabilities)
            .map_err(failed)?;
        self.model.classify_into(&x, &mut best).map_err(failed)?;
        let labels: Vec<&Value> = best.iter().map(|&c| &classes.values[c]).collect();
        let probabilities: Vec<&[f64]> = probabilities.chunks_exact(width).collect();
        Ok(json!({"model": self.version, "label": labels, "probabilities": probabilities}))
    }

    /// A number for each row, or a list of them, as the targets were when the model was fitted.
    fn shaped(&self, values: &[f64], width: usize) -> Value {
        if self.model.header().flat {
            json!(values)
        } else {
            json!(values.chunks_exact(width).collect::<Vec<_>>())
        }
    }

    /// The numbers of all rows, one row after another, and how many rows there are.
    fn read(&self, body: &[u8]) -> Result<(Vec<f64>, usize), Problem> {
        let request: Request =
            serde_json::from_slice(body).map_err(|error| Problem::of("", error.to_string()))?;
        let n = request.rows.len();
        if n == 0 {
            return Err(Problem::of("rows", "there must be at least one row"));
        }
        if n > MOST_ROWS {
            return Err(Problem::of(
                "rows",
                format!("at most {MOST_ROWS} rows, got {n}"),
            ));
        }
        let mut x = Vec::with_capacity(n * self.model.n_features());
        for (r, row) in request.rows.iter().enumerate() {
            let place = format!("rows.{r}");
            match (row, &self.model.header().feature_names) {
                (Value::Array(values), _) => self.listed(values, &place, &mut x)?,
                (Value::Object(values), Some(names)) => named(values, names, &place, &mut x)?,
                (_, Some(_)) => {
                    return Err(Problem::of(
                        place,
                        "a row is a list of numbers, or an object",
                    ));
                }
                (_, None) => return Err(Problem::of(place, "a row is a list of numbers")),
            }
        }
        Ok((x, n))
    }

    fn listed(&self, values: &[Value], place: &str, x: &mut Vec<f64>) -> Result<(), Problem> {
        let (expected, got) = (self.model.n_features(), values.len());
        if got != expected {
            return Err(Problem::of(
                place,
                format!("a row has {expected} numbers, got {got}"),
            ));
        }
        for (d, value) in values.iter().enumerate() {
            x.push(number(value, || format!("{place}.{d}"))?);
        }
        Ok(())
    }
}

fn named(
    values: &Map<String, Value>,
    names: &[String],
    place: &str,
    x: &mut Vec<f64>,
) -> Result<(), Problem> {
    if let Some(other) = values.keys().find(|key| !names.contains(key)) {
        return Err(Problem::of(
            format!("{place}.{other}"),
            "the model has no feature of that name",
        ));
    }
    for name in names {
        let place = || format!("{place}.{name}");
        let value = values
            .get(name)
            .ok_or_else(|| Problem::of(place(), "it is missing"))?;
        x.push(number(value, place)?);
    }
    Ok(())
}

fn number(value: &Value, place: impl FnOnce() -> String) -> Result<f64, Problem> {
    value
        .as_f64()
        .ok_or_else(|| Problem::of(place(), "it must be a number"))
}
