//! How the log determinant of a Hessian answers to moves of linear predictors: see [`Statistics::skew_projections`].

use nalgebra::DMatrix;

use super::Statistics;
use super::blocks::ROW_BLOCK;
use super::columns::Packed;
use crate::Result;
use crate::linalg::parallel::map_pieces;

/// The squared length of each row.
pub(super) fn row_squares(matrix: &DMatrix<f64>) -> Vec<f64> {
    let mut squares = vec![0.0; matrix.nrows()];
    for column in matrix.column_iter() {
        for (square, v) in squares.iter_mut().zip(column.iter()) {
            *square += v * v;
        }
    }
    squares
}

/// `skew_n |T_n|^2` of all rows, T = `columns` times the factor.
pub(super) fn tilts(columns: &Packed, factor: &DMatrix<f64>, skew: &[f64]) -> Vec<f64> {
    let parts = map_pieces(skew.len(), ROW_BLOCK, |rows| {
        let here = columns.at(&rows);
        let m = here.len();
        let t = DMatrix::from_fn(rows.len(), m, |i, k| here[k][i]) * factor.view((0, 0), (m, m));
        let squares = row_squares(&t);
        let pairs = squares.iter().zip(&skew[rows]);
        pairs.map(|(h, s)| h * s).collect::<Vec<f64>>()
    });
    parts.concat()
}

/// [`Statistics::skew_projections`] of a provider that answers [`Statistics::variance_drift`]: with candidates beside the
/// active functions, and a factor that leaves them as they are, the sums over active j are in its last columns.
pub(super) fn by_drifts(
    stats: &mut (impl Statistics + ?Sized),
    active: &[usize],
    mu: &[f64],
    factor: &DMatrix<f64>,
) -> Result<Vec<f64>> {
    const LEAST: usize = 128;
    let m = active.len();
    let norms = stats.norms();
    let outside: Vec<usize> = (0..norms.len())
        .filter(|i| norms[*i] > 0.0 && !active.contains(i))
        .collect();
    let mut out = vec![0.0; norms.len()];
    for batch in outside.chunks(LEAST.max(m)) {
        let functions = [active, batch].concat();
        let size = functions.len();
        let mut weights = mu.to_vec();
        weights.resize(size, 0.0);
        let mut gram = DMatrix::zeros(size, size);
        stats.local(&functions, &weights, &mut gram, &mut vec![0.0; size])?;
        let mut wide = DMatrix::identity(size, size);
        wide.view_mut((0, 0), (m, m))
            .copy_from(&factor.view((0, 0), (m, m)));
        let drift = stats.variance_drift(&functions, &wide)?;
        for (c, &i) in batch.iter().enumerate() {
            out[i] = (0..m).map(|j| drift[(j, m + c)]).sum();
        }
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DenseDesign, Likelihood, Multinomial, Observations};

    const N: usize = 40;
    const K: usize = 6;

    fn wave(i: usize, frequency: f64) -> f64 {
        (frequency * (i as f64 + 0.5)).sin()
    }

    fn check(stats: &mut dyn Statistics, active: &[usize]) {
        let m = active.len();
        let mu: Vec<f64> = (0..m).map(|k| wave(k, 2.3)).collect();
        let factor = DMatrix::from_fn(m, m, |i, j| wave(i + 3 * j, 0.9));
        let own = stats.skew_projections(active, &mu, &factor).unwrap();
        let slow = by_drifts(stats, active, &mu, &factor).unwrap();
        // And by what they mean: half the slope of tr(F F^T G) along each function.
        let trace = |stats: &mut dyn Statistics, i: usize, h: f64| {
            let mut functions = active.to_vec();
            let mut there = mu.clone();
            functions.push(i);
            there.push(h);
            let mut gram = DMatrix::zeros(m + 1, m + 1);
            stats
                .local(&functions, &there, &mut gram, &mut vec![0.0; m + 1])
                .unwrap();
            (gram.view((0, 0), (m, m)) * &factor).dot(&factor)
        };
        for i in (0..stats.n_basis()).filter(|i| !active.contains(i)) {
            let h = 1e-5;
            let slope = (trace(stats, i, h) - trace(stats, i, -h)) / (2.0 * h);
            assert!((own[i] - slope).abs() < 1e-7, "{i}: {} {slope}", own[i]);
            assert!((own[i] - slow[i]).abs() < 1e-12, "{i}");
        }
    }

    #[test]
    fn they_are_slopes_of_the_curvature() {
        let values: Vec<f64> = (0..N * K).map(|i| 2.0 * wave(i, 0.37)).collect();
        let design = DenseDesign::new(values, N, K).unwrap();
        let weights: Vec<f64> = (0..N).map(|i| 1.0 + 0.5 * wave(i, 0.7)).collect();
        for likelihood in [Likelihood::Bernoulli, Likelihood::Poisson] {
            let target = (0..N).map(|i| ((i * i) % 2) as f64).collect();
            let stats = Observations::new(&design, likelihood, target, Some(weights.clone()));
            check(&mut stats.unwrap(), &[4, 1]);
        }
        let target: Vec<f64> = (0..N).map(|i| ((i * i + i / 7) % 3) as f64).collect();
        let mut stats = Multinomial::new(&design, &target, Some(weights)).unwrap();
        check(&mut stats, &[13, 1, 7, 8]);
    }
}
