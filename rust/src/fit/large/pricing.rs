//! Pricing of the candidates that are not in the working set: their gains, and which of them to add to it.
//!
//! Where the provider has bounds (`data/low_rank/bounds.rs`), candidates are screened first. The bounds give
//! phi_z = f + e with the products of f known and |e| bounded. S is the squared length of phi_z in the norm of C^-1, which is at
//! most that of beta W. So by the triangle inequality sqrt(S) differs from that of f by at most sqrt(beta) |e|, and Q from that
//! of f by at most beta |e^T g|. With flat priors the gain grows with q^2 / s alone; with other priors it is smaller.

use crate::data::{BoundSample, Observations, ScreeningBounds, Statistics, Subset};
use crate::fit::dictionary::Dictionary;
use crate::fit::evidence::Term;
use crate::fit::model::Model;
use crate::fit::record::{Recorder, Stop};
use crate::fit::settings::{Blocks, Rules};
use crate::fit::tuning::Tuning;
use crate::linalg::vector::dot;
use crate::parallel::map_pieces;

/// A candidate and its gain.
#[derive(Debug, Clone)]
struct Offer {
    index: usize,
    gain: f64,
    /// q^2 / s.
    ratio: f64,
    /// If it gains: the projection of its column onto the active ones, in the metric of the posterior, scaled to unit length.
    profile: Vec<f64>,
}

/// The result of a pass over the dictionary.
#[derive(Debug, Default)]
pub(crate) struct Priced {
    /// Candidates with a gain, best first.
    gaining: Vec<Offer>,
    /// Candidates without a gain and with the largest q^2 / s, best first.
    near: Vec<Offer>,
}

/// A pass over candidates at a model.
pub(crate) struct Pricing<'a> {
    /// The functions of the model as numbered in the dictionary.
    pub(crate) active: &'a [usize],
    pub(crate) model: &'a Model,
    pub(crate) rules: &'a Rules,
    pub(crate) blocks: &'a Blocks,
    pub(crate) priced: Priced,
}

impl Pricing<'_> {
    /// Prices candidates. Those that the bounds decide are not priced, and none is priced if by the bounds some
    /// gain.
    pub(crate) fn run(
        mut self,
        stats: &mut Observations<'_>,
        candidates: &[usize],
        recorder: &mut Recorder<'_>,
    ) -> Result<Priced, Stop> {
        let open = self.screen(stats, candidates, recorder)?;
        if !self.priced.is_empty() {
            return Ok(self.priced);
        }
        let mut done = 0;
        for block in open.chunks(self.blocks.block) {
            recorder.report_sweep(done, open.len(), self.model)?;
            self.price_block(stats, block)?;
            done += block.len();
        }
        recorder.report_sweep(done, open.len(), self.model)?;
        Ok(self.priced)
    }

    /// Screens the candidates that have bounds, and returns those that remain open.
    fn screen(
        &mut self,
        stats: &mut Observations<'_>,
        candidates: &[usize],
        recorder: &mut Recorder<'_>,
    ) -> Result<Vec<usize>, Stop> {
        let screens = stats.screening_bounds(self.active, self.model.mu(), candidates.len())?;
        if screens.is_empty() {
            return Ok(candidates.to_vec());
        }
        recorder.report_sweep(0, candidates.len(), self.model)?;
        let (mut open, mut done) = (Vec::new(), 0);
        for block in candidates.chunks(4 * self.blocks.block) {
            let uncovered = |i: &&usize| !screens.iter().any(|s| s.functions.contains(i));
            open.extend(block.iter().filter(uncovered));
            for screen in &screens {
                let covered = |i: &usize| screen.functions.contains(i);
                let own: Vec<usize> = block.iter().copied().filter(covered).collect();
                open.extend(self.screen_block(stats, screen, &own)?);
            }
            done += block.len();
            recorder.report_sweep(done, candidates.len(), self.model)?;
        }
        Ok(open)
    }

    /// Screens candidates by one set of bounds, and returns those that remain open.
    fn screen_block(
        &mut self,
        stats: &Observations<'_>,
        screen: &ScreeningBounds,
        candidates: &[usize],
    ) -> Result<Vec<usize>, Stop> {
        let samples = stats.bound_samples(screen, candidates)?;
        let flat = self.rules.has_flat_alphas() && self.model.complexity == 0.0;
        let screened = map_pieces(candidates.len(), Tuning::PIECE, |range| {
            let one = |c: usize| screened(candidates[c], &samples[c], self.model, flat);
            range.map(one).collect::<Vec<_>>()
        });
        let mut open = Vec::new();
        let decided = candidates.iter().zip(screened.into_iter().flatten());
        let offers = decided.filter_map(|(&index, offer)| {
            if offer.is_none() {
                open.push(index);
            }
            offer
        });
        self.priced.keep(offers.collect(), self.blocks);
        Ok(open)
    }

    fn price_block(&mut self, stats: &mut Observations<'_>, block: &[usize]) -> Result<(), Stop> {
        let m = self.active.len();
        let functions = [self.active, block].concat();
        let mut model = self.model.clone();
        model.active = (0..m).collect();
        let mut view = if self.rules.has_flat_alphas() {
            Subset::unmeasured(stats, functions)
        } else {
            Subset::measured(stats, functions)?
        };
        let mut dictionary = Dictionary::of(view.facts(), self.rules);
        dictionary.refresh(&mut view, &mut model)?;
        let offers = map_pieces(block.len(), Tuning::PIECE, |range| {
            let offer = |c: usize| offer(&dictionary, &model, m + c, block[c]);
            range.filter_map(offer).collect::<Vec<_>>()
        });
        let offers = offers.into_iter().flatten().collect();
        self.priced.keep(offers, self.blocks);
        Ok(())
    }
}

