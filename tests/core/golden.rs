//! The model files of every format: what they predicted when they were written, and the bytes in which they are saved.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::Value;
use sparsebayes::Predictor;

/// What docs/compatibility.md promises for predictions, and a bound for numbers near zero.
const RELATIVE: f64 = 1e-11;
const ABSOLUTE: f64 = 1e-13;

fn files() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    let formats = ["format-1", "format-2"].map(|format| folder.join(format));
    let files = formats.iter().flat_map(|f| f.read_dir().unwrap());
    files
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|e| e == "safetensors"))
        .collect()
}

/// The labels and the tables of the text beside a model.
fn expected(model: &Path) -> (Vec<String>, BTreeMap<String, Vec<f64>>) {
    let text = std::fs::read_to_string(model.with_extension("txt")).unwrap();
    let mut lines = text.lines();
    let n_labels = lines.next().unwrap().strip_prefix("labels ").unwrap();
    let labels = lines.by_ref().take(n_labels.parse().unwrap());
    let labels = labels.map(str::to_owned).collect();
    let mut tables = BTreeMap::new();
    while let Some(title) = lines.next() {
        let title: Vec<&str> = title.split(' ').collect();
        let rows = lines.by_ref().take(title[1].parse().unwrap());
        let numbers = rows.flat_map(|row| row.split(' ').map(|number| number.parse().unwrap()));
        tables.insert(title[0].to_owned(), numbers.collect());
    }
    (labels, tables)
}

fn assert_close(found: &[f64], expected: &[f64], file: &Path) {
    let file = file.display();
    assert_eq!(found.len(), expected.len(), "{file}");
    for (a, b) in found.iter().zip(expected) {
        let most = RELATIVE * b.abs() + ABSOLUTE;
        assert!((a - b).abs() <= most, "{file}: {a:?} instead of {b:?}");
    }
}

#[test]
fn models_of_every_format_give_their_predictions() {
    for file in files() {
        let model = Predictor::load(&file).unwrap();
        let (labels, tables) = expected(&file);
        let x = &tables["x"];
        let rows = x.len() / model.n_features();
        let mut predicted = vec![0.0; rows * model.n_predicted()];
        model.predict_into(x, &mut predicted).unwrap();
        assert_close(&predicted, &tables["predicted"], &file);
        if model.is_classifier() {
            let classes = &model.header().classes.as_ref().unwrap().values;
            let text = |label: &Value| {
                label
                    .as_str()
                    .map_or_else(|| label.to_string(), str::to_owned)
            };
            assert_eq!(classes.iter().map(text).collect::<Vec<_>>(), labels);
            let mut scores = vec![0.0; rows * model.n_decisions()];
            model.decision_into(x, &mut scores).unwrap();
            assert_close(&scores, &tables["decision"], &file);
            let mut classes = vec![0; rows];
            model.classify_into(x, &mut classes).unwrap();
            let classes: Vec<f64> = classes.iter().map(|&class| class as f64).collect();
            assert_eq!(classes, tables["class"], "{}", file.display());
        } else {
            let (mut mean, mut std) = (predicted.clone(), predicted.clone());
            model.predict_std_into(x, &mut mean, &mut std).unwrap();
            assert_close(&mean, &tables["predicted"], &file);
            assert_close(&std, &tables["std"], &file);
        }
    }
}

/// On every processor, so that a file may be written on one and read on another.
#[test]
fn a_loaded_model_is_saved_in_the_bytes_of_its_file() {
    let files = files();
    assert!(files.len() >= 7);
    for file in files {
        let bytes = std::fs::read(&file).unwrap();
        let again = Predictor::from_bytes(&bytes).unwrap().to_bytes().unwrap();
        assert_eq!(again, bytes, "{}", file.display());
    }
}
