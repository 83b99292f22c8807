//! How the hazards of the classes spread and go together under the integrand of a row.

use crate::likelihood::probit::quadrature::{Integral, LANES, Lanes, curvature};

impl Integral {
    /// Notes how the hazard of class `j` differs from its mean, which is given; returns the mean of minus the second derivative of
    /// ln Phi at u + d_j, hazard (hazard + u + d_j). At the mode u + d_j is `at`.
    #[inline(always)]
    #[allow(clippy::inline_always)] // so that it is compiled for the instruction set of its caller
    pub(crate) fn centre(&mut self, j: usize, mean: f64, at: f64) -> f64 {
        let n = self.offset.len();
        let centred = self.centred[j / LANES * n..][..n].iter_mut();
        let centred = centred.map(|lanes| &mut lanes[j % LANES]);
        if !self.seen[j] {
            centred.for_each(|to| *to = 0.0);
            return 0.0;
        }
        let hazards = &self.hazard[j * n..][..n];
        for (to, hazard) in centred.zip(hazards) {
            *to = hazard - mean;
        }
        let mut sums = [0.0; LANES];
        let nodes = self.product.chunks_exact(LANES);
        let nodes = nodes.zip(self.offset.chunks_exact(LANES));
        for (hazards, (product, offset)) in hazards.chunks_exact(LANES).zip(nodes) {
            for l in 0..LANES {
                sums[l] += product[l] * curvature(hazards[l], at + offset[l]);
            }
        }
        sums.iter().sum()
    }

    /// The covariances under the integrand of the hazards of class `c` and of [`LANES`] classes from `LANES * group` on, once all
    /// are centred.
    #[inline(always)]
    #[allow(clippy::inline_always)] // as `centre`
    pub(crate) fn covariances(&self, c: usize, group: usize) -> Lanes {
        let n = self.offset.len();
        let own = &self.centred[c / LANES * n..][..n];
        let others = &self.centred[group * n..][..n];
        let mut sums = [0.0; LANES];
        for (product, (own, others)) in self.product.iter().zip(own.iter().zip(others)) {
            let weight = product * own[c % LANES];
            for l in 0..LANES {
                sums[l] += weight * others[l];
            }
        }
        sums
    }
}
