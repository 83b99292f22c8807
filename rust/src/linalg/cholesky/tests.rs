//! Random sequences of updates, compared with dense matrices.

use crate::Error;
use crate::linalg::cholesky::*;
use proptest::prelude::*;

/// One change to the matrix; fractions select rows, vectors are truncated.
#[derive(Debug, Clone)]
enum Change {
    Push(Vec<f64>, f64),
    Remove(f64),
    Update(Vec<f64>),
    Downdate(Vec<f64>),
    Diagonal(f64, f64),
}

const MAX_ROWS: usize = 24;

fn vector() -> impl Strategy<Value = Vec<f64>> {
    prop::collection::vec(-1.0..1.0_f64, MAX_ROWS)
}

fn change() -> impl Strategy<Value = Change> {
    prop_oneof![
        4 => (vector(), 0.1..20.0_f64).prop_map(|(v, d)| Change::Push(v, d)),
        1 => (0.0..1.0_f64).prop_map(Change::Remove),
        1 => vector().prop_map(Change::Update),
        2 => vector().prop_map(Change::Downdate),
        2 => (0.0..1.0_f64, -6.0..6.0_f64).prop_map(|(at, delta)| Change::Diagonal(at, delta)),
    ]
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // a fraction of a small count
fn place(fraction: f64, n: usize) -> usize {
    (fraction * n as f64) as usize
}

/// The matrix after `change`, by the definition.
fn changed(a: &Matrix, change: &Change) -> Matrix {
    let n = a.nrows();
    let outer = |v: &[f64]| Matrix::from_fn(n, n, |i, j| v[i] * v[j]);
    match change {
        Change::Push(v, d) => {
            let mut grown = a.clone().resize(n + 1, n + 1, *d);
            for (i, v) in v.iter().enumerate().take(n) {
                grown[(i, n)] = *v;
                grown[(n, i)] = *v;
            }
            grown
        }
        Change::Remove(at) => a
            .clone()
            .remove_row(place(*at, n))
            .remove_column(place(*at, n)),
        Change::Update(v) => a + outer(v),
        Change::Downdate(v) => a - outer(v),
        Change::Diagonal(at, delta) => {
            let mut moved = a.clone();
            moved[(place(*at, n), place(*at, n))] += delta;
            moved
        }
    }
}

fn apply(factor: &mut Cholesky, change: &Change) -> Result<(), NotPositiveDefinite> {
    let n = factor.len();
    match change {
        Change::Push(v, d) => push(factor, &v[..n], *d),
        Change::Remove(at) => {
            factor.remove(place(*at, n));
            Ok(())
        }
        Change::Update(v) => {
            factor.update_from(0, &mut v[..n].to_vec());
            Ok(())
        }
        Change::Downdate(v) => factor.downdate_from(0, &mut v[..n].to_vec()),
        Change::Diagonal(at, delta) => factor.update_diagonal(place(*at, n), *delta),
    }
}

fn push(factor: &mut Cholesky, column: &[f64], d: f64) -> Result<(), NotPositiveDefinite> {
    let mut row = column.to_vec();
    factor.solve_lower_in_place(&mut row);
    factor.push_solved(&row, d - dot(&row, &row))
}

fn lower(factor: &Cholesky) -> Matrix {
    Matrix::from_fn(factor.len(), factor.len(), |i, j| {
        if j <= i { factor.get(i, j) } else { 0.0 }
    })
}

fn smallest_eigenvalue(a: &Matrix) -> f64 {
    if a.is_empty() {
        1.0
    } else {
        a.symmetric_eigenvalues().min()
    }
}

fn assert_close(got: &Matrix, expected: &Matrix, tolerance: f64) {
    let (off, size) = ((got - expected).abs().max(), expected.abs().max());
    assert!(
        got.is_empty() || off <= tolerance * size,
        "off by {off:e} of {size:e}"
    );
}

/// Applies the changes that leave a well-conditioned matrix and checks that clearly indefinite ones fail. Changes within
/// rounding of a singular matrix are skipped.
fn run(changes: &[Change]) -> (Cholesky, Matrix) {
    let mut factor = Cholesky::with_capacity(2);
    let mut a = Matrix::zeros(0, 0);
    for change in changes {
        let growing = matches!(change, Change::Push(..));
        if (a.is_empty() && !growing) || (a.nrows() == MAX_ROWS && growing) {
            continue;
        }
        let next = changed(&a, change);
        let edge = smallest_eigenvalue(&next);
        if edge > 1e-3 {
            apply(&mut factor, change).unwrap();
            a = next;
            assert_close(&(lower(&factor) * lower(&factor).transpose()), &a, 1e-10);
        } else if edge < -1e-3 {
            let before = lower(&factor);
            assert!(apply(&mut factor, change).is_err(), "{change:?}");
            assert_eq!(lower(&factor), before, "{change:?}");
        }
    }
    (factor, a)
}

proptest! {
    #[test]
    fn random_changes_give_the_factor_of_the_changed_matrix(
        changes in prop::collection::vec(change(), 1..60)
    ) {
        run(&changes);
    }

    #[test]
    fn solves_agree_with_dense_ones(changes in prop::collection::vec(change(), 1..60), b in vector()) {
        let (factor, a) = run(&changes);
        let n = factor.len();
        let Some(dense) = nalgebra::linalg::Cholesky::new(a.clone()).filter(|_| n > 0) else { return Ok(()) };
        let inverse = dense.inverse();
        // The error of the inverse grows with the condition number, which `run` limits to about 1e6.
        let tolerance = 1e-9;

        let right = Matrix::from_column_slice(n, 1, &b[..n]);
        let mut x = b[..n].to_vec();
        factor.solve_in_place(&mut x);
        assert_close(&Matrix::from_column_slice(n, 1, &x), &dense.solve(&right), tolerance);

        let mut y = b[..n].to_vec();
        factor.solve_lower_in_place(&mut y);
        assert_close(&(lower(&factor) * Matrix::from_column_slice(n, 1, &y)), &right, 1e-9);
        let mut y = b[..n].to_vec();
        factor.solve_lower_transpose_in_place(&mut y);
        assert_close(&(lower(&factor).transpose() * Matrix::from_column_slice(n, 1, &y)), &right, 1e-9);

        let ln_det = 2.0 * dense.l().diagonal().map(f64::ln).sum();
        prop_assert!((factor.ln_det() - ln_det).abs() <= 1e-9 * (1.0 + ln_det.abs()));

        // Only the leading block of a larger matrix may be written.
        let mut out = Matrix::repeat(n + 2, n + 1, f64::MAX);
        factor.inverse_into(&mut out).unwrap();
        let written = out.view((0, 0), (n, n)).into_owned();
        assert_close(&written, &inverse, tolerance);
        prop_assert_eq!(&written, &written.transpose());
        prop_assert!((0..n + 2).all(|i| (0..=n).all(|j| (i < n && j < n) || out[(i, j)] >= f64::MAX)));
    }
}

#[test]
fn singular_results_and_values_that_are_not_finite_are_rejected_without_changes() {
    let mut factor = Cholesky::with_capacity(0);
    let diagonal = |i, j| if i == j { 4.0 } else { 0.0 };
    factor.refactor(3, diagonal).unwrap();
    let before = lower(&factor);
    assert!(push(&mut factor, &[4.0, 0.0, 0.0], 4.0).is_err());
    assert!(factor.update_diagonal(2, -4.0).is_err());
    assert!(factor.downdate_from(0, &mut [2.0, 0.0, 0.0]).is_err());
    for odd in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
        assert!(push(&mut factor, &[0.0, odd, 0.0], 1.0).is_err());
        assert!(push(&mut factor, &[0.0; 3], odd).is_err());
        assert!(factor.update_diagonal(1, odd).is_err());
        assert!(factor.downdate_from(0, &mut [0.0, odd, 0.0]).is_err());
    }
    assert_eq!(lower(&factor), before);
}

