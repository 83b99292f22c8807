//! Predictors: the same numbers row by row and in batches, no allocations, checked input.

use std::collections::BTreeMap;

use sparsebayes::predictor::{
    BlockHeader, Classes, FORMAT_VERSION, Header, Link, Parts, Table, Uncertainty,
};
use sparsebayes::{Error, Kernel, Predictor, with_threads};

use crate::alloc::allocations;

const D: usize = 3;

/// Numbers that look random and are not.
fn numbers(n: usize, seed: u32) -> Vec<f64> {
    (0..n)
        .map(|i| (f64::from(u32::try_from(i).unwrap()) * 0.7 + f64::from(seed)).sin())
        .collect()
}

fn kernels() -> Vec<Kernel> {
    let gaussian = Kernel::Gaussian {
        inverse_square_widths: vec![0.5],
    };
    let spline = Kernel::OnColumns {
        columns: vec![2, 0],
        kernel: Box::new(Kernel::LinearSpline),
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
            Kernel::Product(vec![gaussian, spline]),
        ]),
    ]
}

fn table(shape: &[usize], values: Vec<f64>) -> Table {
    Table {
        shape: shape.to_vec(),
        values,
    }
}

/// A covariance: A A^T.
fn covariance(m: usize, seed: u32) -> Table {
    let a = numbers(m * m, seed);
    let entry = |at: usize| {
        let (i, j) = (at / m, at % m);
        0.01 * (0..m).map(|k| a[i * m + k] * a[j * m + k]).sum::<f64>()
    };
    table(&[m, m], (0..m * m).map(entry).collect())
}

/// A model of a constant, a column and five functions of `kernel`, each output weighing its own choice of these.
fn parts(kernel: &Kernel, link: Link, uncertainty: Uncertainty, n_outputs: usize) -> Parts {
    let n_classes = match (link, n_outputs) {
        (Link::Identity | Link::Log | Link::LogContinuous, _) => None,
        (Link::Logistic, 1) => Some(2),
        (_, n) => Some(n),
    };
    let chosen = |c: usize| match uncertainty {
        Uncertainty::Each | Uncertainty::Joint if c > 0 => Some(vec![0, 2, 1 + c + 2]),
        _ => None,
    };
    let outputs: Vec<_> = (0..n_outputs).map(chosen).collect();
    let sizes: Vec<usize> = outputs
        .iter()
        .map(|chosen: &Option<Vec<usize>>| chosen.as_ref().map_or(7, Vec::len))
        .collect();
    let mut tables: BTreeMap<String, Table> = BTreeMap::new();
    tables.insert("points.2".into(), table(&[5, D], numbers(5 * D, 1)));
    for (c, &m) in sizes.iter().enumerate() {
        let seed = u32::try_from(c).unwrap() + 2;
        tables.insert(format!("weights.{c}"), table(&[m], numbers(m, seed)));
        if uncertainty == Uncertainty::Each {
            tables.insert(format!("covariance.{c}"), covariance(m, seed));
        }
    }
    match uncertainty {
        Uncertainty::Shared => drop(tables.insert("covariance.0".into(), covariance(7, 9))),
        Uncertainty::Joint => {
            tables.insert("covariance.0".into(), covariance(sizes.iter().sum(), 9));
        }
        Uncertainty::Directions => {
            tables.insert("covariance.0".into(), table(&[7, 4], numbers(28, 9)));
        }
        Uncertainty::None | Uncertainty::Each => {}
    }
    if link == Link::Identity {
        tables.insert("noise_variance".into(), table(&[1], vec![0.04]));
    }
    let labels = |n| (0..n).map(|c: usize| serde_json::json!(format!("class {c}")));
    let header = Header {
        format_version: FORMAT_VERSION,
        library_version: "0.1.0".into(),
        estimator: "Test".into(),
        n_features: D,
        feature_names: Some(vec!["a".into(), "b".into(), "c".into()]),
        classes: n_classes.map(|n| Classes {
            dtype: "<U7".into(),
            values: labels(n).collect(),
        }),
        flat: n_outputs == 1,
        blocks: vec![
            BlockHeader::Constant,
            BlockHeader::Columns(vec![1]),
            BlockHeader::Centres(kernel.clone()),
        ],
        outputs,
        link,
        uncertainty,
        n_quadrature: None,
        growths: vec![],
    };
    Parts { header, tables }
}

