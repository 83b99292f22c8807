//! Unit-norm columns of a design, kept while they are in use.

use std::collections::HashMap;

use super::design::Design;

/// Columns that the active functions need again and again, evaluated once.
///
/// Between calls: `values` holds one column of `n_rows` values for each entry of `slots`, divided by its norm.
#[derive(Debug, Default)]
pub(super) struct Columns {
    slots: HashMap<usize, usize>,
    values: Vec<f64>,
}

impl Columns {
    /// The columns `js` side by side (N x |js|), evaluating those not yet held.
    pub(super) fn gather(
        &mut self,
        design: &dyn Design,
        norms: &[f64],
        js: &[usize],
        out: &mut Vec<f64>,
    ) {
        let n = design.n_rows();
        self.make_room(js, n);
        for &j in js {
            let next = self.slots.len();
            let slot = *self.slots.entry(j).or_insert(next);
            if slot == next {
                append_column(design, norms, j, &mut self.values);
            }
        }
        out.clear();
        for j in js {
            let slot = self.slots[j];
            out.extend_from_slice(&self.values[slot * n..(slot + 1) * n]);
        }
    }

    /// Forgets everything once columns out of use outnumber those in use.
    fn make_room(&mut self, js: &[usize], n: usize) {
        const SPARE: usize = 64;
        if self.values.len() > n * (2 * js.len() + SPARE) {
            self.slots.clear();
            self.values.clear();
        }
    }
}

/// Appends column `j`, divided by its norm.
pub(super) fn append_column(design: &dyn Design, norms: &[f64], j: usize, out: &mut Vec<f64>) {
    let n = design.n_rows();
    let mut buffer = Vec::new();
    let block = design.block(0..n, j..j + 1, &mut buffer);
    out.extend(block.column(0, n).iter().map(|v| v / norms[j]));
}
