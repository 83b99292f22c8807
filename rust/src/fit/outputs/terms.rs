//! The factors of a function outside as the marginal likelihood of several outputs wants them.

use super::super::settings::ALIGNED;
use super::super::shared::Term;
use super::state::OutputState;

/// A term for each level of a function with these S (of a level) and Q (of an output); `false` if what is left of it is but
/// rounding.
pub(super) fn collect_terms(
    state: &OutputState,
    sparsity: impl Fn(usize) -> f64,
    quality: impl Fn(usize) -> f64,
    terms: &mut Vec<Term>,
) -> bool {
    // Where there is little noise less is left of a function than where there is much: one level that resolves it will
    // do, if in no other it has all but vanished.
    const LEAST: f64 = 1e-3 * ALIGNED;
    terms.clear();
    let mut resolved = false;
    for (l, level) in state.levels.iter().enumerate() {
        let outputs = state.outputs_of(l);
        let s = sparsity(l);
        if s.is_nan() || s <= LEAST * level.beta {
            return false;
        }
        resolved |= s > ALIGNED * level.beta;
        terms.push(Term {
            n: outputs.len() as f64,
            s,
            power: outputs.map(|c| quality(c) * quality(c)).sum(),
        });
    }
    resolved
}