/// Adds growing error bars, with landmarks of two kernels, to the parts of a model.
fn growing(mut parts: Parts, kernels: [Kernel; 2]) -> Parts {
    let n_outputs = parts.header.outputs.len();
    for (g, m) in [1, 4].into_iter().enumerate() {
        let seed = u32::try_from(20 + g).unwrap();
        let mut factor = numbers(m * (m + 1) / 2, seed);
        (0..m).for_each(|i| factor[i * (i + 3) / 2] = 2.0);
        let scale = (0..n_outputs).map(|c| if c == 0 { 0.7 } else { 1.9 });
        let mut insert = |name: &str, of: Table| parts.tables.insert(format!("{name}.{g}"), of);
        insert("landmarks", table(&[m, D], numbers(m * D, seed + 2)));
        insert("factor", table(&[factor.len()], factor));
        insert("scale", table(&[n_outputs], scale.collect()));
    }
    parts.header.growths = kernels.into();
    parts
}

/// Every link with every uncertainty that it can have.
pub(crate) fn all_parts() -> Vec<Parts> {
    use Link::{Identity, Log, LogContinuous, Logistic, Probit, Softmax};
    use Uncertainty::{Directions, Each, Joint, None, Shared};
    let kinds = [
        (Identity, Shared, 1),
        (Identity, Shared, 3),
        (Identity, Each, 3),
        (Identity, Directions, 1),
        (Identity, None, 1),
        (Log, Shared, 1),
        (Logistic, Shared, 1),
        (Logistic, None, 1),
        (Logistic, Each, 4),
        (Logistic, None, 4),
        (Softmax, Joint, 3),
        (Softmax, None, 3),
        (Probit, None, 2),
        (Probit, None, 4),
    ];
    let kernels = kernels();
    let with_kernel = |(k, &(link, uncertainty, n)): (usize, &(Link, Uncertainty, usize))| {
        parts(&kernels[k % kernels.len()], link, uncertainty, n)
    };
    let mut all: Vec<Parts> = kinds.iter().enumerate().map(with_kernel).collect();
    for which in [0, 2] {
        let two = [kernels[which].clone(), kernels[4].clone()];
        all.push(growing(all[which].clone(), two));
    }
    for link in [Log, LogContinuous] {
        let mut dispersed = parts(&kernels[1], link, Shared, 1);
        let dispersion = table(&[1], vec![0.3]);
        dispersed.tables.insert("noise_variance".into(), dispersion);
        all.push(dispersed);
    }
    let mut centred = parts(&kernels[3], Identity, Each, 3);
    centred.header.blocks[1] = BlockHeader::CentredColumns {
        columns: vec![1],
        offsets: vec![0.4],
    };
    let noise = table(&[3], vec![0.01, 0.04, 0.09]);
    centred.tables.insert("noise_variance".into(), noise);
    all.push(centred);
    all
}

fn models() -> Vec<Predictor> {
    let models = all_parts().into_iter().map(Predictor::from_parts);
    models.collect::<Result<_, _>>().unwrap()
}

/// All predictions of a model for some rows.
fn answers(model: &Predictor, x: &[f64]) -> Vec<f64> {
    let rows = x.len() / D;
    let mut all = vec![0.0; rows * model.n_predicted()];
    model.predict_into(x, &mut all).unwrap();
    let mut decisions = vec![0.0; rows * model.n_decisions()];
    model.decision_into(x, &mut decisions).unwrap();
    all.extend(decisions);
    if model.is_classifier() {
        let mut classes = vec![0; rows];
        model.classify_into(x, &mut classes).unwrap();
        all.extend(
            classes
                .iter()
                .map(|&c| f64::from(u32::try_from(c).unwrap())),
        );
    } else {
        let mut mean = vec![0.0; rows * model.n_outputs()];
        let mut std = mean.clone();
        model.predict_std_into(x, &mut mean, &mut std).unwrap();
        all.extend(mean.iter().chain(&std));
    }
    all
}

fn bits(values: &[f64]) -> Vec<u64> {
    values.iter().map(|v| v.to_bits()).collect()
}

