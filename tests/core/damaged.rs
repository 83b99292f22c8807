//! Model files from strangers. The fuzz targets of rust/fuzz include this file too.

use sparsebayes::{Error, Predictor};

use crate::alloc::peak_bytes;

/// Memory that loading may take for each byte of the file, and for any file: SECURITY.md promises it.
const BYTES_PER_BYTE: usize = 64;
const BYTES_OF_ANY: usize = 1 << 18;

/// Loads a file and predicts with what loads. Panics on a defect; returns whether the file is a model.
pub(crate) fn load(file: &[u8]) -> bool {
    let (loaded, taken) = peak_bytes(|| Predictor::from_bytes(file));
    let most = BYTES_PER_BYTE * file.len() + BYTES_OF_ANY;
    assert!(taken <= most, "{} bytes took {taken}", file.len());
    let model = match loaded {
        Ok(model) => model,
        Err(error) => {
            assert!(matches!(error, Error::Format { .. }), "{error}");
            return false;
        }
    };
    let bytes = model.to_bytes().expect("a loaded model can be saved");
    let again = Predictor::from_bytes(&bytes).expect("and loaded again");
    assert_eq!(again.to_bytes().ok(), Some(bytes));
    // Predictions at rows of a million numbers would be too slow here.
    if model.n_features() <= 1 << 16 {
        predict(&model);
    }
    true
}

/// Predicts in every way. An error is no defect: scores of a damaged model may overflow.
fn predict(model: &Predictor) {
    for rows in [1, 9] {
        let n = rows * model.n_features();
        let x: Vec<f64> = (0..n).map(|i| 0.25 * (i % 5) as f64).collect();
        let room = |width: usize| vec![0.0; rows * width];
        let (mut out, mut mean) = (room(model.n_predicted()), room(model.n_outputs()));
        let _ = model.predict_into(&x, &mut out);
        let _ = model.decision_into(&x, &mut room(model.n_decisions()));
        let _ = model.predict_proba_into(&x, &mut out);
        let _ = model.predict_std_into(&x, &mut mean, &mut room(model.n_outputs()));
        let mut classes = vec![usize::MAX; rows];
        if model.classify_into(&x, &mut classes).is_ok() {
            assert!(
                classes.iter().all(|&c| c < model.n_classes()),
                "{classes:?}"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use proptest::sample::{Index, select};

    use super::load;
    use crate::cases::cases;
    use crate::predictor::all_parts;
    use sparsebayes::Predictor;

    /// What replaces a few bytes of a header, or is put between two.
    fn word() -> impl Strategy<Value = &'static str> {
        let words = " 0 1 2 - 9 e308 e309 .5 4294967296 18446744073709551615 null true [] {} , [ \\\" identity softmax \
                     probit none each joint";
        select(words.split(' ').collect::<Vec<_>>())
    }

    fn sound(which: usize) -> Vec<u8> {
        let model = Predictor::from_parts(all_parts().swap_remove(which)).unwrap();
        model.to_bytes().unwrap()
    }

    /// A file with this header and these tables.
    fn file(header: &[u8], tables: &[u8]) -> Vec<u8> {
        [&(header.len() as u64).to_le_bytes(), header, tables].concat()
    }

    /// Header and tables.
    fn taken_apart(file: &[u8]) -> (Vec<u8>, Vec<u8>) {
        let length = u64::from_le_bytes(*file.first_chunk().unwrap());
        let (header, tables) = file[8..].split_at(usize::try_from(length).unwrap());
        (header.to_vec(), tables.to_vec())
    }

    fn number() -> impl Strategy<Value = f64> {
        prop_oneof![select(vec![f64::MAX, 5e-324, -1.0, 0.0]), any::<f64>()]
    }

    proptest! {
        #![proptest_config(cases(4000))]

        #[test]
        fn a_damaged_file_is_refused_or_a_model(
            which in 0..19_usize,
            words in prop::collection::vec((any::<Index>(), 0..3_usize, word()), 0..4),
            numbers in prop::collection::vec((any::<Index>(), number()), 0..3),
            bytes in prop::collection::vec((any::<Index>(), any::<u8>()), 0..2),
        ) {
            let (mut header, mut tables) = taken_apart(&sound(which));
            for (at, length, word) in words {
                let at = at.index(header.len() - length);
                header.splice(at..at + length, word.bytes());
            }
            for (at, number) in numbers {
                let at = 8 * at.index(tables.len() / 8);
                tables[at..at + 8].copy_from_slice(&number.to_le_bytes());
            }
            let mut file = file(&header, &tables);
            for (at, byte) in bytes {
                let at = at.index(file.len());
                file[at] = byte;
            }
            load(&file);
        }
    }

    #[test]
    fn a_kilobyte_cannot_ask_for_a_gigabyte() {
        let own = r#"{\"format_version\":1,\"library_version\":\"0\",\"estimator\":\"E\",\"n_features\":D,\"feature_names\":null,\"classes\":null,\"flat\":true,\"blocks\":[{\"centres\":\"linear\"}],\"outputs\":[null],\"link\":\"identity\",\"uncertainty\":\"none\",\"n_quadrature\":null}"#;
        for d in ["2", "1000000000", "18446744073709551615"] {
            for (shape, end) in [
                ("134217728", 1 << 30),
                ("134217728", 16),
                ("0,4611686018427387904", 0),
                ("4294967296,4294967296", 0),
            ] {
                let own = own.replace('D', d);
                let table =
                    format!(r#"{{"dtype":"F64","shape":[{shape}],"data_offsets":[0,{end}]}}"#);
                let header =
                    format!(r#"{{"__metadata__":{{"sparsebayes":"{own}"}},"points.0":{table}}}"#);
                assert!(!load(&file(header.as_bytes(), &[0; 256])));
            }
        }
        for length in [1_u64 << 30, 1 << 62, u64::MAX] {
            assert!(!load(&[&length.to_le_bytes()[..], &[0; 1016]].concat()));
        }
    }

    #[test]
    fn kernels_nested_deeper_than_the_stack_are_refused() {
        let (header, tables) = taken_apart(&sound(0));
        let header = String::from_utf8(header).unwrap();
        let (before, after) = header.split_once(r#"{\"centres\":"#).unwrap();
        let after = &after[after.find("}]").unwrap()..];
        for (depth, loads) in [(3, true), (100_000, false)] {
            let (open, close) = (r#"{\"sum\":["#.repeat(depth), "]}".repeat(depth));
            let header = format!(r#"{before}{{\"centres\":{open}\"linear\"{close}{after}"#);
            assert_eq!(load(&file(header.as_bytes(), &tables)), loads);
        }
    }
}
