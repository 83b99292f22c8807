//! A move tried out on the variational bound.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use nalgebra::DMatrix;

use super::super::super::record::Halt;
use super::super::super::settings::LEAST_EXCHANGE;
use super::super::bound::Bound;
use super::super::candidates::Candidates;
use super::super::newton::{self, Ascent, Top};
use super::super::state::OutputState;
use super::moves::{Exchange, moved};
use crate::Result;
use crate::probit::Probit;

/// Classes of the rows, and what makes a likelihood of them.
#[derive(Clone, Copy)]
pub(super) struct Rows<'a> {
    pub(super) probit: &'a Probit,
    pub(super) labels: &'a [usize],
    pub(super) weights: Option<&'a [f64]>,
}

/// What the trials from one model have in common.
pub(super) struct Arena<'a> {
    pub(super) rows: Rows<'a>,
    pub(super) state: &'a OutputState,
    pub(super) candidates: &'a Candidates,
    /// Columns of all functions concerned.
    pub(super) columns: HashMap<usize, Vec<f64>>,
    pub(super) cancel: Option<Arc<AtomicBool>>,
}

/// A model that a move has led to.
pub(super) struct Found {
    pub(super) state: OutputState,
    /// Those of the E-step there.
    pub(super) targets: Vec<f64>,
    pub(super) bound: f64,
}

impl Arena<'_> {
    /// The bound of a model at the means that its targets ask for.
    pub(super) fn bound_of(&self, state: &OutputState) -> Result<f64> {
        Ok(self.bound(state).view(&place(state))?.value)
    }

    fn bound(&self, state: &OutputState) -> Bound<'_> {
        let columns = state.active.iter().flat_map(|j| &self.columns[j]).copied();
        Bound {
            columns: columns.collect(),
            gram: DMatrix::from_fn(state.len(), state.len(), |i, j| state.gram(i, j)),
            labels: self.rows.labels,
            row_weights: self.rows.weights,
            probit: self.rows.probit,
            n_classes: state.outputs.len(),
        }
    }

    /// What becomes of the model after a move, weights and alphas climbing together; `None` if its bound is not above `bar`.
    ///
    /// The climb ends as soon as it is there, or so slow that it will not get there.
    pub(super) fn tried(
        &self,
        change: &Exchange,
        bar: f64,
    ) -> std::result::Result<Option<Found>, Halt> {
        /// Steps of these gains end its stretches.
        const STRETCHES: [f64; 4] = [1.0, 0.1, 0.01, 0.001];
        /// So many times the gain of the last step may still be to come.
        const TO_COME: f64 = 2.0;
        let Some(mut state) = moved(self.state, self.candidates, change)? else {
            return Ok(None);
        };
        // Nothing is known of a climb without functions, nor is there anything to gain.
        if state.len() == 0 {
            return Ok(None);
        }
        let mut x = place(&state);
        for least in STRETCHES {
            loop {
                let top = self.climbed(&state, x, least)?;
                if top.value > bar + LEAST_EXCHANGE {
                    return settled(state, top).map(Some);
                }
                x = without_leaving(&mut state, &top);
                let hopeless = top.value + TO_COME * least < bar;
                match top.leaves.contains(&true) {
                    true if state.len() == 0 => return Ok(None),
                    true => {}
                    false if hopeless => return Ok(None),
                    false => break,
                }
            }
        }
        Ok(None)
    }

    fn climbed(&self, state: &OutputState, x: Vec<f64>, least: f64) -> Result<Top> {
        const RADIUS: f64 = 3.0;
        let ascent = Ascent {
            least,
            radius: RADIUS,
        };
        newton::climb(&self.bound(state), x, ascent, self.cancel.as_deref())
    }
}

/// The model at the top of a climb.
fn settled(mut state: OutputState, top: Top) -> std::result::Result<Found, Halt> {
    let at = state.len() * state.outputs.len();
    let alpha: Vec<f64> = top.x[at..].iter().map(|a| a.exp()).collect();
    let betas = state.betas();
    state.set_hyperparameters(&alpha, &betas)?;
    Ok(Found {
        state,
        targets: top.targets,
        bound: top.value,
    })
}

/// Means and ln alpha of a model as the bound takes them.
pub(in super::super) fn place(state: &OutputState) -> Vec<f64> {
    let means = state.outputs.iter().flat_map(|output| &output.mu).copied();
    means.chain(state.alpha.iter().map(|a| a.ln())).collect()
}

/// Takes out the functions on their way; where the rest of them is.
fn without_leaving(state: &mut OutputState, top: &Top) -> Vec<f64> {
    let m = state.len();
    let stays: Vec<usize> = (0..m).filter(|&k| !top.leaves[k]).collect();
    let blocks = top.x.chunks_exact(m.max(1));
    let x = blocks
        .flat_map(|block| stays.iter().map(|&k| block[k]))
        .collect();
    for k in (0..m).rev().filter(|&k| top.leaves[k]) {
        state.delete(k);
    }
    x
}
