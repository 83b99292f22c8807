//! Sweeps over the candidates outside a working set, and which of them come in.

use crate::data::{DictionaryPart, Statistics, Subset};
use crate::fit::dictionary::Dictionary;
use crate::fit::evidence::Factors;
use crate::fit::model::State;
use crate::fit::prior::Priors;
use crate::fit::record::{Recorder, Stop};
use crate::fit::settings::{Blocks, Rules};
use crate::linalg::vector::dot;
use crate::parallel::map_pieces;

/// A candidate with less to gain than this many nats stays outside: half of what a certificate allows.
pub(crate) const WORTHWHILE: f64 = 5e-7;

/// A ratio q^2 / s below this leaves a candidate far from gaining.
pub(crate) const NEARLY: f64 = 0.1;

/// Candidates with most to gain that a sweep remembers.
const REMEMBERED: usize = 4096;

/// A candidate and what it would bring.
#[derive(Debug, Clone)]
pub(crate) struct Offer {
    pub(crate) index: usize,
    pub(crate) gain: f64,
    /// q^2 / s: it gains where that is above 1.
    pub(crate) ratio: f64,
    /// The part of the function in the span of the model, in the metric of its posterior, of unit length; of those that gain.
    pub(crate) profile: Vec<f64>,
}

/// What a sweep found.
#[derive(Debug, Default)]
pub(crate) struct Found {
    /// Those with something to gain, best first.
    gainers: Vec<Offer>,
    /// Of the working set before, those that come closest to gaining, best first.
    others: Vec<Offer>,
}

/// S and Q of these candidates at the model: its functions as the dictionary counts them, and its state.
///
/// Where bounds on them can be had for less (`screened.rs`) only those are looked at which the bounds leave open, and none
/// if the bounds show that others gain.
pub(crate) fn sweep(
    stats: &mut dyn DictionaryPart,
    (active, state): (&[usize], &State),
    candidates: &[usize],
    rules: &Rules,
    blocks: &Blocks,
    recorder: &mut Recorder<'_>,
) -> Result<Found, Stop> {
    let mut found = Found::default();
    let open = found.screen(stats, (active, state), candidates, rules, recorder)?;
    if !found.is_empty() {
        return Ok(found);
    }
    let mut done = 0;
    for block in open.chunks(blocks.block) {
        recorder.sweeping(done, open.len(), state)?;
        found.look_at(stats, active, state, block, rules)?;
        done += block.len();
    }
    recorder.sweeping(done, open.len(), state)?;
    Ok(found)
}

impl Found {
    pub(crate) fn is_empty(&self) -> bool {
        self.gainers.is_empty()
    }

    /// The largest gain.
    pub(crate) fn most(&self) -> f64 {
        self.gainers.first().map_or(0.0, |offer| offer.gain)
    }

    fn look_at(
        &mut self,
        stats: &mut dyn DictionaryPart,
        active: &[usize],
        state: &State,
        block: &[usize],
        rules: &Rules,
    ) -> Result<(), Stop> {
        let m = active.len();
        let functions = [active, block].concat();
        let mut state = state.clone();
        state.active = (0..m).collect();
        let flat = rules.has_flat_alphas();
        let mut view = if flat {
            Subset::unmeasured(stats, functions)
        } else {
            Subset::measured(stats, functions)?
        };
        let priors = Priors::new(rules.alpha_prior, view.norms(), view.target_scale());
        let mut dictionary = Dictionary::new(view.n_basis(), priors);
        dictionary.refresh(&mut view, &mut state)?;
        let offers = map_pieces(block.len(), 256, |range| {
            let offer = |c: usize| offer(&dictionary, &state, m + c, block[c]);
            range.filter_map(offer).collect::<Vec<_>>()
        });
        let (gainers, others): (Vec<_>, Vec<_>) = offers
            .into_iter()
            .flatten()
            .partition(|offer| offer.gain > WORTHWHILE);
        self.remember(gainers, others);
        Ok(())
    }

    pub(crate) fn remember(&mut self, gainers: Vec<Offer>, others: Vec<Offer>) {
        remember(&mut self.gainers, gainers, |offer| offer.gain);
        remember(&mut self.others, others, |offer| offer.ratio);
    }

    /// The next working set: the model, those that gain and differ from one another, and of the others the best.
    pub(crate) fn working_set(
        &self,
        active: &[usize],
        before: &[usize],
        blocks: &Blocks,
    ) -> Vec<usize> {
        let mut members = active.to_vec();
        members.extend(self.unlike(blocks.entrants));
        let room = blocks.working.max(members.len()) - members.len();
        let kept = self.others.iter().map(|offer| offer.index);
        members.extend(kept.filter(|i| before.binary_search(i).is_ok()).take(room));
        members.sort_unstable();
        members.dedup();
        members
    }

    /// At most so many of those that gain, the best first, and first those unlike any before.
    fn unlike(&self, most: usize) -> Vec<usize> {
        /// Candidates more alike than this (the cosine between them) wait until those less alike have been chosen.
        const ALIKE: [f64; 4] = [0.9, 0.99, 0.999, 1.1];
        let mut chosen: Vec<usize> = Vec::new();
        for alike in ALIKE {
            for (c, offer) in self.gainers.iter().enumerate() {
                if chosen.len() >= most {
                    break;
                }
                let like = |&d: &usize| dot(&offer.profile, &self.gainers[d].profile) > alike;
                if !chosen.iter().any(|d| *d == c || like(d)) {
                    chosen.push(c);
                }
            }
        }
        chosen.into_iter().map(|c| self.gainers[c].index).collect()
    }
}

/// What a candidate offers, unless that is nothing.
fn offer(dictionary: &Dictionary, state: &State, i: usize, index: usize) -> Option<Offer> {
    let factors: Factors = dictionary.factors_of(i);
    if dictionary.diag(i) <= 0.0 || !dictionary.resolves(i, factors, state) {
        return None;
    }
    let ratio = factors.q * (factors.q / factors.s);
    // Also for no number.
    if ratio.is_nan() || ratio <= NEARLY {
        return None;
    }
    let gain = dictionary.gain(i, factors, state);
    let mut profile = Vec::new();
    if gain > WORTHWHILE {
        profile.extend((0..state.len()).map(|j| dictionary.product(j, i)));
        state.chol().solve_lower_in_place(&mut profile);
        normalise(&mut profile);
    }
    Some(Offer {
        index,
        gain,
        ratio,
        profile,
    })
}

/// Scales to unit length.
pub(crate) fn normalise(values: &mut [f64]) {
    let length = dot(values, values).sqrt();
    if length > 0.0 {
        for v in values {
            *v /= length;
        }
    }
}

/// Merges more offers into those with the highest scores.
fn remember(best: &mut Vec<Offer>, more: Vec<Offer>, score: impl Fn(&Offer) -> f64) {
    best.extend(more);
    best.sort_by(|a, b| score(b).total_cmp(&score(a)).then(a.index.cmp(&b.index)));
    best.truncate(REMEMBERED);
}