impl Priced {
    /// Whether no candidate gains.
    pub(crate) fn is_empty(&self) -> bool {
        self.gaining.is_empty()
    }

    pub(crate) fn largest_gain(&self) -> f64 {
        self.gaining.first().map_or(0.0, |offer| offer.gain)
    }

    fn keep(&mut self, offers: Vec<Offer>, blocks: &Blocks) {
        let gains = |offer: &Offer| offer.gain > Tuning::MIN_GAIN;
        let (gaining, mut near): (Vec<Offer>, Vec<Offer>) = offers.into_iter().partition(gains);
        // False for NaN.
        near.retain(|offer| offer.ratio > Tuning::MIN_NEAR_RATIO / 3.0);
        let limit = blocks.working + blocks.entrants;
        keep_best(&mut self.gaining, gaining, limit, |offer| offer.gain);
        keep_best(&mut self.near, near, limit, |offer| offer.ratio);
    }

    /// The next working set: the model, candidates that gain and differ from one another, and the best of the others that
    /// were in the working set before.
    pub(crate) fn working_set(
        &self,
        active: &[usize],
        before: &[usize],
        blocks: &Blocks,
    ) -> Vec<usize> {
        let mut members = active.to_vec();
        members.extend(self.most_different(blocks.entrants));
        let room = blocks.working.max(members.len()) - members.len();
        let near = self.near.iter().map(|offer| offer.index);
        members.extend(near.filter(|i| before.binary_search(i).is_ok()).take(room));
        members.sort_unstable();
        members.dedup();
        members
    }

    /// At most `limit` candidates that gain, best first, where candidates similar to a better one come last.
    fn most_different(&self, limit: usize) -> Vec<usize> {
        let mut chosen: Vec<usize> = Vec::new();
        // In each round, candidates with a larger cosine to one already chosen are passed over.
        for max_cos in [0.9, 0.99, 0.999, 1.1] {
            for (c, offer) in self.gaining.iter().enumerate() {
                if chosen.len() >= limit {
                    break;
                }
                let similar = |&d: &usize| dot(&offer.profile, &self.gaining[d].profile) > max_cos;
                if !chosen.iter().any(|d| *d == c || similar(d)) {
                    chosen.push(c);
                }
            }
        }
        chosen.into_iter().map(|c| self.gaining[c].index).collect()
    }
}

/// The offer of a candidate with its least gain, or without a gain; `None` where the bounds do not decide.
fn screened(index: usize, sample: &BoundSample, model: &Model, flat: bool) -> Option<Offer> {
    let beta = model.beta();
    let mut v: Vec<f64> = sample.products.iter().map(|p| beta * p).collect();
    model.chol().solve_lower_in_place(&mut v);
    let (prior_s, q) = (beta * sample.diag, (beta * sample.gradient).abs());
    let s = prior_s - dot(&v, &v);
    let error = Tuning::ROUNDING * prior_s;
    let (rest, gradient_rest) = (beta.sqrt() * sample.rest, beta * sample.gradient_rest);
    let s_min = ((s - error).max(0.0).sqrt() - rest).max(0.0).powi(2);
    let s_max = ((s + error).max(0.0).sqrt() + rest).powi(2);
    let offer = |gain: f64, profile: Vec<f64>| Offer {
        index,
        gain,
        ratio: q * (q / s),
        profile,
    };
    // With s_min = 0 the gain is NaN, and the candidate stays open.
    if flat_gain(s_min, q + gradient_rest) <= Tuning::MIN_GAIN {
        return Some(offer(0.0, Vec::new()));
    }
    let min_gain = flat_gain(s_max, (q - gradient_rest).max(0.0));
    (flat && min_gain > Tuning::MIN_GAIN).then(|| {
        normalise(&mut v);
        offer(min_gain, v)
    })
}

/// The gain of a candidate with these factors under a flat prior, an upper bound under others; NaN if s is zero.
fn flat_gain(s: f64, q: f64) -> f64 {
    if s > 0.0 {
        let (n, square) = (1.0, q * q);
        Term { n, s, square }.largest_gain()
    } else {
        f64::NAN
    }
}

/// The offer of a candidate, unless its S is round-off.
fn offer(dictionary: &Dictionary, model: &Model, i: usize, index: usize) -> Option<Offer> {
    let factors = dictionary.factors.of(i, model);
    if dictionary.diag[i] <= 0.0 || !model.resolves(&factors, dictionary.diag[i]) {
        return None;
    }
    let gain = dictionary.gain(i, &factors, model);
    let mut profile = Vec::new();
    if gain > Tuning::MIN_GAIN {
        profile.extend((0..model.len()).map(|j| dictionary.gram[&j][i]));
        model.chol().solve_lower_in_place(&mut profile);
        normalise(&mut profile);
    }
    Some(Offer {
        index,
        gain,
        ratio: factors.first.ratio(),
        profile,
    })
}

/// Scales to unit length.
fn normalise(values: &mut [f64]) {
    let length = dot(values, values).sqrt();
    if length > 0.0 {
        for v in values {
            *v /= length;
        }
    }
}

/// Merges more offers into the list of those with the highest scores.
fn keep_best(best: &mut Vec<Offer>, more: Vec<Offer>, limit: usize, score: impl Fn(&Offer) -> f64) {
    best.extend(more);
    best.sort_by(|a, b| score(b).total_cmp(&score(a)).then(a.index.cmp(&b.index)));
    best.truncate(limit);
}
