//! Candidates judged by bounds on their S and Q.
//!
//! A screen (`stats/screen.rs`) shows phi_z = f + e with f known through its products and |e| bounded. S is the squared length
//! of phi_z in the norm of C^-1, which is at most that of beta W. So by the triangle inequality sqrt(S) differs from that of f
//! by at most sqrt(beta) |e|, and Q from that of f by at most beta |e^T g|. What a function gains rises with q^2 / s alone
//! where priors are flat, and is less with others.

use crate::data::{BoundSample, DictionaryPart, ScreeningBounds};
use crate::fit::evidence::Factors;
use crate::fit::large::pricing::{Found, NEARLY, Offer, WORTHWHILE, normalise};
use crate::fit::model::State;
use crate::fit::prior::Gamma;
use crate::fit::record::{Recorder, Stop};
use crate::fit::settings::Rules;
use crate::linalg::vector::dot;
use crate::parallel::map_pieces;

/// Candidates between two reports.
const BLOCK: usize = 1 << 14;

/// What bounds say of a candidate.
enum Verdict {
    /// It gains, and at least so much.
    Gains(Offer),
    /// It does not gain.
    Outside(Offer),
    Open,
}

impl Found {
    /// Looks at the candidates that screens speak of, and returns those that remain open.
    pub(crate) fn screen(
        &mut self,
        stats: &mut dyn DictionaryPart,
        (active, state): (&[usize], &State),
        candidates: &[usize],
        rules: &Rules,
        recorder: &mut Recorder<'_>,
    ) -> Result<Vec<usize>, Stop> {
        let screens = stats.screening_bounds(active, &state.mu, candidates.len())?;
        if screens.is_empty() {
            return Ok(candidates.to_vec());
        }
        recorder.sweeping(0, candidates.len(), state)?;
        let flat = rules.has_flat_alphas();
        let (mut open, mut done) = (Vec::new(), 0);
        for block in candidates.chunks(BLOCK) {
            let covers = |screen: &&ScreeningBounds, i: usize| screen.functions.contains(&i);
            let anywhere = |i: &usize| screens.iter().any(|screen| covers(&screen, *i));
            open.extend(block.iter().filter(|i| !anywhere(i)));
            for screen in &screens {
                let own: Vec<usize> = block
                    .iter()
                    .copied()
                    .filter(|&i| covers(&screen, i))
                    .collect();
                self.judge(stats, screen, &own, state, flat, &mut open)?;
            }
            done += block.len();
            recorder.sweeping(done, candidates.len(), state)?;
        }
        Ok(open)
    }

    fn judge(
        &mut self,
        stats: &dyn DictionaryPart,
        screen: &ScreeningBounds,
        candidates: &[usize],
        state: &State,
        flat: bool,
        open: &mut Vec<usize>,
    ) -> Result<(), Stop> {
        let glances = stats.bound_samples(screen, candidates)?;
        let parts = map_pieces(candidates.len(), 256, |range| {
            let one = |c: usize| {
                (
                    candidates[c],
                    verdict(candidates[c], &glances[c], state, flat),
                )
            };
            range.map(one).collect::<Vec<_>>()
        });
        let (mut gainers, mut others) = (Vec::new(), Vec::new());
        for (index, verdict) in parts.into_iter().flatten() {
            match verdict {
                Verdict::Gains(offer) => gainers.push(offer),
                Verdict::Outside(offer) => {
                    if offer.ratio > NEARLY {
                        others.push(offer);
                    }
                }
                Verdict::Open => open.push(index),
            }
        }
        self.remember(gainers, others);
        Ok(())
    }
}

fn verdict(index: usize, glance: &BoundSample, state: &State, flat: bool) -> Verdict {
    /// Rounding of S, relative to the terms it is the difference of.
    const ROUNDING: f64 = 1e-12;
    let beta = state.beta;
    let mut v: Vec<f64> = glance.products.iter().map(|p| beta * p).collect();
    state.chol().solve_lower_in_place(&mut v);
    let (whole, q) = (beta * glance.diag, (beta * glance.gradient).abs());
    let s = whole - dot(&v, &v);
    let blur = ROUNDING * whole;
    let (rest, gradient_rest) = (beta.sqrt() * glance.rest, beta * glance.gradient_rest);
    let least = ((s - blur).max(0.0).sqrt() - rest).max(0.0).powi(2);
    let most = ((s + blur).max(0.0).sqrt() + rest).powi(2);
    let offer = |gain: f64, profile: Vec<f64>| Offer {
        index,
        gain,
        ratio: q * (q / s),
        profile,
    };
    // With S = 0 the first of these is no number or infinite, and nothing is excluded.
    let at_most = gain(least, q + gradient_rest);
    if at_most <= WORTHWHILE {
        return Verdict::Outside(offer(0.0, Vec::new()));
    }
    let at_least = gain(most, (q - gradient_rest).max(0.0));
    if flat && at_least > WORTHWHILE {
        normalise(&mut v);
        return Verdict::Gains(offer(at_least, v));
    }
    Verdict::Open
}

/// What a function of these factors gains under a flat prior; no number where both are zero.
fn gain(s: f64, q: f64) -> f64 {
    if s > 0.0 {
        let prior = Gamma::FLAT;
        Factors { s, q, prior }.gain_of_adding()
    } else {
        f64::NAN
    }
}
