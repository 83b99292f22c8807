//! Every data source gives the same model.

use std::ops::{ControlFlow, Range};

use nalgebra::DMatrix;
use sparsebayes::internal::{
    CentredProvider, JoinedDesign, ProviderStatistics, RowPart, RowProvider, SoftmaxStatistics,
};
use sparsebayes::{
    DenseDesign, Design, Error, Kernel, KernelDesign, Likelihood, Observations, Points, Posterior,
    Predictor, Scheme, Settings, Statistics, Status, SufficientStatistics, SumStatistics, fit_rows,
};

use crate::problems::{
    Uniform, above, columns, fit_design, fit_statistics, gaussian, labels, sharp, surface,
};

fn design(x: &[f64]) -> KernelDesign {
    let kernels = vec![gaussian(0.1), Kernel::Laplacian { gamma: 0.3 }];
    KernelDesign::new(x, x, 2, kernels, true).unwrap()
}

fn assert_same_bits(a: &Posterior, b: &Posterior) {
    let bits = |p: &Posterior| -> Vec<u64> {
        let values = p
            .alpha
            .iter()
            .chain(&p.mu)
            .chain(p.sigma.as_slice())
            .chain(&p.trace);
        values.map(|v| v.to_bits()).collect()
    };
    assert_eq!(a.active, b.active);
    assert_eq!(a.beta.to_bits(), b.beta.to_bits());
    assert_eq!(bits(a), bits(b));
}

#[test]
fn stored_and_lazy_designs_give_the_same_bits() {
    let (x, t) = surface(300, 5);
    let labels = above(0.1, &t);
    let lazy = design(&x);
    let stored = lazy.materialise(None).unwrap();
    for scheme in [Scheme::Sequential, Scheme::Variational] {
        let settings = Settings {
            scheme,
            ..Settings::default()
        };
        for (likelihood, t) in [(Likelihood::Gaussian, &t), (Likelihood::Bernoulli, &labels)] {
            let (a, _) = fit_design(&lazy, likelihood, t, None, settings.clone());
            let (b, _) = fit_design(&stored, likelihood, t, None, settings.clone());
            assert_eq!(a.status, Status::Converged);
            assert_same_bits(&a, &b);
        }
    }
}

/// Rows cache their results at the last weights, for the same functions and bounds.
#[test]
fn results_do_not_depend_on_earlier_calls() {
    let (x, t) = surface(300, 5);
    let labels = above(0.1, &t);
    let design = design(&x);
    let rows = || Observations::new(&design, Likelihood::Bernoulli, labels.clone(), None).unwrap();
    let places = [
        (vec![3, 8], vec![0.5, -1.0]),
        (vec![3, 8], vec![0.5, -1.0]),
        (vec![3, 9], vec![0.5, -1.0]),
        (vec![3, 9], vec![0.5, 1.0]),
        (vec![9, 3], vec![0.5, 1.0]),
        (vec![], vec![]),
        (vec![3, 9], vec![0.5, 1.0]),
    ];
    let look = |rows: &mut Observations<'_>, active: &[usize], mu: &[f64], bounded: bool| {
        let m = active.len();
        if bounded {
            rows.bound(active, mu, &DMatrix::identity(m, m)).unwrap();
        }
        let (deviance, (gram, gradient)) = rows.local(active, mu).unwrap();
        let sweep = rows.sweep(active, mu, active).unwrap();
        let mut all = vec![deviance, sweep.deviances[0]];
        all.extend(gradient.iter().chain(&gram).chain(&sweep.gradient));
        all.extend(sweep.diag.iter().chain(sweep.gram.iter().flatten()));
        all.into_iter().map(f64::to_bits).collect::<Vec<_>>()
    };
    for bounded in [false, true] {
        let mut one = rows();
        look(&mut one, &places[0].0, &places[0].1, false);
        for (active, mu) in &places {
            let anew = look(&mut rows(), active, mu, bounded);
            assert_eq!(look(&mut one, active, mu, bounded), anew);
        }
    }
}

