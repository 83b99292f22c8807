//! Fits of large dictionaries in blocks, and their checkpoints.

// Python signatures.
#![allow(
    non_snake_case,
    clippy::too_many_arguments,
    clippy::needless_pass_by_value
)]

use numpy::{PyReadonlyArray1, PyReadonlyArray2};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use sparsebayes::Observations;
use sparsebayes::internal::{Blocks, fit_in_blocks};

use crate::arrays;
use crate::arrays::vector;
use crate::checkpoint::from_dict;
use crate::dictionary::KernelDictionary;
use crate::fit::{rules, scalar_likelihood};
use crate::kernel::PyKernel;
use crate::posterior::PyPosterior;
use crate::runner::run_with_checkpoints;

/// `fit_kernel` for dictionaries too large for one pass: the scheme runs on a working set, and passes over the whole
/// dictionary in blocks extend it.
///
/// `sizes`: functions in the first working set, in later ones, added by a pass, in a block; and number of rounds with
/// exchange search. `keep` is called with a dict of arrays before each round; `resume` is such a dict from which the fit
/// continues.
#[pyfunction]
#[pyo3(signature = (X, centres, kernels, target, weights=None, *, bias=true, extra=None, likelihood="gaussian",
    n_threads=None, sizes=None, resume=None, keep=None, callback=None, **settings))]
pub(crate) fn fit_kernel_in_blocks(
    py: Python<'_>,
    X: PyReadonlyArray2<'_, f64>,
    centres: PyReadonlyArray2<'_, f64>,
    kernels: Vec<PyRef<'_, PyKernel>>,
    target: PyReadonlyArray1<'_, f64>,
    weights: Option<PyReadonlyArray1<'_, f64>>,
    bias: bool,
    extra: Option<PyReadonlyArray2<'_, f64>>,
    likelihood: &str,
    n_threads: Option<usize>,
    sizes: Option<[usize; 5]>,
    resume: Option<Bound<'_, PyDict>>,
    keep: Option<Bound<'_, PyAny>>,
    callback: Option<Bound<'_, PyAny>>,
    settings: Option<Bound<'_, PyDict>>,
) -> PyResult<PyPosterior> {
    let dictionary = KernelDictionary::new(&X, &centres, &kernels, bias, extra.as_ref())?;
    let rules = rules(settings.as_ref())?;
    let likelihood = scalar_likelihood(likelihood)?;
    let (target, weights) = (
        vector("target", &target)?,
        arrays::weights(weights.as_ref())?,
    );
    let sizes = sizes.map_or_else(Blocks::default, blocks);
    let checkpoint = resume.map(|dict| from_dict(&dict)).transpose()?;
    let posterior = run_with_checkpoints(
        py,
        n_threads,
        callback.as_ref(),
        keep.as_ref(),
        |reporter| {
            dictionary.solve(Some(true), None, |design| {
                let (target, weights) = (target.to_vec(), weights.map(<[f64]>::to_vec));
                let stats = Observations::in_part(design, likelihood, target, weights)?;
                let mut stats = stats.cancelled_by(reporter.cancel.clone());
                let keep = &mut |checkpoint: &_| reporter.checkpoint(checkpoint);
                let watch = &mut |step: &_| reporter.step(step);
                fit_in_blocks(&mut stats, &rules, &sizes, checkpoint, keep, watch)
            })
        },
    )?;
    Ok(posterior.into())
}

fn blocks([sample, working, entrants, block, searches]: [usize; 5]) -> Blocks {
    Blocks {
        sample,
        working,
        entrants,
        block,
        searches,
    }
}
