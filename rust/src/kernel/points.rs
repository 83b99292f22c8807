//! Points stored feature by feature.

use crate::kernel::eval::{CHUNK, NARROW, Run};

/// Points stored feature by feature, so that the values of one feature are contiguous.
#[derive(Debug, Clone, Default)]
pub struct Points {
    len: usize,
    n_features: usize,
    values: Vec<f64>,
}

impl Points {
    /// Copies a row-major table of `n_points` x `n_features` values.
    ///
    /// # Panics
    /// If `rows` is shorter.
    #[must_use]
    pub fn from_rows(rows: &[f64], n_points: usize, n_features: usize) -> Self {
        let mut points = Self::default();
        points.refill(rows, n_points, n_features);
        points
    }

    /// Replaces the points as [`Points::from_rows`] does, reusing their memory.
    pub(crate) fn refill(&mut self, rows: &[f64], n_points: usize, n_features: usize) {
        self.len = n_points;
        self.n_features = n_features;
        self.values.resize(n_points * n_features, 0.0);
        let rows = &rows[..self.values.len()];
        // Some points at a time, so that their rows stay in the cache for all features.
        for start in (0..n_points).step_by(CHUNK / NARROW) {
            let end = (start + CHUNK / NARROW).min(n_points);
            for (d, feature) in self.values.chunks_exact_mut(n_points).enumerate() {
                let (strips, rest) = feature[start..end].as_chunks_mut::<NARROW>();
                let mut at = start * n_features + d;
                for strip in strips {
                    let rows = &rows[at..];
                    for (k, to) in strip.iter_mut().enumerate() {
                        *to = rows[k * n_features];
                    }
                    at += NARROW * n_features;
                }
                for (k, to) in rest.iter_mut().enumerate() {
                    *to = rows[at + k * n_features];
                }
            }
        }
    }

    /// Number of points.
    #[must_use]
    pub fn n_points(&self) -> usize {
        self.len
    }

    /// Number of features.
    #[must_use]
    pub fn n_features(&self) -> usize {
        self.n_features
    }

    /// The values of feature `d`.
    pub(crate) fn feature(&self, d: usize) -> &[f64] {
        &self.values[d * self.len..][..self.len]
    }

    /// `len` points from `start` on.
    pub(crate) fn run(&self, start: usize, len: usize) -> Run<'_> {
        Run {
            values: &self.values,
            stride: self.len,
            start,
            len,
        }
    }
}