/// A second fit takes the path of the first: nothing is kept that the first one uses up.
#[test]
fn a_second_fit_of_the_same_rows_has_the_same_bits() {
    let (x, t) = surface(300, 5);
    let labels = above(0.1, &t);
    let (small, large) = (design(&x), surface(1300, 5));
    // Large enough for a first model from low-rank features.
    let smooth = KernelDesign::new(&large.0, &large.0, 2, vec![gaussian(0.16)], true).unwrap();
    for scheme in [Scheme::Sequential, Scheme::Variational, Scheme::MacKay] {
        let settings = Settings {
            scheme,
            ..Settings::default()
        };
        let mut problems = vec![
            (&small, Likelihood::Gaussian, &t),
            (&small, Likelihood::Bernoulli, &labels),
        ];
        if scheme == Scheme::Sequential {
            problems.push((&smooth, Likelihood::Gaussian, &large.1));
        }
        for (design, likelihood, t) in problems {
            let mut rows = Observations::new(design, likelihood, t.clone(), None).unwrap();
            let rules = settings.clone().check().unwrap();
            let mut fit = || fit_rows(&mut rows, &rules, &mut |_| ControlFlow::Continue(()));
            let first = fit().unwrap();
            assert_same_bits(&first, &fit().unwrap());
        }
    }
    let mut classes = SoftmaxStatistics::new(&small, &labels, None).unwrap();
    let part = RowPart::new(Box::new(&small), Likelihood::Bernoulli, labels, None).unwrap();
    let mut provider = ProviderStatistics::new(CentredProvider::new(part, 1..3).unwrap()).unwrap();
    let both: [&mut dyn Statistics; 2] = [&mut classes, &mut provider];
    for stats in both {
        let first = fit_statistics(stats, Settings::default());
        assert_same_bits(&first, &fit_statistics(stats, Settings::default()));
    }
}

#[test]
fn columns_beside_kernels_give_the_bits_of_one_stored_design() {
    let (x, t) = surface(700, 8);
    let labels = above(0.1, &t);
    // 91 functions and 70 columns: a block of 64 holds some of both.
    let left = KernelDesign::new(&x, &x[..180], 2, vec![gaussian(0.1)], true).unwrap();
    let extra: Vec<f64> = Uniform(9).take(70 * 700).collect();
    let right = DenseDesign::new(&extra[..], 700, 70).unwrap();
    let lazy = JoinedDesign::new(&left, &right).unwrap();
    let mut values = left.values().unwrap();
    values.extend(&extra);
    let stored = DenseDesign::new(values, 700, 161).unwrap();
    assert_eq!(lazy.n_basis(), 161);
    for (likelihood, t) in [(Likelihood::Gaussian, &t), (Likelihood::Bernoulli, &labels)] {
        let (a, _) = fit_design(&lazy, likelihood, t, None, Settings::default());
        let (b, _) = fit_design(&stored, likelihood, t, None, Settings::default());
        assert_same_bits(&a, &b);
    }
}

#[test]
fn joined_designs_show_the_blocks_of_both() {
    let phi: Vec<f64> = (0..30).map(f64::from).collect();
    let left = DenseDesign::new(&phi[..12], 6, 2).unwrap();
    let right = DenseDesign::new(&phi[12..], 6, 3).unwrap();
    let (joined, whole) = (
        JoinedDesign::new(&left, &right).unwrap(),
        DenseDesign::new(&phi[..], 6, 5).unwrap(),
    );
    let (mut a, mut b) = (Vec::new(), Vec::new());
    for start in 0..5 {
        for end in start + 1..=5 {
            let found = joined.block(1..4, start..end, &mut a);
            let expected = whole.block(1..4, start..end, &mut b);
            for c in 0..end - start {
                assert_eq!(found.column(c, 3), expected.column(c, 3));
            }
        }
    }
    let short = DenseDesign::new(&phi[..10], 5, 2).unwrap();
    assert!(matches!(
        JoinedDesign::new(&left, &short).err(),
        Some(Error::Shape { .. })
    ));
}

