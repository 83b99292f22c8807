//! From linear predictors to the requested predictions.

use std::ops::Range;

use crate::Result;
use crate::likelihood::probit::Workspace;
use crate::predictor::Predictor;
use crate::predictor::link::{Link, logistic, softmax};
use crate::predictor::predict::Request;

/// Linear predictors and their variances at some rows, output after output.
#[derive(Clone, Copy)]
pub(crate) struct LinearPredictors<'a> {
    pub(crate) rows: usize,
    pub(crate) eta: &'a [f64],
    pub(crate) variances: &'a [f64],
}

/// Memory for intermediate results.
pub(crate) struct Scratchpad<'a> {
    pub(crate) numbers: &'a mut [f64],
    pub(crate) workspace: &'a mut Workspace,
}

impl Predictor {
    /// Length of the `numbers` that [`Predictor::finish`] needs.
    pub(crate) fn n_scratch(&self, rows: usize, width: usize) -> usize {
        match self.link() {
            Link::Identity | Link::Log => 0,
            Link::Logistic | Link::Softmax => self.n_outputs() + width + self.n_classes(),
            Link::Probit => (rows + 1) * self.n_classes(),
        }
    }

    /// Writes the predictions for the rows in `range`.
    pub(crate) fn finish(
        &self,
        at: LinearPredictors<'_>,
        scratch: Scratchpad<'_>,
        range: Range<usize>,
        to: &mut Request<'_>,
    ) -> Result<()> {
        let LinearPredictors {
            rows,
            eta,
            variances,
        } = at;
        let (n, link) = (self.n_outputs(), self.link());
        let copy = |out: &mut [f64], of: &dyn Fn(f64) -> f64| {
            for (r, out) in out.chunks_exact_mut(n).enumerate() {
                let row = out.iter_mut().enumerate();
                row.for_each(|(c, out)| *out = of(eta[c * rows + r]));
            }
        };
        match to {
            Request::Predicted(out) if self.is_classifier() => {
                let n = self.n_classes();
                let out = &mut out[range.start * n..range.end * n];
                return self.probabilities(at, scratch, |r, p| {
                    out[r * n..][..n].copy_from_slice(p);
                });
            }
            Request::Predicted(out) => {
                copy(&mut out[range.start * n..range.end * n], &|eta| {
                    link.mean(eta)
                });
            }
            Request::WithStd(means, stds) => {
                let range = range.start * n..range.end * n;
                copy(&mut means[range.clone()], &|eta| link.mean(eta));
                for (r, stds) in stds[range].chunks_exact_mut(n).enumerate() {
                    for (c, std) in stds.iter_mut().enumerate() {
                        let variance = variances.get(c * rows + r).copied().unwrap_or(0.0);
                        *std = link.std(eta[c * rows + r], variance, self.noise[c]);
                    }
                }
            }
            Request::Decisions(out) if self.is_pair() => {
                for (r, out) in out[range].iter_mut().enumerate() {
                    *out = eta[rows + r] - eta[r];
                }
            }
            Request::Decisions(out) => {
                copy(&mut out[range.start * n..range.end * n], &|eta| eta);
            }
            Request::Classes(out) => return self.most_probable(at, scratch, &mut out[range]),
        }
        Ok(())
    }

    /// Calls `take` with each row and the probabilities of its classes.
    fn probabilities(
        &self,
        LinearPredictors {
            rows,
            eta,
            variances,
        }: LinearPredictors<'_>,
        Scratchpad { numbers, workspace }: Scratchpad<'_>,
        mut take: impl FnMut(usize, &[f64]),
    ) -> Result<()> {
        if self.link() == Link::Probit {
            let (all, p) = numbers.split_at_mut(rows * self.n_classes());
            let n_classes = self.n_classes();
            self.probit
                .probabilities_into(eta, n_classes, workspace, all)?;
            for r in 0..rows {
                p.iter_mut()
                    .enumerate()
                    .for_each(|(c, p)| *p = all[c * rows + r]);
                take(r, p);
            }
            return Ok(());
        }
        let (own_eta, rest) = numbers.split_at_mut(self.n_outputs());
        let (own_variances, p) = rest.split_at_mut(variances.len() / rows);
        let finish = if self.link() == Link::Softmax {
            softmax
        } else {
            logistic
        };
        for r in 0..rows {
            for (own, all) in [(&mut *own_eta, eta), (&mut *own_variances, variances)] {
                let own = own.iter_mut().enumerate();
                own.for_each(|(c, v)| *v = all[c * rows + r]);
            }
            finish(own_eta, own_variances, p);
            take(r, p);
        }
        Ok(())
    }

    /// The most probable class of each row, the first among equals.
    fn most_probable(
        &self,
        at: LinearPredictors<'_>,
        scratch: Scratchpad<'_>,
        out: &mut [usize],
    ) -> Result<()> {
        let (
            LinearPredictors {
                rows,
                eta,
                variances,
            },
            n,
        ) = (at, self.n_outputs());
        let largest = |value: &dyn Fn(usize) -> f64| {
            (1..n).fold(0, |best, c| if value(c) > value(best) { c } else { best })
        };
        for (r, out) in out.iter_mut().enumerate() {
            *out = if n == 1 {
                usize::from(eta[r] > 0.0)
            } else {
                largest(&|c| eta[c * rows + r])
            };
        }
        if variances.is_empty() {
            return Ok(());
        }
        // Variances moderate the probabilities and can change their order.
        self.probabilities(at, scratch, |r, p| out[r] = largest(&|c| p[c]))
    }
}
