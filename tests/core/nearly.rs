//! Approximate passes of a likelihood, by which functions are chosen.

use nalgebra::DVector;
use sparsebayes::{KernelDesign, Likelihood, Observations, Statistics, Sweep};

use crate::problems::{above, gaussian, surface};

fn rows_of<'a>(design: &'a KernelDesign, t: &[f64]) -> Observations<'a> {
    Observations::new(design, Likelihood::Bernoulli, above(0.1, t), None).unwrap()
}

fn gaussians(x: &[f64]) -> KernelDesign {
    KernelDesign::new(x, x, 2, vec![gaussian(0.002)], false).unwrap()
}

/// The gradient lies in the range of the low-rank Gram matrix: otherwise the quadratic model would be unbounded.
#[test]
fn a_gradient_promises_no_more_than_its_gram_matrix_bounds() {
    let (x, t) = surface(1200, 3);
    let design = gaussians(&x);
    let mut rows = rows_of(&design, &t);
    let js: Vec<usize> = (0..1200).step_by(8).collect();
    rows.deviance(&js[..2], &[0.5, -0.2]).unwrap();
    let (gram, gradient) = rows.approximate_among(&js).unwrap().unwrap();
    let gram = gram.whole();
    let (_, exactly) = rows.among(&js).unwrap();
    let (gradient, exactly) = (DVector::from_vec(gradient), DVector::from_vec(exactly));
    assert!((&gradient - &exactly).amax() < 1e-4 * exactly.amax());
    let singular = gram.clone().svd(true, true);
    let weights = singular.solve(&gradient, 1e-14 * gram.amax()).unwrap();
    let left = &gradient - &gram * weights;
    assert!(left.amax() < 1e-9 * gradient.amax(), "{}", left.amax());
}

#[test]
fn an_approximate_pass_is_close_to_an_exact_one() {
    let (x, t) = surface(1200, 3);
    let design = gaussians(&x);
    let mut rows = rows_of(&design, &t);
    let (active, mu) = ([3, 700], [0.5, -0.2]);
    let nearly = rows
        .approximate_sweep(&active, &mu, &active)
        .unwrap()
        .unwrap();
    let exactly = rows.sweep(&active, &mu, &active).unwrap();
    assert_eq!(nearly.deviances, exactly.deviances);
    let columns = |sweep: &Sweep| {
        let vectors = [sweep.diag.clone(), sweep.gradient.clone()];
        [&vectors, &sweep.gram[..]].concat()
    };
    for (a, b) in columns(&nearly).iter().zip(&columns(&exactly)) {
        let apart = a.iter().zip(b).map(|(a, b)| (a - b).abs());
        let largest = b.iter().fold(0.0, |most: f64, b| most.max(b.abs()));
        let furthest = apart.fold(0.0, f64::max);
        assert!(furthest < 1e-4 * largest, "{furthest} of {largest}");
        assert!(furthest > 0.0);
    }
}

#[test]
fn few_rows_and_gaussian_likelihoods_have_no_approximate_pass() {
    let (x, t) = surface(300, 3);
    let design = gaussians(&x);
    let mut few = rows_of(&design, &t);
    assert!(few.approximate_sweep(&[], &[], &[]).unwrap().is_none());
    let (x, t) = surface(1200, 3);
    let design = gaussians(&x);
    let mut linear = Observations::new(&design, Likelihood::Gaussian, t, None).unwrap();
    assert!(linear.approximate_sweep(&[], &[], &[]).unwrap().is_none());
}