/// With weights u and v of the two classes the likelihood knows v - u alone, whose prior variance is the sum of the two.
/// So the evidence is that of the Bernoulli model whatever the shares of that sum.
#[test]
fn a_softmax_of_two_classes_is_the_bernoulli_model() {
    for seed in 0..6 {
        let problem = labels(80, 12, seed);
        let design = DenseDesign::new(&problem.phi[..], problem.n, problem.k).unwrap();
        let settings = Settings::default();
        let (one, _) = fit_design(
            &design,
            Likelihood::Bernoulli,
            &problem.t,
            None,
            settings.clone(),
        );
        let mut stats = SoftmaxStatistics::new(&design, &problem.t, None).unwrap();
        let two = fit_statistics(&mut stats, settings);
        assert_eq!(two.status, Status::Converged);
        assert!((two.log_evidence - one.log_evidence).abs() < 1e-6);
        let mut difference = vec![0.0; problem.k];
        for (&j, mu) in two.active.iter().zip(&two.mu) {
            difference[j % problem.k] += if j < problem.k { -mu } else { *mu };
        }
        for (&j, mu) in one.active.iter().zip(&one.mu) {
            difference[j] -= mu;
        }
        assert!(difference.iter().all(|d| d.abs() < 1e-4), "{difference:?}");
    }
}

/// Sums of these rows of a row-major matrix.
fn sums_of(
    phi: &[f64],
    k: usize,
    t: &[f64],
    w: Option<&[f64]>,
    rows: Range<usize>,
) -> SufficientStatistics {
    let part = &phi[rows.start * k..rows.end * k];
    let design = DenseDesign::from_rows(part, rows.len(), k).unwrap();
    SufficientStatistics::of(&design, &t[rows.clone()], w.map(|w| &w[rows]), None).unwrap()
}

fn fit_sums(sums: &SufficientStatistics, bias: bool, settings: Settings) -> Posterior {
    fit_statistics(&mut SumStatistics::new(sums, bias, 0).unwrap(), settings)
}

fn assert_same_model(a: &Posterior, b: &Posterior) {
    assert_same_to(1e-8, a, b);
}

fn assert_same_to(tolerance: f64, a: &Posterior, b: &Posterior) {
    let near = |a: f64, b: f64| (a / b - 1.0).abs() < tolerance;
    assert_eq!((&a.active, a.status), (&b.active, b.status));
    assert!(near(a.beta, b.beta) && near(a.log_evidence, b.log_evidence));
    for (a, b) in a.alpha.iter().zip(&b.alpha).chain(a.mu.iter().zip(&b.mu)) {
        assert!(near(*a, *b), "{a} {b}");
    }
}

/// Row-major values of a design.
fn by_rows(design: &DenseDesign<'_>) -> Vec<f64> {
    let (n, k) = (design.n_rows(), design.n_basis());
    let mut buffer = Vec::new();
    let whole = design.block(0..n, 0..k, &mut buffer);
    let rows = (0..n).flat_map(|i| (0..k).map(move |j| (i, j)));
    rows.map(|(i, j)| whole.column(j, n)[i]).collect()
}

#[test]
fn sums_give_the_model_of_the_rows() {
    for (seed, weighted) in [(1, false), (2, true), (3, false), (4, true)] {
        let problem = columns(700, 30, seed);
        let weights: Vec<f64> = Uniform(seed + 9).take(700).map(|u| 1.5 + u).collect();
        let weights = weighted.then_some(weights);
        let phi = by_rows(&problem.design());
        let first = 20 + 60 * usize::try_from(seed).unwrap();
        let cuts = [0, first, first + 1, 530, 699, 700];
        let parts = cuts.windows(2).rev();
        let w = weights.as_deref();
        let sums = parts.map(|c| sums_of(&phi, 30, &problem.t, w, c[0]..c[1]));
        let sums = sums
            .reduce(|mut a, b| {
                a.merge(&b).unwrap();
                a
            })
            .unwrap();
        for scheme in [
            Scheme::Sequential,
            Scheme::MacKay,
            Scheme::Em,
            Scheme::Variational,
        ] {
            let settings = Settings { scheme, ..sharp() };
            let (rows, _) = fit_design(
                &problem.design(),
                Likelihood::Gaussian,
                &problem.t,
                weights.clone(),
                settings.clone(),
            );
            assert_same_model(&rows, &fit_sums(&sums, false, settings));
        }
    }
}

#[test]
fn sums_have_a_constant_function_on_request() {
    let problem = columns(300, 12, 6);
    let t: Vec<f64> = problem.t.iter().map(|t| t + 40.0).collect();
    let sums = sums_of(&by_rows(&problem.design()), 12, &t, None, 0..300);
    let with_ones = [&vec![1.0; 300][..], &problem.phi].concat();
    let design = DenseDesign::new(with_ones, 300, 13).unwrap();
    let (rows, _) = fit_design(&design, Likelihood::Gaussian, &t, None, sharp());
    assert_same_model(&rows, &fit_sums(&sums, true, sharp()));
}