#[test]
fn a_row_predicts_the_same_alone_in_company_and_on_any_number_of_threads() {
    // More than 2^18 kernel terms, so that threads share the rows.
    let rows = 13_000;
    let x = numbers(rows * D, 5);
    for model in models() {
        assert!(rows * D * model.n_functions() > 1 << 18);
        let together = answers(&model, &x);
        let threads = with_threads(Some(3), || answers(&model, &x)).unwrap();
        assert_eq!(bits(&together), bits(&threads));
        let width = model.n_predicted();
        for row in [0, 1, 511, 512, rows - 1] {
            let mut out = vec![0.0; width];
            model.predict_into(&x[row * D..][..D], &mut out).unwrap();
            assert_eq!(bits(&out), bits(&together[row * width..][..width]));
        }
        let mut out = vec![0.0; 13 * width];
        let some = &x[100 * D..113 * D];
        model.predict_into(some, &mut out).unwrap();
        assert_eq!(bits(&out), bits(&together[100 * width..113 * width]));
    }
}

/// All basis functions at a row.
fn functions_at(parts: &Parts, x: &[f64]) -> Vec<f64> {
    let mut phi = Vec::new();
    for (b, block) in parts.header.blocks.iter().enumerate() {
        match block {
            BlockHeader::Constant => phi.push(1.0),
            BlockHeader::Columns(columns) => phi.extend(columns.iter().map(|&j| x[j])),
            BlockHeader::CentredColumns { columns, offsets } => {
                phi.extend(
                    columns
                        .iter()
                        .zip(offsets)
                        .map(|(&j, offset)| x[j] - offset),
                );
            }
            BlockHeader::Centres(kernel) => {
                let centres = &parts.tables[&format!("points.{b}")].values;
                phi.extend(centres.chunks_exact(D).map(|z| kernel.eval(x, z)));
            }
        }
    }
    phi
}

/// What landmarks leave of k(x, x).
fn growth_at(parts: &Parts, g: usize, x: &[f64]) -> f64 {
    let kernel = &parts.header.growths[g];
    let values = |name: &str| &parts.tables[&format!("{name}.{g}")].values;
    let (mut y, mut rest) = (Vec::new(), (1.0 - 1e-6) * kernel.eval(x, x));
    for (i, z) in values("landmarks").chunks_exact(D).enumerate() {
        let row = &values("factor")[i * (i + 1) / 2..];
        let known: f64 = row.iter().zip(&y).map(|(l, y)| l * y).sum();
        y.push((kernel.eval(x, z) - known) / row[i]);
        rest -= y[i] * y[i];
    }
    rest.max(0.0)
}

/// The linear predictors at a row, and their covariance matrix.
fn linear_predictors(parts: &Parts, x: &[f64]) -> (Vec<f64>, Vec<Vec<f64>>) {
    let (phi, header) = (functions_at(parts, x), &parts.header);
    let chosen = |functions: &Option<Vec<usize>>| match functions {
        Some(functions) => functions.iter().map(|&j| phi[j]).collect(),
        None => phi.clone(),
    };
    let phi: Vec<Vec<f64>> = header.outputs.iter().map(chosen).collect();
    let n = phi.len();
    let values = |name: String| &parts.tables[&name].values;
    let product = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
    let eta = (0..n).map(|c| product(&phi[c], values(format!("weights.{c}"))));
    let mut all = vec![vec![0.0; n]; n];
    for c in 0..n {
        for d in 0..n {
            let (of, left, right) = match header.uncertainty {
                Uncertainty::Each if c == d => (c, 0, 0),
                Uncertainty::Shared if c == d => (0, 0, 0),
                Uncertainty::Joint => {
                    let before = |c: usize| phi[..c].iter().map(Vec::len).sum::<usize>();
                    (0, before(c), before(d))
                }
                _ => continue,
            };
            let matrix = &parts.tables[&format!("covariance.{of}")];
            for (i, a) in phi[c].iter().enumerate() {
                for (j, b) in phi[d].iter().enumerate() {
                    all[c][d] += a * b * matrix.values[(left + i) * matrix.shape[1] + right + j];
                }
            }
        }
    }
    if header.uncertainty == Uncertainty::Directions {
        let matrix = &parts.tables["covariance.0"];
        for k in 0..matrix.shape[1] {
            let along = phi[0].iter().enumerate();
            let along = along.map(|(j, p)| p * matrix.values[j * matrix.shape[1] + k]);
            all[0][0] += along.sum::<f64>().powi(2);
        }
    }
    for g in 0..header.growths.len() {
        for (c, scale) in values(format!("scale.{g}")).iter().enumerate() {
            all[c][c] += scale * growth_at(parts, g, x);
        }
    }
    (eta.collect(), all)
}

