//! Sound model files to begin with: those kept in tests/golden, and one for each link with each uncertainty and each kernel.

use std::collections::BTreeMap;
use std::path::Path;

use sparsebayes::predictor::{
    BlockHeader, Classes, FORMAT_VERSION, Header, Link, Parts, Table, Uncertainty,
};
use sparsebayes::{Kernel, Predictor};

/// Inputs of a row.
const D: usize = 2;
/// Functions: a constant, a column, and three of a kernel.
const M: usize = 5;

/// The files of released formats; none where this program runs without the sources beside it.
fn golden() -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden");
    let mut paths = Vec::new();
    for format in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let models = std::fs::read_dir(format.path()).into_iter().flatten();
        paths.extend(models.flatten().map(|entry| entry.path()));
    }
    paths.retain(|path| path.extension().is_some_and(|e| e == "safetensors"));
    paths.sort();
    paths
        .iter()
        .filter_map(|path| std::fs::read(path).ok())
        .collect()
}

fn kernels() -> Vec<Kernel> {
    let gaussian = Kernel::Gaussian {
        inverse_square_widths: vec![0.5, 0.1],
    };
    vec![
        gaussian.clone(),
        Kernel::Laplacian { gamma: 0.3 },
        Kernel::Polynomial {
            degree: 3,
            gamma: 0.5,
            coef0: 1.0,
        },
        Kernel::Sigmoid {
            gamma: 0.4,
            coef0: 0.1,
        },
        Kernel::Sum(vec![
            Kernel::Linear,
            Kernel::Product(vec![
                gaussian,
                Kernel::OnColumns {
                    columns: vec![1],
                    kernel: Box::new(Kernel::LinearSpline),
                },
            ]),
        ]),
    ]
}

/// A table of small numbers; square ones are covariances.
fn table(shape: &[usize]) -> Table {
    let values = (0..shape.iter().product::<usize>()).map(|i| {
        let on_diagonal = shape.len() == 2 && shape[0] == shape[1] && i % (shape[0] + 1) == 0;
        if on_diagonal {
            0.5
        } else {
            0.1 * (i % 7) as f64 - 0.2
        }
    });
    Table {
        shape: shape.to_vec(),
        values: values.collect(),
    }
}

fn parts(kernel: &Kernel, link: Link, uncertainty: Uncertainty, n_outputs: usize) -> Parts {
    let n_classes = match link {
        Link::Identity | Link::Log => None,
        Link::Logistic if n_outputs == 1 => Some(2),
        _ => Some(n_outputs),
    };
    let mut tables = BTreeMap::from([("points.2".to_owned(), table(&[M - 2, D]))]);
    for c in 0..n_outputs {
        tables.insert(format!("weights.{c}"), table(&[M]));
    }
    let sizes: Vec<[usize; 2]> = match uncertainty {
        Uncertainty::None => vec![],
        Uncertainty::Shared => vec![[M, M]],
        Uncertainty::Each => vec![[M, M]; n_outputs],
        Uncertainty::Joint => vec![[M * n_outputs, M * n_outputs]],
        Uncertainty::Directions => vec![[M, 2]],
    };
    for (i, shape) in sizes.iter().enumerate() {
        tables.insert(format!("covariance.{i}"), table(shape));
    }
    if link == Link::Identity {
        let noise = Table {
            shape: vec![1],
            values: vec![0.04],
        };
        tables.insert("noise_variance".into(), noise);
    }
    let classes = n_classes.map(|n| Classes {
        dtype: "<i8".into(),
        values: (0..n).map(Into::into).collect(),
    });
    let header = Header {
        format_version: FORMAT_VERSION,
        library_version: "0.1.0".into(),
        estimator: "Seed".into(),
        n_features: D,
        feature_names: Some(vec!["a".into(), "b".into()]),
        classes,
        flat: n_outputs == 1,
        blocks: vec![
            BlockHeader::Constant,
            BlockHeader::Columns(vec![1]),
            BlockHeader::Centres(kernel.clone()),
        ],
        outputs: vec![None; n_outputs],
        link,
        uncertainty,
        n_quadrature: (link == Link::Probit).then_some(4),
    };
    Parts { header, tables }
}

/// The bytes of all of them.
pub(crate) fn files() -> Vec<Vec<u8>> {
    use Link::{Identity, Log, Logistic, Probit, Softmax};
    use Uncertainty::{Directions, Each, Joint, None, Shared};
    let kinds = [
        (Identity, Shared, 1),
        (Identity, Each, 2),
        (Identity, Directions, 1),
        (Identity, None, 1),
        (Log, Shared, 1),
        (Logistic, Shared, 1),
        (Logistic, Each, 3),
        (Softmax, Joint, 3),
        (Softmax, None, 3),
        (Probit, None, 2),
        (Probit, None, 3),
    ];
    let kernels = kernels();
    let made = kinds
        .iter()
        .enumerate()
        .map(|(i, &(link, uncertainty, n))| {
            let parts = parts(&kernels[i % kernels.len()], link, uncertainty, n);
            Predictor::from_parts(parts).and_then(|model| model.to_bytes())
        });
    let mut all = golden();
    all.extend(made.flatten());
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_seeds_are_sound_models() {
        let files = files();
        assert_eq!(files.len(), golden().len() + 11);
        assert!(golden().len() >= 5);
        for file in files {
            Predictor::from_bytes(&file).unwrap();
        }
    }
}