/// The constant function and `phi`, column after column, each column less its mean plus `offset`.
fn about(phi: &[f64], n: usize, offset: f64) -> Vec<f64> {
    let mut values = vec![1.0; n];
    for column in phi.chunks_exact(n) {
        let mean = column.iter().sum::<f64>() / n as f64;
        values.extend(column.iter().map(|v| v - mean + offset));
    }
    values
}

#[test]
fn offsets_of_columns_do_not_change_fits_to_centred_sums() {
    let (n, k) = (300, 12);
    let problem = columns(n, k, 6);
    let t: Vec<f64> = problem.t.iter().map(|t| t + 3.0).collect();
    let labels = above(0.0, &problem.t);
    for (likelihood, t) in [(Likelihood::Gaussian, &t), (Likelihood::Bernoulli, &labels)] {
        let centred = DenseDesign::new(about(&problem.phi, n, 0.0), n, k + 1).unwrap();
        let (expected, _) = fit_design(&centred, likelihood, t, None, sharp());
        assert!(expected.active.len() > 2);
        for offset in [0.0, 10.0, 1e6] {
            let values = about(&problem.phi, n, offset);
            if likelihood == Likelihood::Gaussian {
                let rows = by_rows(&DenseDesign::new(&values[n..], n, k).unwrap());
                let sums = sums_of(&rows, k, t, None, 0..n);
                let mut stats = SumStatistics::new(&sums, true, k).unwrap();
                assert!(stats.means().iter().all(|m| (m - offset).abs() < 1e-9));
                let found = fit_statistics(&mut stats, sharp());
                assert_same_to(1e-6, &expected, &found);
            }
            if offset < 1e6 {
                let design = Box::new(DenseDesign::new(values, n, k + 1).unwrap());
                let rows = RowPart::new(design, likelihood, t.clone(), None).unwrap();
                let rows = CentredProvider::new(rows, 1..k + 1).unwrap();
                let mut stats = ProviderStatistics::new(rows).unwrap();
                let found = fit_statistics(&mut stats, sharp());
                assert_same_to(1e-6, &expected, &found);
            }
        }
    }
}

/// Passes over centred columns, computed from the columns themselves.
#[test]
fn centred_columns_have_the_sums_of_columns_that_are_centred_before() {
    let (n, k) = (60, 5);
    let problem = columns(n, k, 3);
    let labels = above(0.0, &problem.t);
    let provider = |values: Vec<f64>| {
        let design = Box::new(DenseDesign::new(values, n, k + 1).unwrap());
        RowPart::new(design, Likelihood::Bernoulli, labels.clone(), None).unwrap()
    };
    let mut before = provider(about(&problem.phi, n, 0.0));
    let mut after = CentredProvider::new(provider(about(&problem.phi, n, 3.0)), 1..k + 1).unwrap();
    let sigma = [0.5, 0.1, -0.2, 0.1, 0.3, 0.15, -0.2, 0.15, 0.7];
    for active in [vec![2, 0, 4], vec![5, 1, 3]] {
        let (mu, wanted) = ([0.4, -0.3, 0.8], [3, 0, 1]);
        let (a, b) = (&mut before, &mut after);
        let close = |a: &[f64], b: &[f64]| {
            assert_eq!(a.len(), b.len());
            for (a, b) in a.iter().zip(b) {
                assert!((a - b).abs() <= 1e-11 * (1.0 + a.abs()), "{a} {b}");
            }
        };
        close(
            &[a.deviance(&active, &mu).unwrap()],
            &[b.deviance(&active, &mu).unwrap()],
        );
        let (x, y) = (a.gradient(&active, &mu), b.gradient(&active, &mu));
        let ((x, slopes), (y, others)) = (x.unwrap(), y.unwrap());
        close(&[x], &[y]);
        close(&slopes, &others);
        let (x, y) = (
            a.among(&active, &mu, &wanted),
            b.among(&active, &mu, &wanted),
        );
        let (x, y) = (x.unwrap(), y.unwrap());
        close(&x.gradient, &y.gradient);
        close(&x.gram, &y.gram);
        let (x, y) = (
            a.sweep(&active, &mu, &wanted),
            b.sweep(&active, &mu, &wanted),
        );
        let (x, y) = (x.unwrap(), y.unwrap());
        close(&x.gradient, &y.gradient);
        close(&x.diag, &y.diag);
        for (x, y) in x.gram.iter().zip(&y.gram) {
            close(x, y);
        }
        let drift = a.variance_drift(&active, &mu, &sigma).unwrap();
        assert!(drift.iter().any(|v| v.abs() > 1e-3));
        close(&drift, &b.variance_drift(&active, &mu, &sigma).unwrap());
    }
}