/// MacKay's factor for the expected sigmoid of a Gaussian variable.
fn kappa(variance: f64) -> f64 {
    1.0 / (1.0 + std::f64::consts::PI / 8.0 * variance).sqrt()
}

/// Mean and standard deviation of a target, given those of its linear predictor.
fn target(link: Link, eta: f64, v: f64, noise: f64) -> (f64, f64) {
    if link == Link::Identity {
        return (eta, (noise + v).sqrt());
    }
    let counts = f64::from(u8::from(link == Link::Log)) * (eta + 0.5 * v).exp();
    let rest = ((1.0 + noise) * v.exp() - 1.0) * (2.0 * eta + v).exp();
    (eta.exp(), (counts + rest).sqrt())
}

/// The probabilities of the classes but of a probit, from the linear predictors and their covariances.
fn probabilities(link: Link, eta: &[f64], covariance: &[Vec<f64>]) -> Vec<f64> {
    let n = eta.len();
    if (link, n) == (Link::Logistic, 1) {
        let p = 1.0 / (1.0 + (-kappa(covariance[0][0]) * eta[0]).exp());
        return vec![1.0 - p, p];
    }
    let own = |c: usize| match link {
        Link::Logistic => (kappa(covariance[c][c]) * eta[c]).exp(),
        _ => (0..n)
            .map(|d| {
                let v = covariance[c][c] + covariance[d][d] - 2.0 * covariance[c][d];
                (kappa(v) * (eta[d] - eta[c])).exp()
            })
            .sum::<f64>()
            .recip(),
    };
    let all: Vec<f64> = (0..n).map(own).collect();
    all.iter().map(|p| p / all.iter().sum::<f64>()).collect()
}

/// The formulas written out. Rows are predicted alone, by a loop over functions, and together, by loops over rows.
#[test]
fn predictions_are_those_of_the_formulas() {
    for parts in all_parts() {
        let (header, model) = (&parts.header, Predictor::from_parts(parts.clone()).unwrap());
        let n = header.outputs.len();
        let close = |found: &[f64], expected: &[f64]| {
            assert_eq!(found.len(), expected.len());
            for (a, b) in found.iter().zip(expected) {
                assert!(
                    (a - b).abs() < 1e-12 * (1.0 + b.abs()),
                    "{header:?}: {a} {b}"
                );
            }
        };
        for rows in [1, 20] {
            let x = numbers(rows * D, 7);
            let mut scores = vec![0.0; rows * model.n_decisions()];
            model.decision_into(&x, &mut scores).unwrap();
            let mut predicted = vec![0.0; rows * model.n_predicted()];
            model.predict_into(&x, &mut predicted).unwrap();
            let (mut mean, mut std) = (vec![0.0; rows * n], vec![0.0; rows * n]);
            let mut classes = vec![0; rows];
            if model.is_classifier() {
                model.classify_into(&x, &mut classes).unwrap();
            } else {
                model.predict_std_into(&x, &mut mean, &mut std).unwrap();
                close(&predicted, &mean);
            }
            for (r, x) in x.chunks_exact(D).enumerate() {
                let (eta, v) = linear_predictors(&parts, x);
                let scores = &scores[r * model.n_decisions()..][..model.n_decisions()];
                let predicted = &predicted[r * model.n_predicted()..][..model.n_predicted()];
                if header.link == Link::Probit && n == 2 {
                    close(scores, &[eta[1] - eta[0]]);
                } else {
                    close(scores, &eta);
                }
                if !model.is_classifier() {
                    let noise = parts.tables.get("noise_variance");
                    let noise = |c: usize| noise.map_or(0.0, |t| t.values[c % t.values.len()]);
                    let both = (0..n).map(|c| target(header.link, eta[c], v[c][c], noise(c)));
                    let (means, stds): (Vec<_>, Vec<_>) = both.unzip();
                    close(&mean[r * n..][..n], &means);
                    close(&std[r * n..][..n], &stds);
                } else if header.link != Link::Probit {
                    let p = probabilities(header.link, &eta, &v);
                    close(predicted, &p);
                    assert!(p.iter().all(|&other| other <= p[classes[r]] + 1e-12));
                }
            }
        }
    }
}

