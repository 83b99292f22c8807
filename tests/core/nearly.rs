//! What is nearly so of a likelihood, for choosing functions by.

use nalgebra::DVector;
use sparsebayes::{Kernel, KernelDesign, Likelihood, Observations, Statistics};

use crate::problems::surface;

/// Many functions that a few features stand for: were the gradient not made of these too, some weights would promise more the
/// larger they are, without bound.
#[test]
fn a_gradient_promises_no_more_than_its_gram_matrix_bounds() {
    let (x, t) = surface(1200, 3);
    let kernel = Kernel::Gaussian {
        inverse_square_widths: vec![0.002],
    };
    let design = KernelDesign::new(&x, &x, 2, vec![kernel], false).unwrap();
    let target = t.iter().map(|&t| f64::from(u8::from(t > 0.1))).collect();
    let mut rows = Observations::new(&design, Likelihood::Bernoulli, target, None).unwrap();
    let js: Vec<usize> = (0..1200).step_by(8).collect();
    rows.deviance(&js[..2], &[0.5, -0.2]).unwrap();
    let (gram, gradient) = rows.nearly_among(&js).unwrap().unwrap();
    let (_, exactly) = rows.among(&js).unwrap();
    let (gradient, exactly) = (DVector::from_vec(gradient), DVector::from_vec(exactly));
    assert!((&gradient - &exactly).amax() < 1e-4 * exactly.amax());
    let singular = gram.clone().svd(true, true);
    let weights = singular.solve(&gradient, 1e-14 * gram.amax()).unwrap();
    let left = &gradient - &gram * weights;
    assert!(left.amax() < 1e-9 * gradient.amax(), "{}", left.amax());
}