/// Sizes around those at which a block is full, and several blocks.
const SIZES: [usize; 10] = [1, 2, 5, 31, 32, 33, 63, 64, 65, 107];

fn large_matrix(n: usize) -> Matrix {
    Matrix::from_fn(n, n, |i, j| {
        let apart = (i as f64 - j as f64).abs();
        (-0.3 * apart).exp() * (0.1 * apart).cos() + if i == j { 0.5 + i as f64 } else { 0.0 }
    })
}

#[test]
fn factors_and_inverses_of_all_sizes_are_correct() {
    for n in SIZES {
        let a = large_matrix(n);
        let mut chol = Cholesky::with_capacity(n + 3);
        // Elements above the diagonal and after the last row have no meaning.
        chol.refactor(n + 2, |i, j| if i == j { 1e10 } else { 1e4 })
            .unwrap();
        chol.refactor(n, |i, j| a[(i, j)]).unwrap();
        let lower = lower(&chol);
        assert!((&lower * lower.transpose() - &a).amax() < 1e-13 * a.amax());
        let mut inverse = Matrix::from_element(n + 5, n + 1, f64::NAN);
        chol.inverse_into(&mut inverse).unwrap();
        let inverse = inverse.view((0, 0), (n, n));
        assert!((&a * inverse - Matrix::identity(n, n)).amax() < 1e-12);
        assert_eq!(inverse, inverse.transpose());
    }
}

#[test]
fn errors_name_the_failing_pivot() {
    for n in SIZES {
        for bad in 0..n {
            let mut a = large_matrix(n);
            a[(bad, bad)] = if n.is_multiple_of(2) { -1.0 } else { f64::NAN };
            let mut chol = Cholesky::with_capacity(n);
            let error = chol.refactor(n, |i, j| a[(i, j)]).unwrap_err();
            assert!(matches!(error, Error::NotPositiveDefinite(e) if e.pivot == bad));
            assert!(chol.is_empty());
        }
    }
}

#[test]
fn a_raised_flag_ends_the_work_early() {
    let flag = Arc::new(AtomicBool::new(false));
    let mut chol = Cholesky::with_capacity(0);
    chol.cancelled_by(Some(Arc::clone(&flag)));
    let a = large_matrix(100);
    chol.refactor(100, |i, j| a[(i, j)]).unwrap();
    flag.store(true, std::sync::atomic::Ordering::Relaxed);
    let mut untouched = Matrix::zeros(100, 100);
    let interrupted = |result| matches!(result, Err(Error::Interrupted));
    assert!(interrupted(chol.inverse_into(&mut untouched)));
    assert!(interrupted(chol.refactor(100, |i, j| a[(i, j)])));
}

#[test]
#[should_panic(expected = "2 x 4 for 3 rows")]
fn an_inverse_needs_room() {
    let mut chol = Cholesky::with_capacity(3);
    let identity = |i, j| f64::from(u8::from(i == j));
    chol.refactor(3, identity).unwrap();
    chol.inverse_into(&mut Matrix::zeros(2, 4)).unwrap();
}