#[test]
fn gradients_are_limits_of_differences() {
    const STEP: f64 = 1e-5;
    for parts in all_parts() {
        let model = Predictor::from_parts(parts).unwrap();
        let n = model.n_outputs();
        let (mut mean, mut std) = (vec![0.0; n * D], vec![0.0; n * D]);
        if model.is_classifier() {
            let error = model.gradient_into(&numbers(D, 1), &mut mean, &mut std);
            assert!(matches!(error, Err(Error::Invalid { .. })));
            continue;
        }
        for x in numbers(6 * D, 11).chunks_exact(D) {
            model.gradient_into(x, &mut mean, &mut std).unwrap();
            for j in 0..D {
                let [above, below] = [STEP, -STEP].map(|step| {
                    let (mut x, mut mean, mut std) = (x.to_vec(), vec![0.0; n], vec![0.0; n]);
                    x[j] += step;
                    model.predict_std_into(&x, &mut mean, &mut std).unwrap();
                    [mean, std]
                });
                for c in 0..n {
                    for (found, k) in [(mean[c * D + j], 0), (std[c * D + j], 1)] {
                        let expected = (above[k][c] - below[k][c]) / (2.0 * STEP);
                        let most = 1e-7 * (1.0 + expected.abs());
                        let link = model.header().link;
                        assert!(
                            (found - expected).abs() < most,
                            "{link:?}: {found} {expected}"
                        );
                    }
                }
            }
        }
        let x = numbers(D, 1);
        let shape = |result| matches!(result, Err(Error::Shape { .. }));
        assert!(shape(model.gradient_into(&x[1..], &mut mean, &mut std)));
        assert!(shape(model.gradient_into(&x, &mut mean[1..], &mut std)));
        assert!(shape(model.gradient_into(&x, &mut mean, &mut std[1..])));
        let odd = model.gradient_into(&[0.0, f64::NAN, 0.0], &mut mean, &mut std);
        assert!(matches!(odd, Err(Error::NonFinite { .. })));
    }
}

#[test]
fn probabilities_sum_to_one_and_the_predicted_class_is_the_most_probable() {
    let rows = 40;
    let x = numbers(rows * D, 8);
    for model in models().iter().filter(|model| model.is_classifier()) {
        let n = model.n_classes();
        let (mut p, mut classes) = (vec![0.0; rows * n], vec![0; rows]);
        model.predict_proba_into(&x, &mut p).unwrap();
        model.classify_into(&x, &mut classes).unwrap();
        for (p, &class) in p.chunks_exact(n).zip(&classes) {
            assert!((p.iter().sum::<f64>() - 1.0).abs() < 1e-12);
            assert!(p.iter().all(|&other| other <= p[class] + 1e-9));
        }
    }
}

#[test]
fn predicting_rows_one_by_one_takes_no_memory() {
    let x = numbers(D, 3);
    for model in models() {
        let mut out = vec![0.0; model.n_predicted()];
        let (mut mean, mut std) = (vec![0.0; model.n_outputs()], vec![0.0; model.n_outputs()]);
        let mut class = [0];
        let mut all = || {
            model.predict_into(&x, &mut out).unwrap();
            let _ = model.predict_std_into(&x, &mut mean, &mut std);
            let _ = model.classify_into(&x, &mut class);
        };
        // The thread's first predictions make room.
        all();
        let taken = allocations(|| {
            model.predict_into(&x, &mut out).unwrap();
            // Errors allocate their texts.
            if model.is_classifier() {
                model.classify_into(&x, &mut class).unwrap();
            } else {
                model.predict_std_into(&x, &mut mean, &mut std).unwrap();
            }
        });
        assert_eq!(taken, 0, "{:?}", model.header().link);
    }
}

