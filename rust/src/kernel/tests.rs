//! Kernel values of single pairs and of columns, and rejected parameters. Their formulas are in `tests/python/test_kernels.py`.

use crate::kernel::*;

fn gaussian(w: &[f64]) -> Kernel {
    Kernel::Gaussian {
        inverse_square_widths: w.to_vec(),
    }
}

fn matern52(w: &[f64]) -> Kernel {
    Kernel::Matern52 {
        inverse_square_widths: w.to_vec(),
    }
}

fn rational_quadratic(w: &[f64], alpha: f64) -> Kernel {
    Kernel::RationalQuadratic {
        inverse_square_widths: w.to_vec(),
        alpha,
    }
}

fn periodic(period: f64, width: f64) -> Kernel {
    Kernel::Periodic { period, width }
}

fn polynomial(degree: u32, gamma: f64, coef0: f64) -> Kernel {
    Kernel::Polynomial {
        degree,
        gamma,
        coef0,
    }
}

fn kernels() -> Vec<Kernel> {
    let sum = Kernel::Sum(vec![Kernel::Linear, Kernel::LinearSpline]);
    vec![
        gaussian(&[0.3]),
        gaussian(&[0.3, 0.1, 2.0]),
        Kernel::Matern32 {
            inverse_square_widths: vec![0.3],
        },
        matern52(&[0.3, 0.1, 2.0]),
        rational_quadratic(&[0.3, 0.1, 2.0], 0.8),
        periodic(0.3, 0.2),
        Kernel::Laplacian { gamma: 0.7 },
        polynomial(3, 0.5, 1.0),
        Kernel::Linear,
        Kernel::CentredLinear {
            offset: vec![0.5, -1.0, 2.0],
        },
        Kernel::Sigmoid {
            gamma: 0.2,
            coef0: -0.3,
        },
        Kernel::LinearSpline,
        Kernel::Product(vec![gaussian(&[0.3]), sum.clone()]),
        on_columns(&[2, 0], gaussian(&[0.3, 2.0])),
        on_columns(&[1], sum),
    ]
}

fn on_columns(columns: &[usize], kernel: Kernel) -> Kernel {
    Kernel::OnColumns {
        columns: columns.to_vec(),
        kernel: Box::new(kernel),
    }
}

fn points(n: usize) -> Vec<f64> {
    (0..n * 3)
        .map(|i| (f64::from(u32::try_from(i).unwrap()) * 0.7).sin() * 2.0)
        .collect()
}

#[test]
fn gradients_are_limits_of_differences() {
    let z = [0.2, -0.4, 0.9];
    for kernel in kernels() {
        for x in [[0.5, 0.3, -0.2], [-0.6, -0.9, 1.4]] {
            let mut gradient = [1.0; 3];
            let value = kernel.add_gradient(&x, &z, 2.0, &mut gradient);
            assert_eq!(value.to_bits(), kernel.eval(&x, &z).to_bits());
            for d in 0..3 {
                let at = |h: f64| {
                    let mut x = x;
                    x[d] += h;
                    kernel.eval(&x, &z)
                };
                let slope = (at(1e-5) - at(-1e-5)) / 2e-5;
                let found = (gradient[d] - 1.0) / 2.0;
                let error = (found - slope).abs();
                assert!(
                    error < 1e-6 * (1.0 + slope.abs()),
                    "{kernel:?} {d}: {found} {slope}"
                );
            }
        }
    }
}

#[test]
fn kernels_are_symmetric_and_columns_have_the_same_bits_as_single_pairs() {
    let n = 1100;
    let rows = points(n);
    let stored = Points::from_rows(&rows, n, 3);
    let centre = [0.3, -0.2, 1.1];
    for kernel in kernels() {
        for range in [0..n, 3..n - 2, 511..514, 7..7] {
            let mut out = vec![f64::NAN; range.len()];
            kernel.column_into(&stored, &centre, range.clone(), &mut out);
            for (i, value) in range.zip(out) {
                let row = &rows[i * 3..i * 3 + 3];
                for pair in [kernel.eval(row, &centre), kernel.eval(&centre, row)] {
                    assert_eq!(value.to_bits(), pair.to_bits(), "{kernel:?} {i}");
                }
            }
        }
    }
}

#[test]
fn kernels_of_the_distance_vanish_far_away() {
    for kernel in kernels() {
        if kernel.inverse_square_widths().is_some() {
            let value = kernel.eval(&[1e200, 0.0, 0.0], &[0.0; 3]);
            assert!(value == 0.0, "{kernel:?}");
        }
    }
}

#[test]
#[should_panic(expected = "rows 1..6 of 5")]
fn rows_after_the_last_point_panic() {
    Kernel::Linear.column_into(
        &Points::from_rows(&points(5), 5, 3),
        &[0.0; 3],
        1..6,
        &mut [0.0; 5],
    );
}

#[test]
#[should_panic(expected = "features of the centre")]
fn a_centre_with_other_features_panics() {
    Kernel::Linear.column_into(
        &Points::from_rows(&points(5), 5, 3),
        &[0.0; 2],
        0..5,
        &mut [0.0; 5],
    );
}

#[test]
fn invalid_parameters_are_rejected() {
    for kernel in [
        gaussian(&[1.0, 2.0]),
        gaussian(&[-1.0]),
        matern52(&[1.0, 2.0]),
        rational_quadratic(&[1.0], 0.0),
        periodic(f64::INFINITY, 1.0),
        periodic(1.0, -1.0),
        Kernel::Laplacian { gamma: -1.0 },
        polynomial(2, f64::NAN, 0.0),
        Kernel::Sum(vec![]),
        Kernel::Product(vec![polynomial(2, 1.0, f64::INFINITY)]),
        on_columns(&[], Kernel::Linear),
        on_columns(&[0, 3], Kernel::Linear),
        on_columns(&[0], gaussian(&[1.0, 2.0])),
        on_columns(&[0], Kernel::Sum(vec![on_columns(&[0], Kernel::Linear)])),
    ] {
        assert!(kernel.validate(3).is_err(), "{kernel:?}");
    }
    for kernel in kernels() {
        assert_eq!(kernel.validate(3), Ok(()));
    }
}
