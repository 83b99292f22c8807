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

/// Vectors of candidates that are compared side by side: enough to hide how long a comparison takes.
const SIDE: usize = 4;

/// The numbers of the lanes of the widest vectors.
const LANES: [f64; 8] = [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0];

impl WithSimd for Largest<'_> {
    type Output = Option<usize>;

    #[inline(always)]
    #[allow(clippy::inline_always)] // compiled once for each processor: see `dispatch`
    fn with_simd<S: Simd>(self, simd: S) -> Option<usize> {
        let (s, s_rest) = S::as_simd_f64s(self.s);
        let (q, q_rest) = S::as_simd_f64s(self.q);
        let (open, open_rest) = S::as_simd_f64s(self.open);
        let (s, s_end) = s.as_chunks::<SIDE>();
        let (q, q_end) = q.as_chunks::<SIDE>();
        let (open, open_end) = open.as_chunks::<SIDE>();
        let resolved = simd.splat_f64s(self.resolved);
        let mut leaders = [Leaders::nobody(simd); SIDE];
        let mut next = simd.partial_load_f64s(&LANES[..S::F64_LANES]);
        let lanes = simd.splat_f64s(S::F64_LANES as f64);
        for ((s, q), open) in s.iter().zip(q).zip(open) {
            for side in 0..SIDE {
                let met = (s[side], q[side], open[side]);
                leaders[side].meet(simd, met, resolved, next);
                next = simd.add_f64s(next, lanes);
            }
        }
        for ((&s, &q), &open) in s_end.iter().zip(q_end).zip(open_end) {
            leaders[0].meet(simd, (s, q, open), resolved, next);
            next = simd.add_f64s(next, lanes);
        }
        let rest = [s_rest, q_rest, open_rest].map(|rest| simd.partial_load_f64s(rest));
        leaders[0].meet(simd, rest.into(), resolved, next);
        first(simd, leaders)
    }
}

/// In each lane the candidate that leads so far: its q^2 and s, and its number.
#[derive(Clone, Copy)]
struct Leaders<S: Simd> {
    square: S::f64s,
    s: S::f64s,
    at: S::f64s,
}

impl<S: Simd> Leaders<S> {
    /// What there is to beat.
    #[inline(always)]
    #[allow(clippy::inline_always)] // as `Largest`
    fn nobody(simd: S) -> Self {
        Self {
            square: simd.splat_f64s(1.0),
            s: simd.splat_f64s(1.0),
            at: simd.splat_f64s(-1.0),
        }
    }

    /// Lets candidates, by their S, Q and whether they may enter, take the lead, each in its lane, by more than a tie. Ratios are
    /// compared by products, for divisions take long.
    #[inline(always)]
    #[allow(clippy::inline_always)] // as `Largest`
    fn meet(
        &mut self,
        simd: S,
        (s, q, open): (S::f64s, S::f64s, S::f64s),
        resolved: S::f64s,
        numbers: S::f64s,
    ) {
        let square = simd.mul_f64s(open, simd.mul_f64s(q, q));
        let is_resolved = simd.greater_than_f64s(s, resolved);
        let square = simd.select_f64s(is_resolved, square, simd.splat_f64s(0.0));
        // Rounding may have made less than nothing of S.
        let s = simd.max_f64s(s, resolved);
        let ahead = simd.mul_f64s(simd.splat_f64s(1.0 + TIE), self.square);
        let to_beat = simd.mul_f64s(ahead, s);
        let leads = simd.greater_than_f64s(simd.mul_f64s(square, self.s), to_beat);
        self.square = simd.select_f64s(leads, square, self.square);
        self.s = simd.select_f64s(leads, s, self.s);
        self.at = simd.select_f64s(leads, numbers, self.at);
    }

    /// q^2 / s where somebody leads.
    #[inline(always)]
    #[allow(clippy::inline_always)] // as `Largest`
    fn ratio(&self, simd: S) -> S::f64s {
        let zero = simd.splat_f64s(0.0);
        let is_nobody = simd.less_than_f64s(self.at, zero);
        simd.select_f64s(is_nobody, zero, simd.div_f64s(self.square, self.s))
    }
}

/// The first of all that lead but for a tie.
#[inline(always)]
#[allow(clippy::inline_always)] // as `Largest`
fn first<S: Simd>(simd: S, leaders: [Leaders<S>; SIDE]) -> Option<usize> {
    let mut most = simd.splat_f64s(0.0);
    for led in &leaders {
        most = simd.max_f64s(most, led.ratio(simd));
    }
    let most = simd.reduce_max_f64s(most);
    if most == 0.0 {
        return None;
    }
    let nowhere = simd.splat_f64s(f64::INFINITY);
    let mut at = nowhere;
    for led in &leaders {
        let nearly = simd.mul_f64s(led.ratio(simd), simd.splat_f64s(1.0 + TIE));
        let is_first = simd.greater_than_or_equal_f64s(nearly, simd.splat_f64s(most));
        at = simd.min_f64s(at, simd.select_f64s(is_first, led.at, nowhere));
    }
    // A place in a slice, which a float holds exactly.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    Some(simd.reduce_min_f64s(at) as usize)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::linalg::simd::dispatch;

    /// The same with vectors of every length.
    fn largest(s: &[f64], q: &[f64], open: &[f64]) -> Option<usize> {
        let all = || Largest {
            s,
            q,
            open,
            resolved: 0.1,
        };
        let found = dispatch(all());
        assert_eq!(all().with_simd(pulp::Scalar::new()), found);
        assert_eq!(all().with_simd(pulp::Scalar128b), found);
        assert_eq!(all().with_simd(pulp::Scalar256b), found);
        assert_eq!(all().with_simd(pulp::Scalar512b), found);
        found
    }

    #[test]
    fn the_candidate_that_gains_most_is_found_wherever_it_is() {
        for n in [0, 1, 15, 16, 17, 31, 32, 33, 50, 75] {
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
    fn one_whose_s_rounding_made_negative_hides_nobody() {
        let n = 70;
        let open = vec![1.0; n];
        for negative in 0..n {
            for at in (0..n).filter(|&at| at != negative) {
                let (mut s, mut q) = (vec![1.0; n], vec![0.5; n]);
                (s[negative], q[negative]) = (-1e-9, 7.0);
                q[at] = 2.0;
                assert_eq!(largest(&s, &q, &open), Some(at));
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