#[test]
fn wrong_arguments_are_refused() {
    let regression = Predictor::from_parts(all_parts().swap_remove(0)).unwrap();
    let classes = Predictor::from_parts(all_parts().swap_remove(6)).unwrap();
    let (x, mut one, mut two) = (numbers(D, 1), [0.0], [0.0; 2]);
    let shape = |result| matches!(result, Err(Error::Shape { .. }));
    let invalid = |result| matches!(result, Err(Error::Invalid { .. }));
    assert!(shape(regression.predict_into(&x[..2], &mut one)));
    assert!(shape(regression.predict_into(&x, &mut two)));
    assert!(shape(regression.predict_std_into(&x, &mut one, &mut two)));
    assert!(invalid(regression.predict_proba_into(&x, &mut two)));
    assert!(invalid(regression.classify_into(&x, &mut [0])));
    assert!(invalid(classes.predict_std_into(&x, &mut one, &mut [0.0])));
    assert!(shape(classes.predict_into(&x, &mut one)));
    let bad = [1.0, f64::NAN, 0.0];
    assert!(matches!(
        regression.predict_one(&bad),
        Err(Error::NonFinite { .. })
    ));
    assert!(classes.predict_one(&x).unwrap() > 0.0);
    // No rows are a fair question.
    regression.predict_into(&[], &mut []).unwrap();
    let several = Predictor::from_parts(all_parts().swap_remove(1)).unwrap();
    assert!(several.predict_one(&x).is_err());
}

#[test]
fn a_file_gives_back_the_same_model() {
    let x = numbers(60 * D, 4);
    for model in models() {
        let bytes = model.to_bytes().unwrap();
        let again = Predictor::from_bytes(&bytes).unwrap();
        assert_eq!(again.parts(), model.parts());
        assert_eq!(again.to_bytes().unwrap(), bytes);
        assert_eq!(bits(&answers(&again, &x)), bits(&answers(&model, &x)));
    }
}

#[cfg(feature = "save")]
#[test]
fn saving_replaces_a_file_whole_and_leaves_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.safetensors");
    let models = models();
    models[0].save(&path).unwrap();
    models[1].save(&path).unwrap();
    assert_eq!(Predictor::load(&path).unwrap().parts(), models[1].parts());
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    // A name without a folder is in the current one.
    let bare = format!(".sparsebayes-test-{}", std::process::id());
    models[0].save(&bare).unwrap();
    let loaded = Predictor::load(&bare).unwrap();
    std::fs::remove_file(bare).unwrap();
    assert_eq!(loaded.parts(), models[0].parts());
    let nowhere = folder.path().join("missing").join("model");
    assert!(matches!(models[0].save(nowhere), Err(Error::Io(_))));
    assert!(matches!(
        Predictor::load(folder.path().join("other")),
        Err(Error::Io(_))
    ));
    assert!(Predictor::load(folder.path()).is_err());
}

/// One thing wrong in each.
#[test]
fn parts_that_do_not_fit_are_refused() {
    type Change = fn(&mut Parts);
    fn of<'a>(parts: &'a mut Parts, table: &str) -> &'a mut Table {
        parts.tables.get_mut(table).unwrap()
    }
    let changes: [(usize, Change); 33] = [
        (0, |p| p.header.n_features = 0),
        (0, |p| p.header.n_features = 4),
        (0, |p| p.header.feature_names = Some(vec![])),
        (0, |p| p.header.outputs.clear()),
        (0, |p| p.header.outputs.push(None)),
        (0, |p| p.header.outputs[0] = Some(vec![0, 0])),
        (0, |p| p.header.outputs[0] = Some(vec![7])),
        (0, |p| p.header.link = Link::Probit),
        (1, |p| p.header.uncertainty = Uncertainty::Each),
        (6, |p| p.header.classes = None),
        (8, |p| p.header.link = Link::Softmax),
        (12, |p| p.header.n_quadrature = Some(0)),
        (12, |p| p.header.n_quadrature = Some(usize::MAX)),
        (0, |p| p.header.blocks[1] = BlockHeader::Columns(vec![D])),
        (0, |p| {
            p.header.blocks[2] = BlockHeader::Centres(Kernel::Laplacian { gamma: -1.0 });
        }),
        (0, |p| drop(p.tables.remove("points.2"))),
        (0, |p| drop(p.tables.remove("covariance.0"))),
        (0, |p| {
            p.tables.insert("more".into(), table(&[0], vec![]));
        }),
        (0, |p| of(p, "weights.0").values[0] = f64::INFINITY),
        (0, |p| of(p, "weights.0").shape = vec![1, 7]),
        (0, |p| of(p, "points.2").shape = vec![usize::MAX, 3]),
        (0, |p| of(p, "noise_variance").values[0] = -1.0),
        (14, |p| p.header.format_version = 1),
        (14, |p| p.header.uncertainty = Uncertainty::None),
        (14, |p| p.header.growths.truncate(1)),
        (14, |p| of(p, "landmarks.1").shape = vec![D, 4]),
        (14, |p| of(p, "factor.1").values[2] = 0.0),
        (15, |p| of(p, "scale.0").shape = vec![1, 3]),
        (1, |p| of(p, "noise_variance").shape = vec![1, 1]),
        (1, |p| p.header.outputs[1] = Some(vec![0, 1, 2, 3, 4, 5, 6])),
        (3, |p| of(p, "covariance.0").shape = vec![4, 7]),
        (3, |p| {
            p.header.link = Link::Log;
            p.tables.remove("noise_variance");
        }),
        (18, |p| match &mut p.header.blocks[1] {
            BlockHeader::CentredColumns { offsets, .. } => offsets[0] = f64::NAN,
            _ => p.header.outputs.clear(),
        }),
    ];
    for (i, (which, change)) in changes.iter().enumerate() {
        let mut parts = all_parts().swap_remove(*which);
        change(&mut parts);
        let result = Predictor::from_parts(parts);
        assert!(matches!(result, Err(Error::Format { .. })), "change {i}");
    }
}

