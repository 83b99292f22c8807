//! Which candidate has most to gain, out of their S and Q.

use super::outside::TIE;
use crate::linalg::simd::{Simd, WithSimd};

/// The candidate of the largest q^2 / s, if that is more than 1, among those that may enter and that the model has not all but
/// explained. Of ties the lowest wins: rounding must not choose the model.
pub(super) struct Largest<'a> {
    pub(super) s: &'a [f64],
    pub(super) q: &'a [f64],
    /// 1 for those that may enter, 0 for others.
    pub(super) open: &'a [f64],
    /// What S is of a candidate that the model has not all but explained.
    pub(super) resolved: f64,
}

/// Candidates that are compared side by side: enough to hide how long a comparison takes.
const SIDE: usize = 16;

/// For each place side by side the candidate that leads so far, by its number, and its q^2 and s.
#[derive(Clone, Copy)]
struct Leaders {
    square: [f64; SIDE],
    s: [f64; SIDE],
    at: [f64; SIDE],
}

impl WithSimd for Largest<'_> {
    type Output = Option<usize>;

    #[inline(always)]
    #[allow(clippy::inline_always)] // compiled once for each processor: see `dispatch`
    fn with_simd<S: Simd>(self, _: S) -> Option<usize> {
        let mut leaders = Leaders {
            square: [1.0; SIDE],
            s: [1.0; SIDE],
            at: [-1.0; SIDE],
        };
        let (s, s_rest) = self.s.as_chunks::<SIDE>();
        let (q, q_rest) = self.q.as_chunks::<SIDE>();
        let (open, open_rest) = self.open.as_chunks::<SIDE>();
        let mut first = 0.0;
        for ((s, q), open) in s.iter().zip(q).zip(open) {
            leaders.meet(s, q, open, self.resolved, first);
            first += SIDE as f64;
        }
        let [mut s, mut q, mut open] = [[0.0; SIDE]; 3];
        s[..s_rest.len()].copy_from_slice(s_rest);
        q[..q_rest.len()].copy_from_slice(q_rest);
        open[..open_rest.len()].copy_from_slice(open_rest);
        leaders.meet(&s, &q, &open, self.resolved, first);
        leaders.first()
    }
}

impl Leaders {
    /// Lets candidates take the lead, each in its place, by more than a tie. Ratios are compared by products, for divisions take long.
    #[inline(always)]
    #[allow(clippy::inline_always)] // into vector code
    fn meet(
        &mut self,
        s: &[f64; SIDE],
        q: &[f64; SIDE],
        open: &[f64; SIDE],
        resolved: f64,
        first: f64,
    ) {
        for place in 0..SIDE {
            let square = open[place] * (q[place] * q[place]);
            let square = if s[place] > resolved { square } else { 0.0 };
            let ahead = square * self.s[place] > (1.0 + TIE) * self.square[place] * s[place];
            self.square[place] = if ahead { square } else { self.square[place] };
            self.s[place] = if ahead { s[place] } else { self.s[place] };
            self.at[place] = if ahead {
                first + place as f64
            } else {
                self.at[place]
            };
        }
    }

    /// The first of all that lead but for a tie.
    fn first(&self) -> Option<usize> {
        let leads = |place: &usize| self.at[*place] >= 0.0;
        let ratio = |place: usize| self.square[place] / self.s[place];
        let most = (0..SIDE).filter(leads).map(ratio).reduce(f64::max)?;
        let at = (0..SIDE)
            .filter(|place| leads(place) && ratio(*place) * (1.0 + TIE) >= most)
            .map(|place| self.at[place])
            .reduce(f64::min)?;
        // A place in a slice, which a float holds exactly.
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        Some(at as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::linalg::simd::dispatch;

    fn largest(s: &[f64], q: &[f64], open: &[f64]) -> Option<usize> {
        dispatch(Largest {
            s,
            q,
            open,
            resolved: 0.1,
        })
    }

    #[test]
    fn the_candidate_that_gains_most_is_found_wherever_it_is() {
        for n in [0, 1, 15, 16, 17, 50] {
            let s: Vec<f64> = (0..n).map(|i| 1.0 + (i as f64).cos().abs()).collect();
            for at in 0..n {
                let mut q = vec![0.9; n];
                let mut open = vec![1.0; n];
                assert_eq!(largest(&s, &q, &open), None);
                q[at] = -5.0;
                assert_eq!(largest(&s, &q, &open), Some(at));
                open[at] = 0.0;
                assert_eq!(largest(&s, &q, &open), None);
            }
        }
    }

    #[test]
    fn of_ties_the_first_wins_and_what_the_model_explains_never_does() {
        let (mut s, mut q, open) = (vec![1.0; 40], vec![0.5; 40], vec![1.0; 40]);
        for (place, rounding) in [(3, 0.0), (4, 0.9), (19, 0.5), (35, 1.0)] {
            q[place] = 3.0 * (1.0 + 0.4 * TIE * rounding);
        }
        assert_eq!(largest(&s, &q, &open), Some(3));
        q[30] = 3.0 * (1.0 + TIE);
        assert_eq!(largest(&s, &q, &open), Some(30));
        q[8] = 100.0;
        s[8] = 0.05;
        assert_eq!(largest(&s, &q, &open), Some(30));
    }
}
