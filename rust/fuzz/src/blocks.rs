//! Fits in blocks of a dictionary, and fits that go on from what was kept of one.

use sparsebayes::internal::{BlockCheckpoint, Blocks, fit_in_blocks};
use sparsebayes::{Observations, Posterior, Result, Rules};

use crate::judge::{Outcome, judge};
use crate::problem::{Problem, Way};
use crate::watch::Watcher;

/// Sketches that are kept of one fit.
const KEPT: usize = 64;

/// The model, or what is wrong with it; and the fit that goes on from one of its sketches ends well too.
pub(crate) fn fit<'a>(
    problem: &Problem,
    observe: impl Fn() -> Result<Observations<'a>>,
    rules: &Rules,
) -> Result<std::result::Result<Posterior, Outcome>> {
    let Way::Blocks {
        sizes: [sample, working, entrants, block, searches],
        resume,
        spoilt,
    } = problem.way
    else {
        return Ok(Err(Outcome {
            ending: "blocks",
            wrong: Some("there are none".to_owned()),
        }));
    };
    let blocks = Blocks {
        sample,
        working,
        entrants,
        block,
        searches,
    };
    let run = |sketch, watcher: &mut Watcher, kept: &mut Vec<BlockCheckpoint>| {
        let mut rows = observe()?.cancelled_by(watcher.flag());
        let mut keep = |sketch: &BlockCheckpoint| {
            if kept.len() < KEPT {
                kept.push(sketch.clone());
            }
            Ok(())
        };
        fit_in_blocks(&mut rows, rules, &blocks, sketch, &mut keep, &mut |_| {
            watcher.step()
        })
    };
    let mut kept = Vec::new();
    let first = run(None, &mut Watcher::of(problem), &mut kept)?;
    let Some(sketch) = kept.get(resume % kept.len().max(1)).cloned() else {
        return Ok(Ok(first));
    };
    let untouched = spoilt == 0 && problem.stop_after == 0;
    let sketch = self::spoilt(sketch, spoilt);
    let again = match run(Some(sketch), &mut Watcher::of(problem), &mut Vec::new()) {
        Ok(again) => again,
        // What is spoilt may be refused.
        Err(_) if !untouched => return Ok(Ok(first)),
        Err(error) => return Err(error),
    };
    let outcome = judge(&again).or_else(|| {
        let same = again.active == first.active
            && again.alpha == first.alpha
            && again.trace == first.trace
            && again.status == first.status;
        (untouched && !same).then(|| format!("went on to {again:?} instead of {first:?}"))
    });
    Ok(if outcome.wrong.is_some() {
        Err(outcome)
    } else {
        Ok(first)
    })
}

/// A sketch as somebody else might hand it in.
fn spoilt(mut sketch: BlockCheckpoint, how: u8) -> BlockCheckpoint {
    match how {
        1 => sketch.alpha.iter_mut().for_each(|a| *a = f64::NAN),
        2 => sketch.alpha.iter_mut().for_each(|a| *a = 1e300),
        3 => sketch.alpha.iter_mut().for_each(|a| *a = 1e-300),
        4 => sketch.working.reverse(),
        5 => sketch.beta = 1e-300,
        6 => sketch.beta = 1e300,
        7 => sketch.stride = usize::MAX,
        8 => {
            // The same function twice.
            sketch.active.extend(sketch.active.first().copied());
            sketch.alpha.extend(sketch.alpha.first().copied());
        }
        9 => sketch.trace.clear(),
        10 => sketch.round = usize::MAX,
        11 => sketch.idle = usize::MAX,
        12 => drop(sketch.working.pop()),
        13 => sketch.working.clear(),
        14 => sketch.trace.fill(f64::NAN),
        15 => sketch.active.clear(),
        _ => {}
    }
    sketch
}
