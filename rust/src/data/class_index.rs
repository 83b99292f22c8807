//! Basis functions of several linear predictors, sorted by the one they belong to.

use std::ops::Range;

use nalgebra::DMatrix;

use crate::linalg::vector::mirror;

/// A list of expanded functions (`c * n_basis + j` adds function j to the logit of class c) in the order of its classes.
///
/// Between calls: `places` are positions in the list, `functions` the j of each, and those of class c stand at
/// `bounds[c]..bounds[c + 1]` of both.
#[derive(Debug, Default)]
pub(crate) struct ByClass {
    places: Vec<usize>,
    functions: Vec<usize>,
    bounds: Vec<usize>,
}

impl ByClass {
    pub(crate) fn new(list: &[usize], n_basis: usize, n_classes: usize) -> Self {
        let mut places: Vec<usize> = (0..list.len()).collect();
        places.sort_by_key(|&k| list[k] / n_basis);
        Self {
            functions: places.iter().map(|&k| list[k] % n_basis).collect(),
            bounds: (0..=n_classes)
                .map(|c| places.partition_point(|&k| list[k] / n_basis < c))
                .collect(),
            places,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.places.len()
    }

    /// The j of each function.
    pub(crate) fn functions(&self) -> &[usize] {
        &self.functions
    }

    /// Where each function stands in the list.
    pub(crate) fn places(&self) -> &[usize] {
        &self.places
    }

    /// Where the functions of a class stand here.
    pub(crate) fn of(&self, class: usize) -> Range<usize> {
        self.bounds[class]..self.bounds[class + 1]
    }

    /// A symmetric matrix over the functions, its lower triangle given in the order here, in the order of the list.
    pub(crate) fn unsorted(&self, mut sorted: DMatrix<f64>) -> DMatrix<f64> {
        mirror(&mut sorted);
        let m = self.len();
        let mut out = DMatrix::zeros(m, m);
        for (b, &to) in self.places.iter().enumerate() {
            for (a, &from) in self.places.iter().enumerate() {
                out[(from, to)] = sorted[(a, b)];
            }
        }
        out
    }
}