#[test]
fn sums_are_a_commutative_monoid() {
    // More columns than one thread adds.
    const K: usize = 30;
    let problem = columns(1700, K, 7);
    let phi = by_rows(&problem.design());
    let of = |rows| sums_of(&phi, K, &problem.t, None, rows);
    let (a, b, c) = (of(0..300), of(300..301), of(301..1700));
    let merged = |a: &SufficientStatistics, b: &SufficientStatistics| {
        let mut sum = a.clone();
        sum.merge(b).unwrap();
        sum
    };
    assert_eq!(merged(&a, &b).parts(), merged(&b, &a).parts());
    assert_eq!(
        merged(&SufficientStatistics::new(K).unwrap(), &a).parts(),
        a.parts()
    );
    let (left, right) = (merged(&merged(&a, &b), &c), merged(&a, &merged(&b, &c)));
    let mut grown = SufficientStatistics::new(K).unwrap();
    for rows in [0..300, 300..301, 301..1700] {
        let design =
            DenseDesign::from_rows(&phi[K * rows.start..K * rows.end], rows.len(), K).unwrap();
        grown.update(&design, &problem.t[rows], None).unwrap();
    }
    for other in [right, grown, of(0..1700)] {
        assert_eq!(left.n_rows(), other.n_rows());
        for i in 0..K {
            assert!((left.projection(i) - other.projection(i)).abs() < 1e-15 * 1700.0);
            for j in 0..K {
                assert!((left.gram(i, j) - other.gram(i, j)).abs() < 1e-15 * 1700.0);
            }
        }
    }
    let again = SufficientStatistics::from_parts(K, 1700, &left.parts()).unwrap();
    assert_eq!(again.parts(), left.parts());
}

#[test]
fn sums_refuse_what_they_cannot_hold() {
    let design = DenseDesign::new(vec![1.0, 2.0], 2, 1).unwrap();
    let mut sums = SufficientStatistics::new(1).unwrap();
    assert!(SumStatistics::new(&sums, true, 0).is_err());
    sums.update(&design, &[1.0, 2.0], Some(&[0.0, 3.0]))
        .unwrap();
    let before = sums.parts();
    let wide = DenseDesign::new(vec![1.0, 2.0], 1, 2).unwrap();
    let huge = DenseDesign::new(vec![1.0, 1e150], 2, 1).unwrap();
    for outcome in [
        sums.update(&wide, &[1.0], None),
        sums.update(&huge, &[1.0, 1.0], None),
        sums.update(&design, &[1.0], None),
        sums.update(&design, &[1.0, f64::NAN], None),
        sums.update(&design, &[1.0, 1.0], Some(&[1.0, -1.0])),
        sums.merge(&SufficientStatistics::new(2).unwrap()),
        SufficientStatistics::from_parts(1, 2, &before[1..]).map(|_| ()),
    ] {
        assert!(outcome.unwrap_err().is_invalid_input());
    }
    assert!(SufficientStatistics::new(usize::MAX - 1).is_err());
    assert!(SufficientStatistics::from_parts(usize::MAX, 0, &before).is_err());
    assert_eq!(sums.parts(), before);
    assert_eq!(sums.n_rows(), 2);
    assert!((sums.weight() - 3.0).abs() < 1e-15);
    let empty = DenseDesign::new(Vec::new(), 0, 1).unwrap();
    sums.update(&empty, &[], None).unwrap();
    assert_eq!(sums.parts(), before);
}

#[test]
fn public_types_may_cross_threads() {
    fn sent<T: Send + Sync>() {}
    sent::<DenseDesign<'static>>();
    sent::<KernelDesign>();
    sent::<Points>();
    sent::<Kernel>();
    sent::<Posterior>();
    sent::<Predictor>();
    sent::<Settings>();
    sent::<Error>();
}