#[test]
fn tables_of_other_types_are_refused() {
    let mut bytes = models()[0].to_bytes().unwrap();
    let at = bytes.windows(3).position(|word| word == b"F64").unwrap();
    bytes[at] = b'I';
    let error = Predictor::from_bytes(&bytes).unwrap_err().to_string();
    assert!(error.contains("must be of type F64, got I64"), "{error}");
}

/// The file has a hole instead of its bytes.
#[cfg(unix)]
#[test]
fn files_too_large_for_a_model_are_refused_unread() {
    let file = tempfile::NamedTempFile::new().unwrap();
    file.as_file().set_len((8 << 30) + 1).unwrap();
    let (error, taken) = crate::alloc::peak_bytes(|| Predictor::load(file.path()).unwrap_err());
    assert!(error.to_string().contains("at most 8589934592 bytes"));
    assert!(taken < 1 << 10);
}

#[test]
fn a_later_version_is_named() {
    let header = r#"{"format_version": 3, "something": "new"}"#;
    let error = Parts::new(header, BTreeMap::new()).unwrap_err().to_string();
    assert!(
        error.contains("format version 3") && error.contains("newer"),
        "{error}"
    );
    assert!(Parts::new(r#"{"format_version": 1}"#, BTreeMap::new()).is_err());
    assert!(Parts::new("[]", BTreeMap::new()).is_err());
}

#[test]
fn a_file_cut_short_is_refused() {
    let bytes = models()[0].to_bytes().unwrap();
    for end in 0..bytes.len() {
        assert!(Predictor::from_bytes(&bytes[..end]).is_err(), "{end}");
    }
}

/// A table without rows has no numbers, however many columns it claims; a prediction must not loop over them.
#[test]
fn sizes_that_hold_no_numbers_do_no_harm() {
    let mut parts = all_parts().swap_remove(3);
    parts.header.outputs = vec![Some(vec![])];
    parts.tables.insert("weights.0".into(), table(&[0], vec![]));
    for n in [2, usize::MAX] {
        parts
            .tables
            .insert("covariance.0".into(), table(&[0, n], vec![]));
        let model = Predictor::from_parts(parts.clone()).unwrap();
        let (mut mean, mut std) = ([1.0], [1.0]);
        let x = [0.0; D];
        model.predict_std_into(&x, &mut mean, &mut std).unwrap();
        assert_eq!((mean, std), ([0.0], [0.2]));
    }

    let mut parts = all_parts().swap_remove(3);
    parts.header.feature_names = None;
    parts.header.n_features = usize::MAX;
    parts.header.blocks.truncate(2);
    parts.tables.remove("points.2");
    parts.header.outputs = vec![Some(vec![0, 1])];
    parts
        .tables
        .insert("weights.0".into(), table(&[2], vec![1.0; 2]));
    parts
        .tables
        .insert("covariance.0".into(), table(&[2, 0], vec![]));
    let model = Predictor::from_parts(parts).unwrap();
    model.predict_into(&[], &mut []).unwrap();
    assert!(matches!(
        model.predict_into(&[0.0], &mut []),
        Err(Error::Shape { .. })
    ));
}
