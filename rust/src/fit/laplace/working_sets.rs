//! Pools at a posterior mode: the Gaussian scheme on a few functions and the likelihood as it is linearised there.

use crate::Error;
use crate::data::Statistics;
use crate::fit::dictionary::Dictionary;
use crate::fit::greedy::maximize;
use crate::fit::laplace::mode::find_mode;
use crate::fit::model::State;
use crate::fit::prior::Priors;
use crate::fit::record::{Action, Recorder, Stop};
use crate::fit::search::exchange::exchange_few;
use crate::fit::search::lns::{Opening, search};
use crate::fit::tuning::{Effort, Tuning};
use crate::fit::working_set::WorkingSet;

/// Pools that are searched.
const SEARCHES: usize = 3;

/// Candidates that gain, and that might, in a pool: its Gram matrix is made anew at each mode.
const CONTENDERS: usize = 64;

/// Neighbourhoods tried in a pool.
const TRIALS: usize = 16;

/// Pools after which exchanges are tried no more, and functions of a model in which they take little time.
const EXCHANGES: usize = SEARCHES + 4;
const FEW: usize = 20;

/// For a pool about a model that has seen the whole dictionary.
const LATE: Effort = Effort {
    gain: Tuning::MIN_GAIN,
    step: Tuning::FINE_STEP,
    tol: f64::INFINITY,
};

/// A first model, from functions of all the dictionary.
pub(crate) fn first_model(
    stats: &mut dyn Statistics,
    state: &mut State,
    dictionary: &Dictionary,
    recorder: &mut Recorder<'_>,
) -> Result<(), Stop> {
    let sample = sample(dictionary, stats.n_predictors());
    let stretch = Stretch {
        others: &sample,
        effort: Tuning::COARSE_EFFORT,
        trials: TRIALS,
        exchanging: false,
        // The mode has moved since the first functions came in, and with it what is best beside them.
        opening: Opening::Restart,
    };
    relinearise(stats, state, dictionary.priors(), &stretch, recorder)?;
    Ok(())
}

/// The pools of a fit on its way to a fixed point.
#[derive(Default)]
pub(crate) struct Pools {
    made: usize,
    most: usize,
    /// The functions about which the last one had stand-ins.
    about: Vec<usize>,
}

impl Pools {
    /// At most so many.
    pub(crate) fn at_most(most: usize) -> Self {
        Self {
            most,
            ..Self::default()
        }
    }

    /// Whether there may be another.
    pub(crate) fn are_left(&self) -> bool {
        self.made < self.most
    }

    /// Whether one has led anywhere, or was to.
    pub(crate) fn have_begun(&self) -> bool {
        self.made > 0 && self.most > 0
    }

    /// Whether exchanges of these functions are still to be tried, in a small part of the time that the rest takes.
    pub(crate) fn may_exchange(&self, state: &State) -> bool {
        (1..=FEW).contains(&state.len()) && self.made < EXCHANGES && self.about != state.active
    }

    /// Goes on in the next one; whether what is left is to settle.
    pub(crate) fn next(
        &mut self,
        stats: &mut dyn Statistics,
        state: &mut State,
        dictionary: &mut Dictionary,
        (gains, exchanging): (bool, bool),
        recorder: &mut Recorder<'_>,
    ) -> Result<bool, Stop> {
        self.made += 1;
        let before = state.active.clone();
        let searching = self.made <= SEARCHES;
        let with_stand_ins = searching || exchanging;
        let members = members(dictionary, state, with_stand_ins);
        if with_stand_ins {
            self.about.clone_from(&before);
        }
        let stretch = Stretch {
            others: &members,
            effort: LATE,
            trials: if gains && searching { TRIALS } else { 0 },
            // While something gains they would come too early.
            exchanging: exchanging && !gains,
            opening: Opening::Plain,
        };
        if relinearise(stats, state, dictionary.priors(), &stretch, recorder)? {
            return Ok(state.active == before);
        }
        if gains {
            // The linearisation does not reach as far as the pool went: one block at a time, then.
            self.most = 0;
        }
        Ok(!gains)
    }
}

/// Candidates for a first model: functions from all over the dictionary, the same ones for each linear predictor, so that
/// no class is served better than another.
fn sample(dictionary: &Dictionary, n_predictors: usize) -> Vec<usize> {
    let size = Tuning::LAPLACE_SAMPLE_SIZE
        .min(Tuning::MAX_WHOLE_DICTIONARY / n_predictors)
        .max(1);
    let n_each = dictionary.n_basis() / n_predictors;
    let mut sample: Vec<usize> = (0..n_each).filter(|&j| dictionary.diag(j) > 0.0).collect();
    if sample.len() > size {
        sample = (0..size).map(|k| sample[k * sample.len() / size]).collect();
    }
    let of_each = |c| sample.iter().map(move |j| c * n_each + j);
    (0..n_predictors).flat_map(of_each).collect()
}

/// Candidates for a pool about the state.
fn members(dictionary: &Dictionary, state: &State, searching: bool) -> Vec<usize> {
    let mut members = dictionary.best_candidates(state, CONTENDERS);
    members.extend(dictionary.near_candidates(state, CONTENDERS));
    if searching {
        members.extend(dictionary.substitutes(state));
    }
    members
}

/// What a stretch on pools is to do.
struct Stretch<'a> {
    /// Candidates beside the active functions.
    others: &'a [usize],
    effort: Effort,
    /// Neighbourhoods to try.
    trials: usize,
    /// Whether to try exchanges after them.
    exchanging: bool,
    /// What searches begin with.
    opening: Opening,
}

/// The Gaussian scheme over a pool of candidates and the active functions, on the likelihood as it is linearised at the
/// mode, which is then found anew; until the choice of functions stays.
fn relinearise(
    stats: &mut dyn Statistics,
    state: &mut State,
    priors: &Priors,
    stretch: &Stretch<'_>,
    recorder: &mut Recorder<'_>,
) -> Result<bool, Stop> {
    const MOST_MODES: usize = 8;
    let mut useful = false;
    // The pool and the state have to speak of the same linearisation.
    find_mode(stats, state)?;
    recorder.step(Action::Mode, None, state)?;
    for _ in 0..MOST_MODES {
        let before = state.clone();
        let pool = WorkingSet::approximate_about(stats, state, priors, stretch.others)?;
        let outcome = pool.within(state, recorder, |state, recorder| {
            pool.adopt_data(state)?;
            maximize(&pool, state, None, stretch.effort, recorder)?;
            if stretch.trials > 0 && search(&pool, state, None, stretch.trials, stretch.opening)? {
                recorder.step(Action::Search, None, state)?;
            }
            if stretch.exchanging && exchange_few(&pool, state)? {
                recorder.step(Action::Search, None, state)?;
            }
            Ok(())
        });
        match outcome.and_then(|()| Ok(find_mode(stats, state)?)) {
            Ok(()) => {}
            // Far from its mode a likelihood can be too steep for its linearisation.
            Err(Stop::Failed(Error::NotPositiveDefinite(_))) => state.clone_from(&before),
            Err(halt) => return Err(halt),
        }
        let risen = state.log_posterior() > before.log_posterior();
        if !risen {
            state.clone_from(&before);
        }
        recorder.step(Action::Mode, None, state)?;
        useful |= risen;
        if !risen || state.active == before.active {
            break;
        }
    }
    Ok(useful)
}
