//! From linear predictors to answers.

use std::ops::Range;

use crate::Result;
use crate::likelihood::probit::Workspace;
use crate::predictor::Predictor;
use crate::predictor::link::{Link, logistic, softmax};
use crate::predictor::predict::Answers;

/// Linear predictors and their spread at some rows, output after output.
#[derive(Clone, Copy)]
pub(crate) struct Found<'a> {
    pub(crate) rows: usize,
    pub(crate) eta: &'a [f64],
    pub(crate) spread: &'a [f64],
}

/// Workspace for what comes between.
pub(crate) struct Aside<'a> {
    pub(crate) numbers: &'a mut [f64],
    pub(crate) room: &'a mut Workspace,
}

impl Predictor {
    /// Numbers that [`Predictor::finish`] puts aside.
    pub(crate) fn n_aside(&self, rows: usize, width: usize) -> usize {
        match self.link() {
            Link::Identity | Link::Log => 0,
            Link::Logistic | Link::Softmax => self.n_outputs() + width + self.n_classes(),
            Link::Probit => (rows + 1) * self.n_classes(),
        }
    }

    /// From linear predictors and their spread, output after output, to answers at these rows.
    pub(crate) fn finish(
        &self,
        found: Found<'_>,
        aside: Aside<'_>,
        range: Range<usize>,
        to: &mut Answers<'_>,
    ) -> Result<()> {
        let Found { rows, eta, spread } = found;
        let (n, link) = (self.n_outputs(), self.link());
        let copy = |out: &mut [f64], of: &dyn Fn(f64) -> f64| {
            for (r, out) in out.chunks_exact_mut(n).enumerate() {
                let row = out.iter_mut().enumerate();
                row.for_each(|(c, out)| *out = of(eta[c * rows + r]));
            }
        };
        match to {
            Answers::Predicted(out) if self.is_classifier() => {
                let n = self.n_classes();
                let out = &mut out[range.start * n..range.end * n];
                return self.probabilities(found, aside, |r, p| {
                    out[r * n..][..n].copy_from_slice(p);
                });
            }
            Answers::Predicted(out) => {
                copy(&mut out[range.start * n..range.end * n], &|eta| {
                    link.mean(eta)
                });
            }
            Answers::WithStd(means, stds) => {
                let range = range.start * n..range.end * n;
                copy(&mut means[range.clone()], &|eta| link.mean(eta));
                for (r, stds) in stds[range].chunks_exact_mut(n).enumerate() {
                    for (c, std) in stds.iter_mut().enumerate() {
                        let variance = spread.get(c * rows + r).copied().unwrap_or(0.0);
                        *std = link.std(eta[c * rows + r], variance, self.noise[c]);
                    }
                }
            }
            Answers::Decisions(out) if self.is_pair() => {
                for (r, out) in out[range].iter_mut().enumerate() {
                    *out = eta[rows + r] - eta[r];
                }
            }
            Answers::Decisions(out) => {
                copy(&mut out[range.start * n..range.end * n], &|eta| eta);
            }
            Answers::Classes(out) => return self.winners(found, aside, &mut out[range]),
        }
        Ok(())
    }

    /// Hands over the probabilities of the classes at each of these rows.
    fn probabilities(
        &self,
        Found { rows, eta, spread }: Found<'_>,
        Aside { numbers, room }: Aside<'_>,
        mut take: impl FnMut(usize, &[f64]),
    ) -> Result<()> {
        if self.link() == Link::Probit {
            let (all, p) = numbers.split_at_mut(rows * self.n_classes());
            let n_classes = self.n_classes();
            self.probit.probabilities_into(eta, n_classes, room, all)?;
            for r in 0..rows {
                p.iter_mut()
                    .enumerate()
                    .for_each(|(c, p)| *p = all[c * rows + r]);
                take(r, p);
            }
            return Ok(());
        }
        let (own_eta, rest) = numbers.split_at_mut(self.n_outputs());
        let (own_spread, p) = rest.split_at_mut(spread.len() / rows);
        let finish = if self.link() == Link::Softmax {
            softmax
        } else {
            logistic
        };
        for r in 0..rows {
            for (own, all) in [(&mut *own_eta, eta), (&mut *own_spread, spread)] {
                let own = own.iter_mut().enumerate();
                own.for_each(|(c, v)| *v = all[c * rows + r]);
            }
            finish(own_eta, own_spread, p);
            take(r, p);
        }
        Ok(())
    }

    /// The most probable classes, the first of equals.
    fn winners(&self, found: Found<'_>, aside: Aside<'_>, out: &mut [usize]) -> Result<()> {
        let (Found { rows, eta, spread }, n) = (found, self.n_outputs());
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
        if spread.is_empty() {
            return Ok(());
        }
        // More uncertain scores count less.
        self.probabilities(found, aside, |r, p| out[r] = largest(&|c| p[c]))
    }
}
