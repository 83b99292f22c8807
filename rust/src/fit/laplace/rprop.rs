//! The way to a fixed point that is slow and hard to mislead.

use crate::data::Statistics;
use crate::fit::laplace::fixed_point::{LONGEST, Residual, bounded};
use crate::fit::laplace::mode::find_mode;
use crate::fit::model::State;
use crate::fit::record::{Action, Recorder, Stop};

/// Follows the sign of R, each alpha with a step of its own that grows while the sign lasts and halves when it turns;
/// until Newton's method can take over, all that is left is rounding, or for as long as that is worth trying.
///
/// Slow and hard to mislead: where a function is wanted at alpha = infinity but not at the alpha that this promises, R
/// changes its sign in between, and halving finds the place. (Rprop, Riedmiller & Braun 1993, with R for the gradient.)
///
/// Tells whether it moved at all.
pub(crate) fn creep(
    stats: &mut dyn Statistics,
    state: &mut State,
    near: f64,
    recorder: &mut Recorder<'_>,
) -> Result<bool, Stop> {
    const ROUNDS: usize = 150;
    const FIRST: f64 = 0.5;
    find_mode(stats, state)?;
    let mut steps = vec![(FIRST, 0.0); state.len()];
    for round in 0..ROUNDS {
        let here = Residual::of(state);
        if here.distance(state) <= near || here.is_rounding(state) {
            return Ok(round > 0);
        }
        let mut alphas = Vec::with_capacity(state.len());
        for (k, ((step, last), &r)) in steps.iter_mut().zip(&here.values).enumerate() {
            *step = if *last * r < 0.0 {
                *step * 0.5
            } else {
                (*step * 1.3).min(LONGEST)
            };
            *last = r;
            let way = if r == 0.0 { 0.0 } else { step.copysign(r) };
            alphas.push(bounded(state.alpha[k] * way.exp(), state.sparsity(k)));
        }
        state.set_alphas(&alphas)?;
        find_mode(stats, state)?;
        recorder.step(Action::Joint, None, state)?;
    }
    Ok(true)
}
