//! A first model from almost the data, where passes over the dictionary cost little.
//!
//! Smooth kernels say with a few features nearly all they have to say (`stats/compressed.rs`), and choosing functions by what
//! is nearly so takes no less care and a fraction of the time. The model found is no result: its functions and precisions are
//! where the fit on all rows sets out from, and the end is that fit's own. Features that leave out what the targets ask for
//! show, for the rows have more to gain then; such a model is dropped.

use crate::data::{Statistics, check_flag};
use crate::fit::candidates::Outside;
use crate::fit::dictionary::Dictionary;
use crate::fit::evidence::ALPHA_FLOOR;
use crate::fit::full_basis::fill;
use crate::fit::model::State;
use crate::fit::newton::NoiseRange;
use crate::fit::prior::Priors;
use crate::fit::record::{Action, Recorder, Stop};
use crate::fit::sequential;
use crate::fit::sequential::Start;
use crate::fit::settings::{Noise, Rules, START_NOISE, WHOLE};
use crate::fit::working_set::WorkingSet;
use crate::{Error, Result};

/// Steps that a fit has to be allowed: those of the first model are not among them.
const LEAST_STEPS: usize = 1000;

/// Largest precision of the noise, for targets of unit spread, at which features say enough: what they leave out is larger than
/// less noise.
const CLEAREST: f64 = 300.0;

/// Nats that a candidate may gain at the end.
const ASTRAY: f64 = 1.0;

/// Nats that a candidate may gain on the rows beyond its gain in features, beside the rough model and at its noise or less.
const APART: f64 = 0.4;

/// Candidates by which a rough model is judged.
const JUDGES: usize = 64;

type Limits<'r> = (&'r Rules, NoiseRange);

/// Where there is such a way, brings an empty state to a model nearly settled on all rows: the dictionary as it looks from there.
/// Otherwise the state is empty still.
pub(crate) fn approach(
    stats: &mut dyn Statistics,
    state: &mut State,
    priors: &Priors,
    (rules, range): Limits<'_>,
    recorder: &mut Recorder<'_>,
) -> Result<Option<Dictionary>, Stop> {
    // Smaller dictionaries have one pool.
    let clear = rules.noise != Noise::Estimated && state.beta > CLEAREST;
    if stats.n_basis() <= WHOLE || rules.max_iter < LEAST_STEPS || clear {
        return Ok(None);
    }
    let (empty, limits) = (state.clone(), (rules, range));
    let mut outcome = None;
    stats.with_low_rank_features(&mut |whole, part| {
        outcome = Some(first_model(whole, part, (&empty, priors), limits));
    })?;
    let Some(outcome) = outcome else {
        return Ok(None);
    };
    let entered = outcome.and_then(|found| {
        let Some(found) = found else {
            return Ok(None);
        };
        found.enter(stats, state, priors, limits)?;
        let mut dictionary = Dictionary::new(stats.n_basis(), priors.clone());
        dictionary.refresh(stats, state)?;
        let near = dictionary.most_to_gain(state) <= ASTRAY;
        Ok(near.then_some(dictionary))
    });
    match entered {
        Ok(Some(dictionary)) => {
            recorder.step(Action::Search, None, state)?;
            Ok(Some(dictionary))
        }
        // What is nearly so may lack digits that are there on all rows.
        Ok(None) | Err(Stop::MaxIterations | Stop::Failed(Error::NotPositiveDefinite(_))) => {
            check_flag(stats.cancel_flag().as_deref())?;
            state.clone_from(&empty);
            Ok(None)
        }
        Err(halt) => Err(halt),
    }
}

/// The model that the sequential scheme comes to in features; `None` where these say too little.
fn first_model(
    whole: &mut dyn Statistics,
    part: &mut dyn Statistics,
    (empty, priors): (&State, &Priors),
    (rules, range): Limits<'_>,
) -> Result<Option<Found>, Stop> {
    let (scale, mut state) = (part.target_scale(), empty.clone());
    let (rules, recorder) = (&rules.loosened(), &mut Recorder::silent());
    let own = Priors::new(rules.alpha_prior, part.norms(), scale);
    let mut dictionary = Dictionary::new(part.n_basis(), own);
    let noise = rules.free_noise(range);
    let pool = sequential::rough(part, &mut state, &mut dictionary, noise, recorder)?;
    if state.beta > CLEAREST {
        return Ok(None);
    }
    let rough = Found::of(&state, part.norms(), scale);
    // Features that miss the signal leave it to the noise; less of that, and it shows.
    let beta = rough.beta.max(1.0 / (START_NOISE * scale * scale));
    let (rough, judges) = (Found { beta, ..rough }, dictionary.sample(JUDGES, JUDGES));
    let on_rows = gains(whole, (&rough, &judges), (empty, priors), (rules, range))?;
    let own = dictionary.priors();
    let in_features = gains(part, (&rough, &judges), (empty, own), (rules, range))?;
    let mut pairs = on_rows.iter().zip(&in_features);
    if pairs.any(|(rows, features)| rows > &(features + APART)) {
        return Ok(None);
    }
    let start = Start::rough(pool, part.n_obs(), noise);
    sequential::complete(
        part,
        &mut state,
        &mut dictionary,
        start,
        rules,
        range,
        recorder,
    )?;
    Ok(Some(Found::of(&state, part.norms(), scale)))
}

/// What each of the candidates given has to gain beside a model.
fn gains(
    stats: &mut dyn Statistics,
    (model, candidates): (&Found, &[usize]),
    (empty, priors): (&State, &Priors),
    limits: Limits<'_>,
) -> Result<Vec<f64>, Stop> {
    let mut state = empty.clone();
    model.enter(stats, &mut state, priors, limits)?;
    let pool = WorkingSet::about(stats, &mut state, priors, candidates)?;
    pool.within(&mut state, &mut Recorder::silent(), |state, _| {
        let outside = Outside::new(&pool, state);
        let of = |&i: &usize| outside.factors_of(pool.place(i)).gain_of_adding();
        let inside = |i: &usize| state.active.contains(&pool.place(*i));
        Ok(candidates
            .iter()
            .map(|i| if inside(i) { 0.0 } else { of(i) })
            .collect())
    })
}

/// A model found in features, in the units of the caller.
struct Found {
    functions: Vec<usize>,
    alpha: Vec<f64>,
    beta: f64,
}

impl Found {
    /// The model of a state, its functions having these lengths.
    fn of(state: &State, norms: &[f64], scale: f64) -> Self {
        let unit = |(&j, alpha): (&usize, &f64)| alpha * (norms[j] / scale).powi(2);
        Self {
            functions: state.active.clone(),
            alpha: state.active.iter().zip(&state.alpha).map(unit).collect(),
            beta: state.beta / (scale * scale),
        }
    }

    /// Puts the model into an empty state; functions that vanish on all rows stay out.
    fn enter(
        &self,
        stats: &mut dyn Statistics,
        state: &mut State,
        priors: &Priors,
        (rules, range): Limits<'_>,
    ) -> Result<()> {
        let (scale, norms) = (stats.target_scale(), stats.norms());
        let pairs = self.functions.iter().zip(&self.alpha);
        let (functions, alpha): (Vec<usize>, Vec<f64>) = pairs
            .filter(|&(&j, _)| norms[j] > 0.0)
            .map(|(&j, alpha)| {
                let unit = scale / norms[j];
                (j, (alpha * unit * unit).clamp(ALPHA_FLOOR, f64::MAX))
            })
            .unzip();
        if stats.is_linear() && rules.noise == Noise::Estimated {
            state.beta = (self.beta * scale * scale).min(range.beta_max);
        }
        fill(stats, state, &functions, &alpha, priors)
    }
}
